"""One wheel file, checked before anything of it is used: its bytes, its name, its members, RECORD.

Follows the binary distribution format of packaging.python.org. What a wheel may hold is decided by
grammar: regular files with plain relative names, each once, each in RECORD with hash and size.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import posixpath
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, NoReturn, cast

from installer.records import RecordEntry
from installer.sources import WheelSource
from installer.utils import parse_metadata_file
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envlock.errors import InputError
from envlock.image.fetch import has_hashes
from envlock.image.plan import Artifact
from envlock.lock.strict import shown

_MOST_FILES = 500_000
_MOST_BYTES = 64 << 30
_LONGEST_PATH, _LONGEST_NAME = 1024, 255
"""Bytes of a path in an image, and of one name in it (Linux, NAME_MAX)."""
_LONGEST_RECORD, _LONGEST_NOTE = 64 << 20, 1 << 20
_ALGORITHMS = ("sha256", "sha384", "sha512")
_NOT_INSTALLED = ("RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json")
"""In .dist-info: written anew, or notes of an installer, which no wheel should bring."""
_PLATFORM = re.compile(r"any|(?:manylinux[0-9_]+_|linux_)x86_64", re.ASCII)
_ENTRY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", re.ASCII)
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_ENTRY = re.compile(rf"(?P<module>{_DOTTED})\s*:\s*(?P<attribute>{_DOTTED})\s*(?:\[[^\]]*\]\s*)?")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What reading a zip raises for a damaged file, an unknown compression, a password."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One file of a wheel, as RECORD and the archive agree that it is."""

    wheel: CheckedWheel
    info: zipfile.ZipInfo
    hash: str
    """``algorithm=value``, as in RECORD."""
    executable: bool

    @property
    def size_bytes(self) -> int:
        return self.info.file_size

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Its content; raises InputError at the end when it is not what RECORD says."""
        try:
            with self.wheel.archive.open(self.info) as file:
                content = _Content(self, file)
                yield cast("IO[bytes]", content)
                content.finish()
        except _DAMAGED as error:
            self.wheel.refuse(f"{shown(self.info.filename)} cannot be unpacked: {error}")

    def read(self) -> bytes:
        with self.open() as file:
            return file.read()


class _Content:
    """A member while it is read: just enough of a file for copying it, hashed on the way."""

    def __init__(self, member: Member, file: IO[bytes]) -> None:
        algorithm, _, self._wanted = member.hash.partition("=")
        self._member, self._file, self._digest = member, file, hashlib.new(algorithm)

    def read(self, size: int = -1) -> bytes:
        name = shown(self._member.info.filename)
        try:
            data = self._file.read(size)
        except _DAMAGED as error:
            self._member.wheel.refuse(f"{name} cannot be unpacked: {error}")
        if len(data) < size:
            self._member.wheel.refuse(f"{name} is cut off")
        self._digest.update(data)
        return data

    def finish(self) -> None:
        more = self._file.read(1)  # at its end zipfile compares the checksum
        if more or _record_value(self._digest.digest()) != self._wanted:
            name = shown(self._member.info.filename)
            self._member.wheel.refuse(f"{name} is not the file that RECORD names")


class Contents(io.RawIOBase):
    """A member on its way through ``installer``, which only hands it on: opened when it is needed."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member = member


class CheckedWheel(WheelSource):
    """Made by ``open_wheel``. Not for two threads at once."""

    def __init__(self, artifact: Artifact, file: BinaryIO) -> None:
        self.artifact = artifact
        _check_hashes(artifact, file)
        _check_name(artifact)
        try:
            self.archive = zipfile.ZipFile(file)
        except (*_DAMAGED, ValueError) as error:
            self.refuse(f"it is no wheel: {error}")
        self._infos = self._plain_files()
        top = self._dist_info()
        super().__init__(*top.rpartition(".")[0].rsplit("-", 1))
        self._check_notes()
        self.members, self.absent = self._recorded()

    def refuse(self, why: str) -> NoReturn:
        raise _refused(self.artifact, why)

    @property
    def dist_info_filenames(self) -> list[str]:
        start = f"{self.dist_info_dir}/"
        return [name.removeprefix(start) for name in self._infos if name.startswith(start)]

    def read_dist_info(self, filename: str) -> str:
        info = self._infos.get(f"{self.dist_info_dir}/{filename}")
        if info is None:
            self.refuse(f"it has no {self.dist_info_dir}/{filename}")
        if info.file_size > (_LONGEST_RECORD if filename == "RECORD" else _LONGEST_NOTE):
            self.refuse(f"{filename} in the archive is too large")
        try:
            return self.archive.read(info).decode("utf-8")
        except (*_DAMAGED, UnicodeDecodeError) as error:
            self.refuse(f"{filename} cannot be read: {error}")

    def validate_record(self) -> None:
        """Done: names and sizes when the wheel was opened, each content when it is read."""

    def get_contents(self) -> Iterator[tuple[tuple[str, str, str], BinaryIO, bool]]:
        for path, member in self.members.items():
            row = (path, member.hash, str(member.size_bytes))
            yield row, cast("BinaryIO", Contents(member)), member.executable

    def entry_points(self) -> dict[str, tuple[str, str]]:
        """Script name -> module and attribute; raises InputError for what is not one."""
        if "entry_points.txt" not in self.dist_info_filenames:
            return {}
        scripts: dict[str, tuple[str, str]] = {}
        wanted = False
        for line in self.read_dist_info("entry_points.txt").splitlines():
            text = line.strip()
            if text.startswith("["):
                wanted = text in ("[console_scripts]", "[gui_scripts]")
            elif wanted and text and not text.startswith(("#", ";")):
                name, _, value = (part.strip() for part in text.partition("="))
                entry = _ENTRY.fullmatch(value)
                if not _ENTRY_NAME.fullmatch(name) or entry is None:
                    self.refuse(f"not an entry point for a script: {shown(text)}")
                scripts[name] = (entry["module"], entry["attribute"])
        return scripts

    def _plain_files(self) -> dict[str, zipfile.ZipInfo]:
        files: dict[str, zipfile.ZipInfo] = {}
        infos = self.archive.infolist()
        if len(infos) > _MOST_FILES or sum(info.file_size for info in infos) > _MOST_BYTES:
            self.refuse("it holds too much")
        for info in infos:
            # Before zipfile changes it: a name is cut at NUL, and takes the system's separators.
            name = info.orig_filename
            fault = _name_fault(name.removesuffix("/"))
            kind = stat.S_IFMT(info.external_attr >> 16)
            if fault is None and kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                fault = "a link or a device"
            if fault is None and name in files:
                fault = "there twice"
            if fault is not None:
                self.refuse(f"archive member {shown(name)}: {fault}")
            if not name.endswith("/"):
                files[name] = info
        return files

    def _dist_info(self) -> str:
        tops = {name.partition("/")[0] for name in self._infos}
        found = sorted(top for top in tops if top.endswith(".dist-info"))
        if len(found) != 1 or not self._is_ours(*found[0].rpartition(".")[0].rpartition("-")[::2]):
            self.refuse(f"its .dist-info folder is not of {self._title()}: {shown(found)}")
        return found[0]

    def _check_notes(self) -> None:
        metadata = parse_metadata_file(self.read_dist_info("METADATA"))
        if not self._is_ours(str(metadata["Name"]), str(metadata["Version"])):
            self.refuse(f"its METADATA is not of {self._title()}")
        notes = parse_metadata_file(self.read_dist_info("WHEEL"))
        if not str(notes["Wheel-Version"]).startswith("1."):
            self.refuse(f"Wheel-Version {shown(notes['Wheel-Version'])} is not known")
        # Platforms are rewritten by tools that repair wheels, the rest is not.
        inside = {tuple(str(tag).split("-")[:2]) for tag in notes.get_all("Tag", [])}
        named = {
            (tag.interpreter, tag.abi)
            for tag in parse_wheel_filename(self.artifact.wheel.filename)[3]
        }
        if inside != named:
            self.refuse(f"its tags are not those of its name: {shown(sorted(inside))}")

    def _recorded(self) -> tuple[dict[str, Member], list[tuple[str, str, str]]]:
        """Every file with its row of RECORD; and rows of files that are not there."""
        rows = self._rows()
        members: dict[str, Member] = {}
        for name, info in self._infos.items():
            folder, _, last = name.rpartition("/")
            row = rows.pop(name, None)
            own = folder == self.dist_info_dir and last in _NOT_INSTALLED
            if own or is_bytecode(name):
                continue
            if row is None:
                self.refuse(f"{shown(name)} is not in RECORD")
            if row[1].partition("=")[0] not in _ALGORITHMS or row[2] != str(info.file_size):
                self.refuse(f"RECORD has no sound hash and size for {shown(name)}")
            executable = bool(info.external_attr >> 16 & 0o111)
            members[name] = Member(wheel=self, info=info, hash=row[1], executable=executable)
        return members, [row for row in rows.values() if not is_bytecode(row[0])]

    def _rows(self) -> dict[str, tuple[str, str, str]]:
        rows: dict[str, tuple[str, str, str]] = {}
        for row in csv.reader(self.read_dist_info("RECORD").splitlines()):
            if row and (len(row) != 3 or row[0] in rows):
                self.refuse(f"RECORD: not a row, or there twice: {shown(row)}")
            if row and (fault := _name_fault(row[0])):
                self.refuse(f"RECORD: {shown(row[0])}: {fault}")
            if row:
                rows[row[0]] = (row[0], row[1], row[2])
        return rows

    def _is_ours(self, name: str, version: str) -> bool:
        try:
            same = Version(version) == Version(self.artifact.version)
        except InvalidVersion:
            return False
        return same and canonicalize_name(name) == canonicalize_name(self.artifact.name)

    def _title(self) -> str:
        return f"{self.artifact.name} {self.artifact.version}"


@contextlib.contextmanager
def open_wheel(path: Path, artifact: Artifact) -> Iterator[CheckedWheel]:
    """Open, hash, and check from one file handle. Raises InputError that names the package."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}", hint="check who may read it"
        ) from error
    with file:
        yield CheckedWheel(artifact, file)


def is_bytecode(name: str) -> bool:
    """Compiled from sources that are beside it: it would make a wheel's files differ from day to day."""
    return "__pycache__" in name.split("/")[:-1]


def record_row(path: str, data: bytes) -> RecordEntry:
    value = _record_value(hashlib.sha256(data).digest())
    return RecordEntry.from_elements(path, f"sha256={value}", str(len(data)))


def _record_value(digest: bytes) -> str:
    """As RECORD writes it."""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _check_hashes(artifact: Artifact, file: BinaryIO) -> None:
    if not has_hashes(file, artifact.wheel.hashes):
        raise _refused(artifact, "it is not the file that the lock names (its hash differs)")
    file.seek(0)


def _check_name(artifact: Artifact) -> None:
    filename = artifact.wheel.filename
    try:
        name, version, _, tags = parse_wheel_filename(filename)
    except InvalidWheelFilename as error:
        raise _refused(artifact, f"not the name of a wheel: {error}") from error
    if name != canonicalize_name(artifact.name) or version != Version(artifact.version):
        raise _refused(artifact, f"its name says {name} {version}")
    if not any(_PLATFORM.fullmatch(tag.platform) for tag in tags):
        raise _refused(artifact, "it is not for Linux with glibc on x86_64")


def _name_fault(name: str) -> str | None:
    parts = name.split("/")
    if name.startswith("/") or "\\" in name:
        return "not a relative path with slashes"
    if any(part in ("", ".", "..") for part in parts) or posixpath.normpath(name) != name:
        return "a path with empty or dotted parts"
    if not name.isprintable():
        return "a control character in its path"
    if any(len(part.encode("utf-8", "replace")) > _LONGEST_NAME for part in parts):
        return "a part of its path is too long"
    return "its path is too long" if len(name.encode("utf-8", "replace")) > _LONGEST_PATH else None


def _refused(artifact: Artifact, why: str) -> InputError:
    return InputError(
        f"{artifact.name}: {artifact.wheel.filename} is refused: {why}",
        hint="get the file again from where the lock came from; do not build from this one",
    )
