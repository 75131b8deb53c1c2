"""The files of a base, for building upon it without running it: config, layers, where Python is.

Its layers are taken as they are, by digest; of what is in them only headers are read, to find the
interpreter, and the one file that says its version.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envlock.errors import BuildError, InputError
from envlock.image.oci import Layout
from envlock.image.plan import Base
from envlock.image.tree import stack
from envlock.image.unpack import Entry, Link, Places

PYTHON_LABEL = "org.envlock.base.python"
PYTHON_VERSION_LABEL = "org.envlock.base.python-version"
_DPKG = "var/lib/dpkg/status"
_MOST_LINKS = 40
_ANEW = "make the base anew (where envlock keeps it: remove that folder), or name another --base"
_HOW_ELSE = "build with --engine docker, which asks the interpreter itself, or name another --base"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseLayer:
    path: Path
    digest: str
    """Of the blob, which may be compressed."""
    size_bytes: int
    media_type: str
    diff_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Foundation:
    base: Base
    folder: Path
    """The layout that holds it."""
    config: Mapping[str, Any]
    layers: Sequence[BaseLayer]

    @property
    def env(self) -> dict[str, str]:
        return dict(item.partition("=")[::2] for item in self.config["config"].get("Env") or ())

    def environment(self, places: Places, version: str) -> dict[str, Entry]:
        """The files that make ``places`` an environment of the base's Python.

        Raises BuildError when that is not Python ``version``, or when there is none.
        """
        files = _Files(self.layers)
        interpreter = self._interpreter(files, places)
        found = self._version(files, interpreter)
        if found != version:
            raise BuildError(
                f"the base has Python {found or '(of a version that nothing in it says)'}, "
                f"the lock needs {version}",
                hint="name a base with exactly the lock's Python: --base REF"
                if found
                else _HOW_ELSE,
            )
        files.check_folder(posixpath.dirname(places.prefix))
        return _environment(places, posixpath.dirname(interpreter), version)

    def _interpreter(self, files: _Files, places: Places) -> str:
        name = self.base.python
        path = self.env.get("PATH", "")
        wanted = [name] if name.startswith("/") else [f"{f}/{name}" for f in path.split(":") if f]
        for candidate in wanted:
            real = files.real(candidate)
            if real is None:
                continue
            program = posixpath.join(posixpath.dirname(real), places.python)
            if files.real(program) is not None:
                return program
        raise BuildError(f"the base has no {places.python} as its {name}", hint=_HOW_ELSE)

    def _version(self, files: _Files, interpreter: str) -> str | None:
        labels: Mapping[str, str] = self.config["config"].get("Labels") or {}
        if PYTHON_VERSION_LABEL in labels:
            return labels[PYTHON_VERSION_LABEL]
        if interpreter.startswith("/usr/local/") and "PYTHON_VERSION" in self.env:
            return self.env["PYTHON_VERSION"]  # the official images set it
        package = re.escape(posixpath.basename(interpreter))
        found = re.search(
            rf"^Package: {package}-minimal\n(?:.+\n)*?Version: ([0-9]+\.[0-9]+\.[0-9]+)",
            files.text(_DPKG),
            re.MULTILINE,
        )
        return found[1] if found else None


def _environment(places: Places, home: str, version: str) -> dict[str, Entry]:
    """What makes a folder a virtual environment: no activate scripts, no pip. As ``install.py``."""
    settings = (f"home = {home}", "include-system-site-packages = false", f"version = {version}")
    text = "".join(f"{line}\n" for line in settings)
    links = {
        places.python: f"{home}/{places.python}",
        "python": places.python,
        "python3": places.python,
    }
    return {
        f"{places.prefix}/pyvenv.cfg": Entry(content=text.encode("utf-8")),
        **{f"{places.prefix}/bin/{n}": Entry(content=Link(target=t)) for n, t in links.items()},
    }


def read_foundation(layout: Layout, base: Base) -> Foundation:
    """Raises InputError for a layout whose parts do not fit each other."""
    config = layout.config()
    if (config.get("os"), config.get("architecture")) != ("linux", "amd64"):
        raise InputError("the base is not for Linux on x86_64", hint="name another --base")
    layers = read_layers(layout)
    return Foundation(base=base, folder=layout.folder, config=config, layers=layers)


def read_layers(layout: Layout) -> list[BaseLayer]:
    """All layers of an image, each with the digest that it claims. Raises InputError."""
    try:
        rows = json.loads(layout.manifest)["layers"]
        diff_ids = layout.config()["rootfs"]["diff_ids"]
        return [_layer(layout, row, one) for row, one in zip(rows, diff_ids, strict=True)]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{layout.folder}: not the layout of an image: {error}", hint=_ANEW
        ) from error


def _layer(layout: Layout, row: Mapping[str, Any], diff_id: str) -> BaseLayer:
    path = layout.blob(str(row["digest"]))
    if path is None or (path.stat().st_size, file_digest(path)) != (row["size"], row["digest"]):
        raise InputError(
            f"{layout.folder}: layer {row['digest']} is missing or altered", hint=_ANEW
        )
    return BaseLayer(
        path=path,
        digest=row["digest"],
        size_bytes=row["size"],
        media_type=row["mediaType"],
        diff_id=diff_id,
    )


def file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


class _Files:
    """What is where in a stack of layers, by their headers. Paths are without the first slash."""

    def __init__(self, layers: Sequence[BaseLayer]) -> None:
        self._where: dict[str, tuple[Path, tarfile.TarInfo]] = {}
        for layer in layers:
            self._stack(layer.path)

    def real(self, path: str) -> str | None:
        """Where a path leads in the end; None when there is nothing."""
        done: list[str] = []
        left = [part for part in path.split("/") if part]
        for _ in range(_MOST_LINKS * 8):
            if not left:
                return "/" + "/".join(done)
            part = left.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                done = done[:-1]
                continue
            _, info = self._where.get("/".join([*done, part]), (None, None))
            if info is None:
                return None
            if info.issym():
                left = [*info.linkname.split("/"), *left]
                done = [] if info.linkname.startswith("/") else done
                continue
            done.append(part)
        return None

    def text(self, path: str) -> str:
        """Content of a file; empty when it is not there."""
        layer, info = self._where.get(path, (None, None))
        if layer is None or info is None or not info.isreg():
            return ""
        with tarfile.open(layer) as tar:
            data = tar.extractfile(info)
            return data.read(64 << 20).decode("utf-8", "replace") if data else ""

    def check_folder(self, path: str) -> None:
        """Raises BuildError when the path is there and is no plain folder: layers would not land."""
        for part in (path, *(str(p) for p in Path(path).parents)):
            _, info = self._where.get(part.removeprefix("/"), (None, None))
            if info is not None and not info.isdir():
                raise BuildError(f"in the base {part} is not a folder", hint=_HOW_ELSE)

    def _stack(self, layer: Path) -> None:
        try:
            with tarfile.open(layer) as tar:
                stack(self._where, tar, lambda info: (layer, info))
        except (tarfile.TarError, OSError, EOFError) as error:
            raise InputError(
                f"{layer}: a layer of the base cannot be read: {error}", hint=_ANEW
            ) from error
        for name in list(self._where):  # a layer need not list folders
            folder = posixpath.dirname(name)
            while folder and folder not in self._where:
                implied = tarfile.TarInfo(folder)
                implied.type = tarfile.DIRTYPE
                self._where[folder] = (layer, implied)
                folder = posixpath.dirname(folder)
