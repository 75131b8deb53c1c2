"""Distributions that are compiled against torch, numpy or the C library."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from envlock.facts import versions
from envlock.facts.tables import Confidence, rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Companion:
    name: str
    minor: str
    """The minor release that goes with a torch: torchvision ``0.18``."""
    source: tuple[str, ...]


@functools.cache
def companion(name: Literal["torchvision", "torchaudio"], torch: str) -> Companion | None:
    """What goes with a torch release; None where no table says, or where any release does."""
    minor = versions.minor_of(torch)
    if minor is None or not versions.is_release(torch):
        return None
    for row in rows("companions"):
        if versions.minor_of(row["torch"]) == minor and row[name] is not None:
            return Companion(name=name, minor=row[name], source=tuple(row["source"]))
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    distribution: str
    needs: Literal["glibc", "numpy below"]
    minimum: str
    confidence: Confidence
    source: tuple[str, ...]


@functools.cache
def _by_distribution() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows("extensions"):
        found.setdefault(row["distribution"], []).append(row)
    return found


def _applies(row: dict[str, Any], version: str | None) -> bool:
    if row["since"] and not (version and versions.at_least(version, row["since"])):
        return False
    return not row["until"] or bool(version and versions.below(version, row["until"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Binaries:
    distribution: str
    cuda: tuple[str, ...]
    """CUDA releases for which it brings a library, ascending: ``12.1``."""
    source: tuple[str, ...]


def binaries(distribution: str, version: str) -> Binaries | None:
    """What a distribution brings that takes the library for exactly torch's CUDA; None: unknown."""
    for row in rows("binaries"):
        if row["distribution"] == distribution and _applies(row, version):
            return Binaries(
                distribution=distribution, cuda=tuple(row["cuda"]), source=tuple(row["source"])
            )
    return None


def extension_floors(distribution: str, version: str | None) -> tuple[Floor, ...]:
    """What a distribution needs and its metadata does not say. ``version`` None: unknown."""
    return tuple(
        Floor(
            distribution=distribution,
            needs=row["needs"],
            minimum=row["minimum"],
            confidence=row["confidence"],
            source=tuple(row["source"]),
        )
        for row in _by_distribution().get(distribution, ())
        if _applies(row, version)
    )
