"""Changes between two versions of a component that make unchanged code behave differently."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from packaging.version import Version

from envlock.facts import versions
from envlock.facts.tables import Confidence, rows

ChangeKind = Literal["memory", "numerics", "default", "api", "performance", "abi"]
Component = Literal["torch", "CUDA", "cuBLAS", "NCCL", "triton", "numpy", "python", "flash-attn"]

_ORDER: tuple[ChangeKind, ...] = ("memory", "numerics", "abi", "default", "performance", "api")


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    id: str
    component: str
    kind: ChangeKind
    since: str
    """First version with the new behaviour."""
    effect: str
    noticed_by: str
    remedy: str
    platform: str | None
    """``windows`` or ``aarch64`` where only that platform is touched."""
    confidence: Confidence
    source: tuple[str, ...]


def _change(row: dict[str, Any]) -> Change:
    return Change(
        id=row["id"],
        component=row["component"],
        kind=row["kind"],
        since=row["to_version"],
        effect=row["effect"],
        noticed_by=row["noticed_by"],
        remedy=row["remedy"],
        platform=row.get("platform"),
        confidence=row["confidence"],
        source=tuple(row["source"]),
    )


@functools.cache
def changes_of(component: Component) -> tuple[Change, ...]:
    """In order: what touches memory first, then numbers, then what no longer loads."""
    found = [_change(row) for row in rows("behaviour_changes") if row["component"] == component]
    return tuple(sorted(found, key=lambda c: (_ORDER.index(c.kind), c.id)))


def _crossed(change: Change, old: Version, new: Version) -> bool:
    since = versions.parse(change.since)  # "2.10.0 build 3" is no version: never crossed
    return since is not None and old < since <= new


def changes_between(
    component: Component, one: str, other: str, platform: str | None = None
) -> tuple[Change, ...]:
    """The changes that lie between two versions, in either direction.

    ``platform``: changes that touch only another platform than this one are left out.
    """
    a, b = versions.parse(one.partition("+")[0]), versions.parse(other.partition("+")[0])
    if a is None or b is None or a == b:
        return ()
    return tuple(
        c
        for c in changes_of(component)
        if c.platform in {None, platform} and _crossed(c, min(a, b), max(a, b))
    )
