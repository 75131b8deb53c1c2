"""Two observations -> what differs, what is equal, and what cannot be said. Pure.

Unknown equals nothing, also not another unknown. A name missing from a table that was read
completely (``exhaustive``) is absent; from any other table it is unknown.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from envlock.findings import JsonValue
from envlock.lock.machine import Gpu
from envlock.lock.observation import (
    ABSENT,
    NOT_RECORDED,
    Absent,
    Library,
    Model,
    Observation,
    Package,
    Python,
    Soname,
    Unknown,
)


class DeltaKind(enum.Enum):
    CHANGED = "changed"
    ONLY_LEFT = "only-left"
    ONLY_RIGHT = "only-right"


@dataclass(frozen=True, kw_only=True, slots=True)
class Delta:
    """One fact that both sides know and that differs."""

    subject: str
    left: JsonValue
    right: JsonValue
    kind: DeltaKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    deltas: tuple[Delta, ...]
    """In the order of the observation's fields, names sorted."""
    equal: int
    """Facts that both sides know and that are equal."""
    unknown: tuple[str, ...]
    """Subjects that at least one side does not know."""
    one_sided: tuple[str, ...]
    """Those of them that the other side does know."""


OWN_DISTRIBUTIONS = frozenset({"torch-envlock"})
"""envlock itself, where someone installed it beside torch: never a difference."""

_NOT_COMPARED: dict[type[Model], frozenset[str]] = {
    # Faults of one side (rules on one observation report them) and notes about the reading.
    Observation: frozenset(
        {
            "broken",
            "contested",
            "duplicates",
            "exhaustive",
            "files",
            "preflight",
            "read_from",
            "seeds",
            "set_by_envlock",
            "unmet",
        }
    ),
    # How a distribution came in; its content is compared by version and RECORD digest.
    Package: frozenset({"built_for", "installer", "path_class", "source", "tags"}),
    Gpu: frozenset(  # of the moment
        {
            "default_power_limit_w",
            "ecc_uncorrected",
            "max_sm_clock_mhz",
            "power_limit_w",
            "slowed_by",
            "sm_clock_mhz",
            "used_bytes",
        }
    ),
    Library: frozenset({"shadowed"}),
    Python: frozenset({"site_folders"}),
    Soname: frozenset({"needed_by", "on_demand"}),
}


def _fields(model: type[Model]) -> tuple[str, ...]:
    skipped = _NOT_COMPARED.get(model, frozenset())
    return tuple(name for name in model.defaults if name not in skipped)


def as_json(fact: Any) -> JsonValue:
    """A fact as it stands in JSON."""
    if isinstance(fact, Model):
        plain: JsonValue = fact.plain()
        return plain
    if isinstance(fact, dict):
        return {key: as_json(value) for key, value in fact.items()}
    if isinstance(fact, list):
        return [as_json(value) for value in fact]
    value: JsonValue = fact
    return value


_Leaf = tuple[str, Any, Any]


def _walk(path: str, left: Any, right: Any, *, missing: tuple[Any, Any]) -> Iterator[_Leaf]:
    """Pairs of facts to compare. ``missing``: what a name that is not in a table means, by side."""
    if isinstance(left, Model) and type(left) is type(right) and not _is_bare(left):
        prefix = f"{path}." if path else ""
        for name in _fields(type(left)):
            yield from _walk(
                prefix + name, getattr(left, name), getattr(right, name), missing=missing
            )
    elif isinstance(left, dict) and isinstance(right, dict) and _is_table(left, right):
        for name in sorted(left.keys() | right.keys()):
            pair = left.get(name, missing[0]), right.get(name, missing[1])
            yield from _walk(f"{path}.{name}", *pair, missing=missing)
    elif isinstance(left, list) and isinstance(right, list) and _is_table(left, right):
        for index in range(max(len(left), len(right))):
            pair = (
                left[index] if index < len(left) else missing[0],
                right[index] if index < len(right) else missing[1],
            )
            yield from _walk(f"{path}.{index}", *pair, missing=missing)
    else:
        yield path, left, right


def _is_bare(fact: Any) -> bool:
    return isinstance(fact, Absent | Unknown)


def _is_table(left: Any, right: Any) -> bool:
    """Whether entries are compared one by one; lists and maps of plain values are one fact."""
    entries: list[Any] = []
    for side in (left, right):
        entries.extend(side.values() if isinstance(side, dict) else side)
    return any(isinstance(entry, Model) for entry in entries)


def _leaves(left: Observation, right: Observation) -> Iterator[_Leaf]:
    for name in _fields(Observation):
        missing = (
            ABSENT if name in left.exhaustive else NOT_RECORDED,
            ABSENT if name in right.exhaustive else NOT_RECORDED,
        )
        one, other = getattr(left, name), getattr(right, name)
        if name == "env" and isinstance(one, dict) and isinstance(other, dict):
            # Values are plain text, and each variable is a fact of its own.
            for key in sorted(one.keys() | other.keys()):
                yield f"env.{key}", one.get(key, missing[0]), other.get(key, missing[1])
        else:
            yield from _walk(name, one, other, missing=missing)


def _same(left: Any, right: Any) -> bool:
    # True == 1 in Python, but a flag and a count are two facts.
    return type(left) is type(right) and bool(left == right)


def _skips(left: Observation, right: Observation) -> tuple[frozenset[str], tuple[str, ...]]:
    ours = [*left.set_by_envlock, *right.set_by_envlock]
    ours += [f"packages.{name}" for name in OWN_DISTRIBUTIONS]
    for side in (left, right):
        if isinstance(side.seeds, dict):
            ours += [f"packages.{name}" for name in side.seeds]
    return frozenset(ours), tuple(f"{path}." for path in ours)


def compare(left: Observation, right: Observation) -> Comparison:
    """What differs between two observations, without a judgement."""
    exact, prefixes = _skips(left, right)
    deltas: list[Delta] = []
    unknown: list[str] = []
    one_sided: list[str] = []
    equal = 0
    for path, one, other in _leaves(left, right):
        if path in exact or path.startswith(prefixes):
            continue
        if isinstance(one, Unknown) or isinstance(other, Unknown):
            unknown.append(path)
            if not (isinstance(one, Unknown) and isinstance(other, Unknown)):
                one_sided.append(path)
        elif _same(one, other):
            equal += 1
        else:
            kind = DeltaKind.CHANGED
            if isinstance(other, Absent):
                kind = DeltaKind.ONLY_LEFT
            elif isinstance(one, Absent):
                kind = DeltaKind.ONLY_RIGHT
            deltas.append(Delta(subject=path, left=as_json(one), right=as_json(other), kind=kind))
    return Comparison(
        deltas=tuple(deltas), equal=equal, unknown=tuple(unknown), one_sided=tuple(one_sided)
    )
