"""How a lock looks: tables for sections, one line for each thing below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.container import Container
from tomlkit.items import Array, InlineTable, Table, Trivia

from envlock.lock.model import LOCK_SCHEMA, Lock

if TYPE_CHECKING:
    from packaging.pylock import Package

_BY_NAME = frozenset(
    {"env", "packages", "seeds", "conda", "libraries", "sonames", "contested", "duplicates"}
    | {"read_from"}
)
_DEPTH = {"observed": 2, "behaviour": 6}
"""Levels of tables before a thing stands on one line: figures differ one by one."""


def as_toml(lock: Lock) -> str:
    """TOML with a fixed order; nothing in it depends on time or place."""
    document = tomlkit.document()
    document["lock-version"] = "1.0"
    if lock.requires_python:
        document["requires-python"] = lock.requires_python
    document["created-by"] = "envlock"
    packages = tomlkit.aot()
    for package in sorted(lock.packages, key=lambda p: p.name):
        packages.append(_package_item(package))
    document["packages"] = packages if lock.packages else tomlkit.array()
    table = lock.table.plain()
    table = {"schema": LOCK_SCHEMA, **table, "observed": _in_order(table["observed"])}
    end = table.pop("end")
    envlock = tomlkit.table()
    for key in ("schema", "envlock", "id", "machine_id", "resolved"):
        if key in table:
            envlock[key] = _inline(table.pop(key))
    for key in ("left_out", "sources", "image", "observed", "behaviour"):
        if key in table:
            envlock[key] = _block(table.pop(key), depth=_DEPTH.get(key, 1))
    envlock["end"] = _block(end, depth=1)
    document["tool"] = {"envlock": envlock}
    return tomlkit.dumps(document)


def _package_item(package: Package) -> tomlkit.items.Table:
    item = tomlkit.table()
    item["name"] = package.name
    if package.version is not None:
        item["version"] = str(package.version)
    if package.marker is not None:
        item["marker"] = str(package.marker)
    for key in ("vcs", "archive"):
        source = getattr(package, key)
        if source is not None:
            item[key] = _inline(_source_dict(source))
    if package.sdist is not None:
        item["sdist"] = _inline(_source_dict(package.sdist))
    if package.wheels:
        item["wheels"] = _inline([_source_dict(wheel) for wheel in package.wheels])
    return item


def _source_dict(source: Any) -> dict[str, Any]:
    """The fields that say what to install; upload times say when, and are left out."""
    fields = ("type", "name", "url", "path", "commit_id", "subdirectory", "size", "hashes")
    pairs = ((field, getattr(source, field, None)) for field in fields)
    return {
        field.replace("_", "-"): dict(sorted(value.items())) if field == "hashes" else value
        for field, value in pairs
        if value is not None
    }


def _in_order(observed: dict[str, Any]) -> dict[str, Any]:
    """Tables whose keys are names from the machine are sorted; sections keep their own order."""
    return {
        key: dict(sorted(value.items())) if key in _BY_NAME and isinstance(value, dict) else value
        for key, value in observed.items()
    }


def _block(value: Any, *, depth: int) -> Any:
    """Tables down to ``depth``, one line each below it: a fact is read at a glance."""
    if isinstance(value, dict) and depth and not _is_mark(value):
        # Everything comes in its order, so tomlkit need not look for the place of each entry.
        body = Container(parsed=True)
        table = Table(body, Trivia(), is_aot_element=False)
        plain = {k: v for k, v in value.items() if not isinstance(v, dict) or _is_mark(v)}
        for key, child in (*plain.items(), *((k, v) for k, v in value.items() if k not in plain)):
            entry = _block(child, depth=depth - 1)
            if isinstance(entry, Table) and body.body:
                entry.trivia.indent = "\n"
            table.raw_append(key, entry)
        return table
    return _inline(value)


def _is_mark(value: dict[str, Any]) -> bool:
    return value.keys() in ({"absent"}, {"unknown"})


def _inline(value: Any) -> Any:
    if isinstance(value, dict):
        table: InlineTable = tomlkit.inline_table()
        for key, child in value.items():
            table.append(key, _inline(child))
        return table
    if isinstance(value, list):
        array: Array = tomlkit.array()
        array.extend([_inline(child) for child in value])
        array.multiline(bool(value) and isinstance(value[0], dict))
        return array
    return value
