"""ELF files of a hundred bytes with a dynamic section, and a loader's cache. Not a test module."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

X86_64, AARCH64 = 0x3E, 0xB7
_NEEDED, _STRTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_BASE = 0x400000


def write_elf(
    path: Path,
    *,
    needed: Sequence[str] = (),
    soname: str | None = None,
    rpath: str | None = None,
    runpath: str | None = None,
    machine: int = X86_64,
    symbols: Sequence[str] = (),
) -> Path:
    """A 64-bit little-endian shared library: one loaded segment, one dynamic section."""
    strings = b"\0"
    entries: list[tuple[int, int]] = []
    wanted = [(_NEEDED, name) for name in needed]
    wanted += [
        (tag, text)
        for tag, text in ((_SONAME, soname), (_RPATH, rpath), (_RUNPATH, runpath))
        if text is not None
    ]
    for tag, text in wanted:
        entries.append((tag, len(strings)))
        strings += text.encode() + b"\0"
    for symbol in symbols:
        strings += symbol.encode() + b"\0"
    header_size, program_size = 64, 56
    dynamic_at = header_size + 2 * program_size
    dynamic_size = (len(entries) + 3) * 16
    strings_at = dynamic_at + dynamic_size
    entries += [(_STRTAB, _BASE + strings_at), (_STRSZ, len(strings)), (0, 0)]
    total = strings_at + len(strings)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, header_size, 0, 0, 64, program_size, 2, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, total, total, 4096)
    at = _BASE + dynamic_at
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, at, at, dynamic_size, dynamic_size, 8)
    body = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + load + dynamic + body + strings)
    return path


def write_cache(path: Path, libraries: Mapping[str, Path], *, old_header: bool = False) -> Path:
    """A cache as ldconfig writes it, with the header of glibc before 2.32 or without."""
    header_size, entry_size = 48, 24
    strings, entries = b"", []
    at = header_size + entry_size * len(libraries)
    for name, target in libraries.items():
        key = at + len(strings)
        strings += name.encode() + b"\0"
        value = at + len(strings)
        strings += str(target).encode() + b"\0"
        entries.append(struct.pack("=iIIIQ", 0x303, key, value, 0, 0))
    header = b"glibc-ld.so.cache1.1" + struct.pack("=II", len(entries), len(strings))
    data = header.ljust(header_size, b"\0") + b"".join(entries) + strings
    path.write_bytes((b"ld.so-1.7.0\0\0\0\0\0" if old_header else b"") + data)
    return path
