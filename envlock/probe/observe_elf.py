"""Shared libraries without loading them: the ELF dynamic section and the search of ld.so.

The search follows ld.so(8): DT_RPATH of the object and of those that loaded it (unless the object
has DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH, the cache, the default folders. Not followed: the
glibc-hwcaps folders for newer CPUs, and ``$PLATFORM``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_NEEDED, _STRTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_MULTIARCH = {0x3E: "x86_64-linux-gnu", 0xB7: "aarch64-linux-gnu", 0x15: "powerpc64le-linux-gnu"}

_FORMATS = {
    # ELF class: machine, offset of the program headers, their size and number (each as format and
    # place in the header); one program header; one dynamic entry
    2: ("H", 18, ("Q", 32), ("HH", 54), "IIQQQQQQ", "qQ"),
    1: ("H", 18, ("I", 28), ("HH", 42), "IIIIIIII", "iI"),
}


class Elf:
    """The dynamic section of one file."""

    __slots__ = ("kind", "needed", "path", "rpath", "runpath", "soname", "strings")

    def __init__(self, path: str, kind: tuple[int, int]) -> None:
        self.path, self.kind = path, kind
        self.needed, self.rpath, self.runpath, self.soname = [], [], [], None
        self.strings = (0, 0)  # offset and size of the string table in the file


def read_elf(path: str) -> Elf | None:
    """The dynamic section, or None for what is not an ELF file of this form or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return _parse(handle, path)
    except (OSError, struct.error, KeyError, IndexError):
        return None
    finally:
        os.close(handle)


def _parse(handle: int, path: str) -> Elf | None:
    head = os.pread(handle, 4096, 0)
    if head[:4] != b"\x7fELF":
        return None
    order = "<" if head[5] == 1 else ">"
    machine, machine_at, (offset, offset_at), (counts, counts_at), header, entry = _FORMATS[head[4]]
    elf = Elf(path, (head[4], struct.unpack_from(order + machine, head, machine_at)[0]))
    start = struct.unpack_from(order + offset, head, offset_at)[0]
    size, number = struct.unpack_from(order + counts, head, counts_at)
    table = head[start : start + size * number]
    if len(table) < size * number:
        table = os.pread(handle, size * number, start)
    if len(table) < size * number:
        return None
    loads, dynamic = [], None
    for values in struct.iter_unpack(order + header, table):
        if head[4] == 2:
            kind, _, at, address, _, in_file = values[:6]
        else:
            kind, at, address, _, in_file = values[:5]
        if kind == _PT_LOAD:
            loads.append((address, at, in_file))
        elif kind == _PT_DYNAMIC:
            dynamic = (at, in_file)
    if dynamic is None:
        return elf
    width = struct.calcsize(order + entry)
    raw = os.pread(handle, min(dynamic[1], 1 << 16), dynamic[0])
    raw = raw[: len(raw) // width * width]
    _fill(elf, handle, list(struct.iter_unpack(order + entry, raw)), loads)
    return elf


def _fill(
    elf: Elf, handle: int, entries: list[tuple[int, int]], loads: list[tuple[int, int, int]]
) -> None:
    tags = dict(reversed(entries))
    address = tags[_STRTAB]
    base = next(
        at + address - start for start, at, size in loads if start <= address < start + size
    )
    elf.strings = (base, tags.get(_STRSZ, 0))
    small = os.pread(handle, tags[_STRSZ], base) if tags.get(_STRSZ, 1 << 30) <= 1 << 15 else None

    def text(at: int) -> str:
        data = small[at:] if small is not None else os.pread(handle, 4096, base + at)
        return os.fsdecode(data[: data.index(b"\0")])

    for tag, value in entries:
        if tag == 0:
            break
        if tag == _NEEDED:
            elf.needed.append(text(value))
        elif tag == _SONAME:
            elf.soname = text(value)
        elif tag in (_RPATH, _RUNPATH):
            folders = [_expand(f, elf) for f in text(value).split(":") if f]
            setattr(elf, "rpath" if tag == _RPATH else "runpath", folders)


def _expand(folder: str, elf: Elf) -> str:
    origin = os.path.dirname(elf.path)
    multiarch = "lib/" + _MULTIARCH.get(elf.kind[1], "?")
    lib = multiarch if os.path.isdir("/" + multiarch) else "lib64"
    for name, value in (("ORIGIN", origin), ("LIB", lib)):
        folder = folder.replace("$" + name, value).replace("${%s}" % name, value)
    return os.path.normpath(folder)


def string_table(elf: Elf, limit: int = 4 << 20) -> bytes:
    """The bytes of the dynamic string table: names of symbols and of symbol versions."""
    with open(elf.path, "rb") as file:
        file.seek(elf.strings[0])
        return file.read(min(elf.strings[1], limit))


class Search:
    """What ld.so would find in a process started with this environment."""

    def __init__(
        self, kind: tuple[int, int], environ: Mapping[str, str], cache: str = "/etc/ld.so.cache"
    ) -> None:
        self.kind = kind
        raw = environ.get("LD_LIBRARY_PATH", "").replace(";", ":")
        # An empty element means the working folder: not the one this probe runs in.
        self.library_path = [os.path.normpath(f) for f in raw.split(":") if f]
        self.cache_path = cache
        self._cache = None
        self._elfs = {}
        self.default = _default_folders(kind)

    def elf(self, path: str) -> Elf | None:
        if path not in self._elfs:
            self._elfs[path] = read_elf(path)
        return self._elfs[path]

    def cached(self, name: str) -> list[str]:
        if self._cache is None:
            self._cache = read_cache(self.cache_path)
        return self._cache.get(name, [])

    def places(self, name: str, chain: Sequence[Elf]) -> list[tuple[str, str]]:
        """(path, how) in search order, whether the file exists or not.

        ``chain`` holds the object that needs ``name``, the one that loaded it, and so on.
        """
        if "/" in name:
            return [(name, "path")]
        found = []
        if chain and not chain[0].runpath:
            for elf in chain:
                if not elf.runpath:
                    found += [(f + "/" + name, "rpath") for f in elf.rpath]
        found += [(f + "/" + name, "ld-library-path") for f in self.library_path]
        if chain:
            found += [(f + "/" + name, "rpath") for f in chain[0].runpath]
        found += [(path, "system") for path in self.cached(name)]
        found += [(f + "/" + name, "system") for f in self.default]
        return found

    def matches(self, name: str, chain: Sequence[Elf]) -> Iterator[tuple[str, str]]:
        """The files that exist and fit this process, each once, in search order."""
        seen = set()
        for path, how in self.places(name, chain):
            identity = _identity(path)
            if identity is None or identity in seen:
                continue
            seen.add(identity)
            elf = self.elf(path)
            if elf is not None and elf.kind == self.kind:
                yield path, how

    def first(self, name: str, chain: Sequence[Elf]) -> tuple[str, str] | None:
        return next(self.matches(name, chain), None)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


class Loaded:
    """The libraries of one process, in the order in which ld.so would map them."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.by_name = {}  # every name it can be asked by -> (path, how)
        self.chains = {}  # path -> the objects that lead to it
        self.needed_as = {}  # name in a DT_NEEDED -> chain of the first that needs it
        self.missing = []

    def load(self, path: str, how: str, chain: Sequence[Elf] = ()) -> None:
        """Map a file and, breadth first, whatever it needs."""
        queue = [(path, how, tuple(chain))]
        while queue:
            path, how, chain = queue.pop(0)
            elf = self.search.elf(path)
            if elf is None or path in self.chains:
                continue
            chain = (elf, *chain)
            self.chains[path] = chain
            self._register(path, how)
            for name in elf.needed:
                self.needed_as.setdefault(name, chain)
                if name in self.by_name:
                    continue
                found = self.search.first(name, chain)
                if found is None:
                    self.missing.append(name)
                    continue
                self.by_name[name] = found
                self._register(*found)
                queue.append((found[0], found[1], chain))

    def _register(self, path: str, how: str) -> None:
        """From here on, the file answers to its own name and to its soname."""
        self.by_name.setdefault(os.path.basename(path), (path, how))
        soname = self.search.elf(path).soname
        if soname:
            self.by_name.setdefault(soname, (path, how))


def read_cache(path: str) -> dict[str, list[str]]:
    """Name -> paths of the loader's cache (the format of glibc 2.2 and newer), in its order."""
    found = {}
    try:
        with open(path, "rb") as file:
            data = file.read(16 << 20)
    except OSError:
        return found
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        return found
    data = data[start:]
    count = struct.unpack_from("=I", data, 20)[0]
    table = data[48 : 48 + 24 * count]
    for _, key, value, _, hwcap in struct.iter_unpack("=iIIIQ", table[: len(table) // 24 * 24]):
        if hwcap:  # a copy for newer CPUs: see the head of this file
            continue
        name = data[key : data.index(b"\0", key)]
        target = data[value : data.index(b"\0", value)]
        found.setdefault(os.fsdecode(name), []).append(os.fsdecode(target))
    return found


def _default_folders(kind: tuple[int, int]) -> list[str]:
    multiarch = _MULTIARCH.get(kind[1]) if kind[0] == 2 else None
    folders = ["/lib/" + multiarch, "/usr/lib/" + multiarch] if multiarch else []
    folders += ["/lib64", "/usr/lib64"] if kind[0] == 2 else []
    return [*folders, "/lib", "/usr/lib"]
