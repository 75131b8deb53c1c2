"""Where pip would look for packages: pip's configuration files and PIP_* variables.

uv does not read them, so they are read here and passed on. URLs may hold credentials: they go to
uv through the environment only, never into an argument list, a lock or a log.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_SECTIONS = ("global", "install", "download", "wheel")


@dataclass(frozen=True, kw_only=True, slots=True)
class PipConfig:
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None

    @property
    def remote_indexes(self) -> tuple[str, ...]:
        return tuple(url for url in self.extra_index_urls if not _is_local(url))

    @property
    def local_indexes(self) -> tuple[str, ...]:
        return tuple(url for url in self.extra_index_urls if _is_local(url))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Where artifacts may come from."""

    pip: PipConfig
    wheelhouse: Path | None = None


def read_pip_config(prefix: Path | None, environ: Mapping[str, str]) -> PipConfig:
    """Merge files (machine, user, environment at ``prefix``) and variables, as pip does.

    A file that cannot be read or parsed is passed over: pip would have refused it long before.
    """
    settings: dict[str, str] = {}
    for path in _files(prefix, environ):
        settings.update(_read(path))
    for name, value in environ.items():
        if name.startswith("PIP_") and value:
            settings[name[4:].lower().replace("_", "-")] = value
    return PipConfig(
        index_url=settings.get("index-url"),
        extra_index_urls=_words(settings.get("extra-index-url")),
        find_links=_words(settings.get("find-links")),
        no_index=settings.get("no-index", "").lower() in {"1", "true", "yes", "on"},
        trusted_hosts=_words(settings.get("trusted-host")),
        cert=settings.get("cert"),
    )


def _files(prefix: Path | None, environ: Mapping[str, str]) -> Iterable[Path]:
    only = environ.get("PIP_CONFIG_FILE")
    if only == os.devnull:
        return []
    home = Path(environ.get("HOME", "/nonexistent"))
    xdg = [Path(d) for d in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep) if d]
    config = Path(environ.get("XDG_CONFIG_HOME", home / ".config"))
    paths = [*(d / "pip" / "pip.conf" for d in xdg), Path("/etc/pip.conf")]
    paths += [home / ".pip" / "pip.conf", config / "pip" / "pip.conf"]
    if prefix is not None:
        paths.append(prefix / "pip.conf")
    if only:
        paths.append(Path(only))
    return paths


def _read(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
    return {
        key.replace("_", "-"): value
        for section in _SECTIONS
        if parser.has_section(section)
        for key, value in parser.items(section)
    }


def _words(value: str | None) -> tuple[str, ...]:
    return tuple((value or "").split())


def _is_local(url: str) -> bool:
    return url.startswith("file:") or "://" not in url
