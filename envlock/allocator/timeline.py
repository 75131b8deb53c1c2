"""Requested, allocated and reserved bytes over a history, and what was alive at its peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from envlock.allocator.history import History
from envlock.allocator.model import FREE, RETIRE

BUCKETS: Final = 480
"""Points of a timeline; each stands for the highest values of its stretch of operations."""
_MOST_FRAMES: Final = 6
_MOST_TEXT: Final = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The highest values within one stretch of operations."""

    operation: int
    """The first operation of the stretch."""
    time_us: int | None
    """Since the first operation; None where the history has no times."""
    requested: int
    allocated: int
    reserved: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    points: tuple[Point, ...]
    peak: Point
    """The moment at which the most was allocated (the first, if there are several)."""
    peak_reserved: int

    @property
    def fragmentation(self) -> float:
        """The share of the reserved bytes that nothing used when the most was allocated."""
        return 1.0 - self.peak.allocated / self.peak.reserved if self.peak.reserved else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Alive:
    """One allocation that was alive at a moment."""

    requested: int
    size: int
    frames: tuple[str, ...]
    """Innermost first; empty where none were recorded, or it is older than the recording."""


def trace_memory(history: History, sizes: Mapping[int, int]) -> Timeline:
    """Follow a history; ``sizes`` holds what each block really took.

    Reserved bytes are the recorded ones.
    """
    grown, released = history.decisions.grown, history.decisions.released
    asked = {one.block: one.requested for one in history.start_requests}
    requested = sum(asked.values())
    allocated = sum(sizes.get(block, size) for block, size in asked.items())
    reserved = history.start_reserved
    peak = (0, (requested, allocated, reserved))
    points = []
    stretch = max(1, -(-len(history.operations) // BUCKETS))
    for first in range(0, len(history.operations), stretch):
        most_requested, most_allocated, most_reserved = requested, allocated, reserved
        operations = history.operations[first : first + stretch]
        for index, (block, code) in enumerate(operations, first):
            if code > 0:
                asked[block] = code
                requested += code
                allocated += sizes.get(block, code)
                if block in grown:
                    reserved += grown[block][1]
                    most_reserved = max(most_reserved, reserved)
                if requested > most_requested:  # noqa: PLR1730 - max() takes three times as long
                    most_requested = requested
                if allocated > most_allocated:
                    most_allocated = allocated
                    if allocated > peak[1][1]:
                        peak = (index, (requested, allocated, reserved))
            elif code in (FREE, RETIRE):
                size = asked.pop(block, 0)
                requested -= size
                allocated -= sizes.get(block, size)
            elif index in released:
                reserved -= sum(size for _, size in released[index])
        points.append(_point(history, first, (most_requested, most_allocated, most_reserved)))
    return Timeline(
        points=tuple(points),
        peak=_point(history, *peak),
        peak_reserved=max([history.start_reserved, *(point.reserved for point in points)]),
    )


def _point(history: History, operation: int, level: tuple[int, int, int]) -> Point:
    requested, allocated, reserved = level
    return Point(
        operation=operation,
        time_us=_since_start(history, operation),
        requested=requested,
        allocated=allocated,
        reserved=reserved,
    )


def largest_alive(
    history: History, sizes: Mapping[int, int], operation: int, *, most: int = 15
) -> tuple[Alive, ...]:
    """The largest blocks alive right after an operation, largest first."""
    alive = {one.block: one.requested for one in history.start_requests}
    for block, code in history.operations[: operation + 1]:
        if code > 0:
            alive[block] = code
        elif code in (FREE, RETIRE):
            alive.pop(block, None)
    largest = sorted(alive, key=lambda block: (-alive[block], block))[:most]
    return tuple(
        Alive(
            requested=alive[block],
            size=sizes.get(block, alive[block]),
            frames=shown_frames(history.frames.get(block)),
        )
        for block in largest
    )


def shown_frames(frames: object) -> tuple[str, ...]:
    """Frames of a snapshot as ``function (file:line)``, the program's own before torch's."""
    if not isinstance(frames, Sequence) or isinstance(frames, str):
        return ()
    named = [text for frame in frames[:200] if (text := _frame(frame))]
    own = [text for text in named if "/torch/" not in text and "/site-packages/" not in text]
    return tuple((own or named)[:_MOST_FRAMES])


def _frame(frame: object) -> str:
    if not isinstance(frame, Mapping):
        return ""
    name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
    if not isinstance(name, str) or not isinstance(file, str):
        return ""
    number = f":{line}" if type(line) is int and 0 < line < 10**7 else ""
    return f"{_plain(name)} ({_plain(file)}{number})"


def _plain(text: str) -> str:
    """Names come from anybody: printable characters only, and not too many of them."""
    kept = "".join(character if character.isprintable() else "?" for character in text[-400:])
    return kept if len(kept) <= _MOST_TEXT else "..." + kept[-_MOST_TEXT:]


def _since_start(history: History, operation: int) -> int | None:
    times = history.times_us
    if not times or operation >= len(times):
        return None
    first, now = times[0], times[operation]
    return now - first if type(first) is int and type(now) is int else None
