"""Files that hold an environment, told apart by content: locks, observations, pasted texts."""

from __future__ import annotations

from dataclasses import dataclass

from envlock.errors import InputError
from envlock.lock.io import is_json, lock_from_tree
from envlock.lock.model import Lock
from envlock.lock.observation import OBSERVATION_SCHEMA, Observation
from envlock.lock.shape import ShapeError
from envlock.lock.strict import decode, fault, parse_json, parse_toml, shown

_TABLE = b"[tool.envlock"
_START = 4096
"""Characters in which an observation says that it is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    observation: Observation
    lock: Lock | None = None


def read(data: bytes, name: str) -> Document:
    """A lock, an observation or a pasted text. Raises InputError with the spot of the fault."""
    if _TABLE in data or b'created-by = "envlock"' in data:
        text = decode(data, name)
        lock = lock_from_tree(parse_toml(text, name), name, complete=text.endswith("\n"))
        return Document(observation=lock.observed, lock=lock)
    from envlock.targets import texts  # noqa: PLC0415  a lock needs none of its parsers

    text = texts.decode(data)
    if _TABLE.decode() in text:
        decode(data, name)  # a lock in UTF-16: refused, and why
    if OBSERVATION_SCHEMA in text[:_START]:
        return Document(observation=_observation(decode(data, name), name))
    if texts.detect(text) is not None:
        return Document(observation=texts.parse_text(text))
    raise _not_known(data, name)


def _not_known(data: bytes, name: str) -> InputError:
    """Say what is wrong with a file that is none of them; where it stops being JSON or TOML."""
    text = decode(data, name)
    if is_json(text):
        parse_json(text, name)
    elif text.strip():
        parse_toml(text, name)
    return InputError(
        f"{name}: not an envlock lock (which has a list of packages), an observation, "
        "or a report that envlock knows",
        hint="give a lock, or the text of: python -m torch.utils.collect_env, pip freeze, "
        "pip list, conda list",
    )


def _observation(text: str, name: str) -> Observation:
    tree = parse_json(text, name)
    if not isinstance(tree, dict):
        raise InputError(f"{name}: an object is needed, got {shown(tree)}; not an observation")
    schema = tree.pop("schema", None)
    if schema != OBSERVATION_SCHEMA:
        raise InputError(
            f"{name}: schema: {shown(schema)} is not {OBSERVATION_SCHEMA!r}",
            hint="give an envlock lock, an observation, or the text of a report",
        )
    try:
        return Observation.read(tree)
    except ShapeError as error:
        raise fault(error, name) from error
