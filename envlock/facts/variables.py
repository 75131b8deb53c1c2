"""Environment variables that change memory, numbers, devices or speed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from envlock.facts.tables import Confidence, rows

VariableKind = Literal["memory", "numerics", "performance", "device selection", "debug", "path"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    name: str
    component: str
    kind: VariableKind
    changes: str
    default: str | None
    since: str | None
    until: str | None
    aliases: tuple[str, ...]
    confidence: Confidence
    source: tuple[str, ...]


def _variable(row: dict[str, Any]) -> Variable:
    return Variable(
        name=row["name"],
        component=row["component"],
        kind=row["kind"],
        changes=row["changes"],
        default=row["default"],
        since=row["since"],
        until=row["until"],
        aliases=tuple(row.get("aliases", ())),
        confidence=row["confidence"],
        source=tuple(row["source"]),
    )


@functools.cache
def variables() -> dict[str, Variable]:
    """By name, former names included."""
    found = [_variable(row) for row in rows("env_vars")]
    return {name: v for v in found for name in (v.name, *v.aliases)}


def variable(name: str) -> Variable | None:
    return variables().get(name)
