"""The lock's Python where no base has it: a standalone build, chosen and checked by uv, as a layer.

What comes out is a base like any other, so that every way of building takes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from packaging.pylock import PackageWheel
from uv import find_uv_bin

from envlock.errors import BuildError, InputError
from envlock.image import oci
from envlock.image.base_export import new_layout
from envlock.image.fetch import Shelves, cache_folder, cached, cannot_write, gather, place_file
from envlock.image.foundation import PYTHON_LABEL, PYTHON_VERSION_LABEL, file_digest
from envlock.image.kept import mark_used
from envlock.image.plan import EPOCH, Artifact
from envlock.lock.model import ManagedPython
from envlock.lock.strict import shown
from envlock.redact import redact
from envlock.targets.process import Limits, run

PREFIX = "/opt/python"
_TOP = "python"
"""The one folder of such an archive."""
_KEY = "cpython-{version}-linux-x86_64-gnu"
_MOST_BYTES = 2 << 30
"""Unpacked; such a build has 0.1 to 0.4 GB."""
_LIST = Limits(timeout_s=60)
_INSTALL = Limits(timeout_s=1800)
_ELSE = "name a base with exactly the lock's Python: --base REF"


def find_managed(
    version: str, shelves: Shelves, say: Callable[[str], None], system: str | None
) -> ManagedPython:
    """Which build uv has for ``version`` (``3.11.7``); its file lies in the cache afterwards.

    uv downloads it (through its own mirror, where one is set) and checks it against the digest that
    it was released with. Raises BuildError where there is none, or none to be had from here.
    """
    url = _listed(version)
    name = _file_name(url, version)
    if shelves.offline:
        raise BuildError(f"{name} has to be fetched", hint="leave --offline away, once")
    say(f"asking uv for {name}")
    try:
        shelves.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".python-", dir=shelves.cache) as folder:
            archive = _fetched(version, Path(folder))
            python = ManagedPython(
                url=url, sha256=file_digest(archive).removeprefix("sha256:"), system=system
            )
            target = cached(artifact(python, version), shelves)
            target.parent.mkdir(parents=True, exist_ok=True)
            archive.replace(target)
    except OSError as error:
        raise cannot_write(shelves.cache, error) from error
    return python


def artifact(python: ManagedPython, version: str) -> Artifact:
    """Its archive, as ``gather`` finds and checks files. Raises InputError for a strange URL."""
    name = _file_name(python.url, version)
    file = PackageWheel(name=name, url=python.url, hashes={"sha256": python.sha256})
    return Artifact(name="python", version=version, wheel=file)


def managed_layout(
    python: ManagedPython,
    version: str,
    system: oci.Layout,
    shelves: Shelves,
    say: Callable[[str], None],
) -> oci.Layout:
    """``system`` with the Python in ``PREFIX`` above it; kept for the next build.

    Raises BuildError where the archive cannot be had, InputError for one that is not what it should.
    """
    key = f"managed {version} {python.sha256} {system.manifest_digest}"
    folder = cache_folder() / "bases" / hashlib.sha256(key.encode()).hexdigest()
    if not folder.exists():
        archive = gather([artifact(python, version)], shelves, say)["python"]
        with new_layout(folder) as scratch:
            _write(scratch, archive, version, system)
    mark_used(folder)
    return oci.read_layout(folder)


def _listed(version: str) -> str:
    """The URL that uv knows for a version, where Python's own people would get it."""
    program = [find_uv_bin(), "python", "list", _KEY.format(version=version)]
    asked = run(
        [*program, "--only-downloads", "--show-urls", "--output-format", "json", "--no-config"],
        limits=_LIST,
        env={k: v for k, v in os.environ.items() if k != "UV_PYTHON_INSTALL_MIRROR"},
    )
    try:
        rows = json.loads(asked.stdout) if asked.code == 0 else []
    except ValueError:
        rows = []
    if not rows:
        raise BuildError(f"uv knows no standalone build of Python {version}", hint=_ELSE)
    return str(rows[0]["url"])


def _fetched(version: str, folder: Path) -> Path:
    kept = folder / "archives"
    program = [find_uv_bin(), "python", "install", _KEY.format(version=version), "--no-bin"]
    done = run(
        [*program, "--no-config", "--no-progress", "--install-dir", folder / "tree"],
        limits=_INSTALL,
        env={**os.environ, "UV_PYTHON_CACHE_DIR": str(kept), "UV_PYTHON_DOWNLOADS": "manual"},
    )
    archives = [path for path in kept.glob("*") if path.is_file()]
    if done.code != 0 or len(archives) != 1:
        raise BuildError(
            f"uv could not bring Python {version}: {redact(done.stderr_tail(10))}",
            hint="check the network; UV_PYTHON_INSTALL_MIRROR names a mirror to uv",
        )
    return archives[0]


def _file_name(url: str, version: str) -> str:
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    if not re.fullmatch(rf"cpython-{re.escape(version)}\+[A-Za-z0-9._+-]{{1,150}}\.tar\.gz", name):
        raise InputError(
            f"image.python.url: {shown(name)} is not a standalone build of Python {version}",
            hint="take [tool.envlock.image.python] out of the lock if you did not build from it",
        )
    return name


def _write(folder: Path, archive: Path, version: str, system: oci.Layout) -> None:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    rows = json.loads(system.manifest)["layers"]
    for row in rows:
        source = system.blob(str(row["digest"]))
        if source is None:
            raise InputError(f"{system.folder}: layer {row['digest']} is missing", hint=_ELSE)
        place_file(source, blobs / source.name)
    layer = oci.write_layer(blobs / ".python", _entries(archive), epoch=EPOCH)
    layer.path.rename(blobs / layer.digest.removeprefix("sha256:"))
    config = oci.canonical_json(_config(system.config(), layer, version))
    (blobs / oci.sha256(config).removeprefix("sha256:")).write_bytes(config)
    oci.write_index(
        folder,
        oci.descriptor(oci.CONFIG_TYPE, oci.sha256(config), len(config)),
        [*rows, oci.descriptor(oci.LAYER_TYPE, layer.digest, layer.size_bytes)],
    )


def _config(system: Mapping[str, Any], layer: oci.Layer, version: str) -> dict[str, Any]:
    created = oci.timestamp(EPOCH)
    inside, rootfs = dict(system["config"]), dict(system["rootfs"])
    python = f"{PREFIX}/bin/python{version.rpartition('.')[0]}"
    labels = {PYTHON_LABEL: python, PYTHON_VERSION_LABEL: version}
    inside["Labels"] = {**(inside.get("Labels") or {}), **labels}
    rootfs["diff_ids"] = [*rootfs["diff_ids"], layer.digest]
    history = [*(system.get("history") or ()), {"created": created, "created_by": f"{PREFIX}"}]
    return {**system, "config": inside, "rootfs": rootfs, "history": history}


def _entries(archive: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """In the archive's order, which its digest fixes, with the folders that it leaves out."""
    made: set[str] = set()
    left = _MOST_BYTES
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for info in tar.getmembers():
                path = _path(info.name)
                for folder in (*_above(path), *([path] if info.isdir() else [])):
                    if folder not in made:
                        made.add(folder)
                        yield _folder(folder), None
                if info.isdir():
                    continue
                entry = tarfile.TarInfo(path)
                if info.issym():
                    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, _target(info), 0o777
                    yield entry, None
                    continue
                file = _file(tar, info, left)
                left -= file.size
                entry.mode, entry.size = 0o755 if file.mode & 0o100 else 0o644, file.size
                yield entry, tar.extractfile(file)
    except (tarfile.TarError, OSError, EOFError, zlib.error, KeyError) as error:
        raise InputError(f"{archive}: not a build of Python: {error}", hint=_ELSE) from error


def _file(tar: tarfile.TarFile, info: tarfile.TarInfo, room: int) -> tarfile.TarInfo:
    """The member with the content; of a hard link, the one that it leads to."""
    file = tar.getmember(info.linkname) if info.islnk() else info
    if not file.isreg() or file.size > room:
        raise tarfile.TarError(f"{shown(info.name)} is refused")
    return file


def _path(name: str) -> str:
    parts = name.split("/")
    strange = not name.isprintable() or any(part in ("", ".", "..") for part in parts)
    if parts[0] != _TOP or strange:
        raise tarfile.TarError(f"a member is called {shown(name)}")
    return "/".join([PREFIX.removeprefix("/"), *parts[1:]])


def _target(info: tarfile.TarInfo) -> str:
    """Where a symbolic link leads, which is not out of the tree."""
    folder = posixpath.dirname(info.name)
    end = posixpath.normpath(posixpath.join(folder, info.linkname))
    if not end.startswith(f"{_TOP}/") or not info.linkname.isprintable():
        raise tarfile.TarError(f"{shown(info.name)} leads to {shown(info.linkname)}")
    return info.linkname


def _above(path: str) -> list[str]:
    """The folders that a path is in, from the top."""
    return [str(parent) for parent in reversed(PurePosixPath(path).parents) if parent.name]


def _folder(path: str) -> tarfile.TarInfo:
    folder = tarfile.TarInfo(path)
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    return folder
