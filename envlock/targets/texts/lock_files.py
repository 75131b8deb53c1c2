"""uv.lock, poetry.lock and the pylock.toml of other tools, read as ``choices`` says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envlock.errors import InputError
from envlock.lock.strict import parse_toml
from envlock.targets.texts.choices import Choices, holds
from envlock.targets.texts.pip_lists import with_torch
from envlock.targets.texts.tree import MAX_PACKAGES, Packages, Tree

UV, POETRY, PYLOCK = "uv.lock", "poetry.lock", "pylock.toml"

Entry = Mapping[str, Any]


def kind_of(text: str) -> str | None:
    """Which lock a TOML text is, by the lines that only it has."""
    lines = {line.rstrip() for line in text.split("\n")}
    starts = {line.partition(" ")[0] for line in lines}
    if "lock-version" in starts and ("[[packages]]" in lines or "packages" in starts):
        return PYLOCK
    if "[[package]]" not in lines:
        return None
    if "content-hash" in starts:
        return POETRY
    return UV if "version" in starts and "requires-python" in starts else None


def parse_lock_text(text: str, kind: str) -> Tree:
    """Raises InputError when the text is not a lock of this kind."""
    document = parse_toml(text, kind)
    entries = document.get("packages" if kind == PYLOCK else "package")
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        raise InputError(f"{kind}: the list of packages is not a list of tables with names")
    if len(entries) > MAX_PACKAGES:
        raise InputError(f"{kind}: too many packages (at most {MAX_PACKAGES})")
    found = Choices()
    {UV: _read_uv, POETRY: _read_poetry, PYLOCK: _read_pylock}[kind](entries, found)
    packages = Packages(kind)
    for name in found.names():
        packages.add(name, found.version(name))
    return with_torch({}, packages, complete=True)


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _marker(table: Entry, key: str = "marker") -> bool | None:
    value = table.get(key)
    return holds(value) if isinstance(value, str) else True


# --- pylock.toml and poetry.lock: flat lists -----------------------------------------------------


def _read_pylock(entries: Sequence[Entry], found: Choices) -> None:
    for entry in entries:
        answer = _marker(entry)
        if answer is not False:
            found.add(entry["name"], entry.get("version"), certain=answer is True)


def _read_poetry(entries: Sequence[Entry], found: Choices) -> None:
    for entry in entries:
        answer = _marker(entry, "markers")
        groups = _list(entry.get("groups", ["main"]))
        main = "main" in groups and entry.get("category", "main") == "main"
        wanted = main and not entry.get("optional", False)
        if answer is not False:
            by_group = isinstance(entry.get("markers"), dict)
            found.add(
                entry["name"],
                entry.get("version"),
                certain=answer is True and wanted and not by_group,
            )


# --- uv.lock: a graph ----------------------------------------------------------------------------


def _read_uv(entries: Sequence[Entry], found: Choices) -> None:
    """Follow the dependencies from the project, first those that hold without a condition."""
    by_name: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if _fork_holds(entry):
            by_name[entry["name"]].append(entry)
    roots = [entry for entry in entries if _is_project(entry)]
    if not roots:
        for entry in entries:
            found.add(entry["name"], entry.get("version"), certain=True)
        return
    seen: set[tuple[int, str, bool]] = set()
    todo = [(root, "", True) for root in roots]
    while todo:
        entry, extra, certain = todo.pop()
        if (id(entry), extra, certain) in seen:
            continue
        seen.add((id(entry), extra, certain))
        if not _is_project(entry):
            found.add(entry["name"], entry.get("version"), certain=certain)
        for target, wanted, sure in _next(entry, extra, by_name):
            todo.append((target, wanted, certain and sure))


def _next(
    entry: Entry, extra: str, by_name: Mapping[str, Sequence[Entry]]
) -> Iterator[tuple[Entry, str, bool]]:
    """What an entry with one of its extras brings: entry, extra, whether without a condition."""
    for edge, sure in _edges(entry, extra):
        answer = _marker(edge)
        if answer is False:
            continue
        for target in _targets(edge, by_name):
            for wanted in ["", *_list(edge.get("extra"))]:
                yield target, str(wanted), sure and answer is True


def _is_project(entry: Entry) -> bool:
    source = entry.get("source")
    return isinstance(source, dict) and bool(source.keys() & {"virtual", "editable"})


def _fork_holds(entry: Entry) -> bool:
    """uv locks one name in several versions where systems need different ones."""
    markers = _list(entry.get("resolution-markers"))
    return not markers or any(holds(str(marker)) is not False for marker in markers)


def _edges(entry: Entry, extra: str) -> Iterator[tuple[Entry, bool]]:
    """Dependencies, each with whether they are installed without being asked for."""
    optional = entry.get("optional-dependencies", {})
    if extra:
        yield from ((edge, True) for edge in _tables(optional, extra))
        return
    yield from ((edge, True) for edge in _tables(entry, "dependencies"))
    if _is_project(entry):
        for tables in (optional, entry.get("dev-dependencies", {})):
            if isinstance(tables, dict):
                for name in tables:
                    yield from ((edge, False) for edge in _tables(tables, name))


def _tables(table: Any, key: str) -> list[Entry]:
    edges = table.get(key) if isinstance(table, dict) else None
    return [edge for edge in _list(edges) if _is_entry(edge)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _targets(edge: Entry, by_name: Mapping[str, Sequence[Entry]]) -> list[Entry]:
    candidates = by_name.get(edge["name"], [])
    version = edge.get("version")
    return [entry for entry in candidates if version in (None, entry.get("version"))]
