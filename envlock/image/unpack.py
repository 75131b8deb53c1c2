"""From wheels to the entries of a layer: paths in the image, decided by ``installer``, not yet read.

``installer`` sorts a wheel's members into the schemes of an environment; the destination here keeps
where each would go. Contents are read once, when the layer is written.
"""

from __future__ import annotations

import csv
import io
import os
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, BinaryIO, TypeAlias

import installer
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import RecordEntry

from envlock.image.wheel import CheckedWheel, Contents, Member, record_row
from envlock.lock.strict import shown

SCRIPT = """\
#!{python}
# -*- coding: utf-8 -*-
import sys
from {module} import {name}
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit({attribute}())
"""
"""Of an entry point; byte for byte what uv writes, so that both ways of building give one tree."""
_NOTES = {"INSTALLER": b"envlock\n"}
_PLACEHOLDER = b"#!python"


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    target: str


Content: TypeAlias = Member | bytes | Link


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file or a link of a layer. Folders follow from paths."""

    content: Content
    executable: bool = False
    owner: str = ""
    """The package it is of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where an environment keeps what; absolute paths in the image."""

    prefix: str
    python: str
    """``python3.11``."""

    @property
    def site(self) -> str:
        return f"{self.prefix}/lib/{self.python}/site-packages"

    @property
    def interpreter(self) -> str:
        return f"{self.prefix}/bin/python"

    def of_scheme(self, scheme: str, package: str) -> str:
        return {
            "purelib": self.site,
            "platlib": self.site,
            "scripts": f"{self.prefix}/bin",
            "headers": f"{self.prefix}/include/site/{self.python}/{package}",
            "data": self.prefix,
        }[scheme]

    def reserved(self) -> frozenset[str]:
        """What makes the folder an environment; no wheel may bring it."""
        names = ("bin/python", "bin/python3", f"bin/{self.python}", "pyvenv.cfg")
        return frozenset(f"{self.prefix}/{name}" for name in names)


@dataclass(kw_only=True, slots=True)
class Tree:
    """The entries of one layer by absolute path."""

    entries: dict[str, Entry] = field(default_factory=dict)
    contested: list[str] = field(default_factory=list)
    """For people: paths that two packages bring with different contents."""

    def add(self, path: str, entry: Entry) -> None:
        """The later package wins, as with pip; who loses is written down."""
        before = self.entries.get(path)
        if before is not None and not _same(before.content, entry.content):
            self.contested.append(f"{path}: of {before.owner} and {entry.owner}; {entry.owner}'s")
        self.entries[path] = entry


class _Destination(WheelDestination):
    def __init__(self, wheel: CheckedWheel, places: Places, tree: Tree) -> None:
        self._wheel, self._places, self._tree = wheel, places, tree
        self._package = wheel.artifact.name

    def write_script(
        self,
        name: str,
        module: str,
        attr: str,
        section: object,  # noqa: ARG002 - all run the same way here
    ) -> RecordEntry:
        text = SCRIPT.format(
            python=self._places.interpreter,
            module=module,
            name=attr.partition(".")[0],
            attribute=attr,
        )
        path = f"{self._places.prefix}/bin/{name}"
        return self._generated(path, text.encode("utf-8"), executable=True)

    def write_file(
        self,
        scheme: str,
        path: str | os.PathLike[str],
        stream: BinaryIO,
        is_executable: bool,  # noqa: FBT001 - the interface's
    ) -> RecordEntry:
        target = posixpath.join(self._places.of_scheme(scheme, self._package), os.fspath(path))
        if not isinstance(stream, Contents):
            return self._generated(target, stream.read(), executable=False)
        member = stream.member
        if target in self._places.reserved():
            self._wheel.refuse(f"{shown(os.fspath(path))} would replace a part of the environment")
        if scheme == "scripts":
            return self._generated(target, self._with_interpreter(member), executable=True)
        entry = Entry(content=member, executable=is_executable, owner=self._package)
        self._tree.add(target, entry)
        return RecordEntry.from_elements(self._row(target), member.hash, str(member.size_bytes))

    def finalize_installation(
        self,
        scheme: str,  # noqa: ARG002 - both that it can be are one folder
        record_file_path: str,
        records: Iterable[tuple[str, RecordEntry]],
    ) -> None:
        rows = sorted([*(entry.to_row() for _, entry in records), *self._wheel.absent])
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        path = f"{self._places.site}/{record_file_path}"
        self._tree.add(path, Entry(content=text.getvalue().encode("utf-8"), owner=self._package))

    def _generated(self, path: str, data: bytes, *, executable: bool) -> RecordEntry:
        if path in self._places.reserved():
            self._wheel.refuse(f"its script {shown(path)} would replace a part of the environment")
        self._tree.add(path, Entry(content=data, executable=executable, owner=self._package))
        return record_row(self._row(path), data)

    def _with_interpreter(self, member: Member) -> bytes:
        data = member.read()
        if data.startswith(_PLACEHOLDER):
            _, _, rest = data.partition(b"\n")
            return b"#!" + self._places.interpreter.encode() + b"\n" + rest
        return data

    def _row(self, path: str) -> str:
        return posixpath.relpath(path, self._places.site)


def unpack(wheel: CheckedWheel, places: Places, tree: Tree) -> None:
    """Add a wheel's files to a tree. Raises InputError that names the package."""
    wheel.entry_points()  # by our grammar, before installer reads them with a looser one
    try:
        installer.install(wheel, _Destination(wheel, places, tree), additional_metadata=_NOTES)
    except (InstallerError, ValueError, AssertionError, KeyError) as error:
        wheel.refuse(f"it cannot be unpacked: {error}")


def tar_entries(tree: Mapping[str, Entry]) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Sorted by path, each folder before what is in it; contents are checked while they are read.

    The tree has no ``clashes``.
    """
    nodes: dict[str, Entry | None] = dict.fromkeys(p for path in tree for p in _parents(path))
    nodes.update((path.removeprefix("/"), entry) for path, entry in tree.items())
    for name, entry in sorted(nodes.items()):
        info = tarfile.TarInfo(name)
        info.mode = 0o755
        if entry is None:
            info.type = tarfile.DIRTYPE
            yield info, None
        elif isinstance(entry.content, Link):
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.content.target, 0o777
            yield info, None
        else:
            info.type = tarfile.REGTYPE
            info.mode = 0o755 if entry.executable else 0o644
            yield from _with_content(info, entry.content)


def _with_content(
    info: tarfile.TarInfo, content: Member | bytes
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    if isinstance(content, bytes):
        info.size = len(content)
        yield info, io.BytesIO(content)
        return
    info.size = content.size_bytes
    with content.open() as file:
        yield info, file


def clashes(tree: Mapping[str, Entry]) -> Sequence[str]:
    """Paths that are a file for one package and a folder for another."""
    folders = {f"/{parent}" for path in tree for parent in _parents(path)}
    return sorted(path for path in tree if path in folders)


def _parents(path: str) -> Iterator[str]:
    parent = posixpath.dirname(path.removeprefix("/"))
    while parent:
        yield parent
        parent = posixpath.dirname(parent)


def _same(left: Content, right: Content) -> bool:
    if isinstance(left, Member) and isinstance(right, Member):
        return left.hash == right.hash
    return left == right
