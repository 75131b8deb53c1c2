"""TOML and JSON from strangers: parsed strictly, bounded in depth and size, faults with a spot."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from envlock.errors import InputError
from envlock.lock.shape import ShapeError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_DEPTH = 32
MAX_PACKAGES = 20_000
_INT_LIMIT = 2**63
_KEY = re.compile(r"[A-Za-z0-9_-]+")


def shown(value: object) -> str:
    """A value as an error may show it: escaped to ASCII, control characters too, and cut."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."


def decode(data: bytes, name: str) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        raise InputError(f"{name}: starts with a byte order mark; save it as plain UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 (byte {error.start})") from error
    if "\0" in text:
        raise InputError(f"{name}: holds NUL bytes; not UTF-8 text")
    return text


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Raises InputError with the place of the fault."""
    if text.count("[[packages]]") > MAX_PACKAGES:  # parsing a million takes a minute
        raise InputError(f"{name}: packages: too many (at most {MAX_PACKAGES})")
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{name}: not valid TOML: {_one_line(error)}",
            hint="if the file was cut off, ask for it again or capture anew",
        ) from error
    except RecursionError:
        _too_deep(name)
    except ValueError as error:  # an integer of more digits than Python converts
        raise InputError(f"{name}: a number is out of range") from error
    check_tree(tree, name)
    return tree


def parse_json(text: str, name: str) -> Any:
    """Raises InputError with the place of the fault; duplicate keys and NaN are faults."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"{name}: duplicate key {shown(twice)}")
        return result

    def constant(word: str) -> NoReturn:
        raise InputError(f"{name}: {word} is not a number (NaN and Infinity are refused)")

    try:
        tree = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: not valid JSON: {_one_line(error)}") from error
    except RecursionError:
        _too_deep(name)
    except ValueError as error:
        raise InputError(f"{name}: a number is out of range") from error
    check_tree(tree, name)
    return tree


def check_tree(tree: Any, name: str) -> None:
    """Depth, number range and encodable text everywhere; without recursion of our own."""
    todo: list[tuple[Any, tuple[str | int, ...]]] = [(tree, ())]
    while todo:
        node, path = todo.pop()
        if len(path) > MAX_DEPTH:
            _too_deep(name)
        if isinstance(node, dict):
            for key, child in node.items():
                _check_text(key, name, path)
                todo.append((child, (*path, key)))
        elif isinstance(node, list):
            todo.extend((child, (*path, index)) for index, child in enumerate(node))
        elif isinstance(node, str):
            _check_text(node, name, path)
        else:
            _check_number(node, name, path)


def _check_number(node: Any, name: str, path: Sequence[str | int]) -> None:
    if isinstance(node, bool) or node is None or isinstance(node, dt.datetime):
        return
    if isinstance(node, int) and not -_INT_LIMIT <= node < _INT_LIMIT:
        raise InputError(f"{name}: {spot(path)}: number out of range")
    if isinstance(node, float) and not math.isfinite(node):
        raise InputError(f"{name}: {spot(path)}: NaN and Infinity are refused")


def _check_text(text: str, name: str, path: Sequence[str | int]) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{name}: {spot(path)}: not UTF-8 (a lone surrogate)") from error


def spot(path: Sequence[str | int]) -> str:
    """``("packages", 3, "wheels", 0)`` -> ``packages[3].wheels[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part if _KEY.fullmatch(part) else shown(part)
            text += f".{plain}" if text else plain
    return text or "the document"


def fault(error: ShapeError, name: str, prefix: Sequence[str | int] = ()) -> InputError:
    """A fault of shape in one line: the spot, what is needed, what is there."""
    value = error.value
    got = "" if isinstance(value, dict | list) else f", got {shown(value)}"
    return InputError(f"{name}: {spot([*prefix, *error.path])}: {error.what}{got}")


def _too_deep(name: str) -> NoReturn:
    raise InputError(f"{name}: nested more than {MAX_DEPTH} levels deep")


def _one_line(error: Exception) -> str:
    text = ascii(" ".join(str(error).split()))[1:-1][:200]
    return text[:1].lower() + text[1:]
