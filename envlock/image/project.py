"""The user's own project as the uppermost layer: the files of a folder, less what .dockerignore names.

The rules of .dockerignore are Docker's: one pattern a line, ``!`` takes back, the last that fits
decides, and what fits a folder fits all below it.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from envlock.errors import InputError
from envlock.image.unpack import Entry, Link
from envlock.lock.files import read_bounded
from envlock.lock.strict import shown

PLACE = "/workspace"
"""Where it stands in the image, and where programs start."""
_MOST_BYTES, _MOST_FILES = 512 << 20, 50_000
_ALWAYS = ".git"
"""A history is no part of a project's state, and holds what was deleted from it for a reason."""
_HINT = "name what does not belong into the image in .dockerignore"

Rule = tuple[bool, re.Pattern[str]]
"""Whether it leaves out, and what."""


def read_project(folder: Path) -> Mapping[str, Entry]:
    """Path in the image -> file or link. Raises InputError for what an image should not hold."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="give the folder of the project")
    ignore = folder / ".dockerignore"
    text = read_bounded(ignore, limit=1 << 20).decode("utf-8", "replace") if ignore.exists() else ""
    rules = parse_rules(text)
    entries: dict[str, Entry] = {}
    size = 0
    for name, path in _walk(folder, rules):
        entry = _entry(name, path)
        size += len(entry.content) if isinstance(entry.content, bytes) else 0
        entries[f"{PLACE}/{name}"] = entry
        if size > _MOST_BYTES or len(entries) > _MOST_FILES:
            raise InputError(
                f"{folder} holds more than {_MOST_BYTES >> 20} MiB or {_MOST_FILES} files",
                hint=_HINT,
            )
    return entries


def parse_rules(text: str) -> Sequence[Rule]:
    rules = []
    for line in text.removeprefix("\ufeff").splitlines():
        pattern = line.strip()
        if not pattern or line.startswith("#"):
            continue
        kept = pattern.startswith("!")
        clean = posixpath.normpath(pattern.removeprefix("!").strip().lstrip("/") or ".")
        if clean != ".":
            rules.append((not kept, re.compile(_expression(clean))))
    return rules


def is_left_out(name: str, rules: Sequence[Rule]) -> bool:
    out = False
    for leaves_out, pattern in rules:
        if pattern.fullmatch(name):
            out = leaves_out
    return out


def _expression(pattern: str) -> str:
    """As Go's ``filepath.Match``, with ``**`` for any number of folders; and all below a match."""
    out, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        bracket = re.match(r"\[(\^?)((?:\\.|[^\]\\])+)\]", rest)
        if rest.startswith("**/"):
            out, at = out + "(?:.*/)?", at + 3
        elif rest.startswith("**"):
            out, at = out + ".*", at + 2
        elif rest[0] in "*?":
            out, at = out + ("[^/]*" if rest[0] == "*" else "[^/]"), at + 1
        elif bracket:
            inside = re.sub(r"([\[&~|])", r"\\\1", bracket[2])
            out, at = f"{out}[{bracket[1]}{inside}]", at + bracket.end()
        elif rest[0] == "\\" and len(rest) > 1:
            out, at = out + re.escape(rest[1]), at + 2
        else:
            out, at = out + re.escape(rest[0]), at + 1
    return f"{out}(?:/.*)?"


def _walk(folder: Path, rules: Sequence[Rule]) -> Iterator[tuple[str, Path]]:
    takes_back = any(not leaves_out for leaves_out, _ in rules)
    for place, folders, files in os.walk(folder, onerror=_refuse_unreadable):
        inside = Path(place).relative_to(folder)
        folders[:] = sorted(
            name
            for name in folders
            if (inside / name).as_posix() != _ALWAYS
            # A later rule may take something below it back.
            and (takes_back or not is_left_out((inside / name).as_posix(), rules))
        )
        linked = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in sorted([*files, *linked]):
            path = (inside / name).as_posix()
            if path != _ALWAYS and not is_left_out(path, rules):
                yield path, Path(place) / name


def _refuse_unreadable(error: OSError) -> NoReturn:
    raise InputError(
        f"project: {error.filename}: cannot be read: {error.strerror}",
        hint=f"make it readable, or {_HINT}",
    )


def _entry(name: str, path: Path) -> Entry:
    if not name.isprintable():  # which bytes that are no UTF-8 are not either
        raise InputError(f"project: {shown(name)}: not a plain file name", hint=_HINT)
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        target = path.readlink().as_posix()
        end = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        if target.startswith("/") or end.startswith("../") or not target.isprintable():
            raise InputError(f"project: {shown(name)}: a link that leads outside", hint=_HINT)
        return Entry(content=Link(target=target), owner="the project")
    if not stat.S_ISREG(mode):
        raise InputError(f"project: {shown(name)}: neither a file nor a link", hint=_HINT)
    data = read_bounded(path, limit=_MOST_BYTES)
    return Entry(content=data, executable=bool(mode & 0o100), owner="the project")
