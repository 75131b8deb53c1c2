"""Running a history through the model, and comparing with what the real allocator did."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from envlock.allocator.device import AddressBook, RecordedDevice
from envlock.allocator.history import History
from envlock.allocator.model import Allocator, Placed, StartSegment
from envlock.allocator.rules import Rules
from envlock.allocator.segments import Change
from envlock.allocator.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What the model decided; one entry an allocation, in order, in every sequence."""

    blocks: tuple[int, ...]
    grown: tuple[int, ...]
    """Bytes that the driver was asked for; 0 where a cached block did."""
    begins: tuple[int, ...]
    """Addresses, up to ``AddressBook.SHIFTS`` above the recorded ones."""
    sizes: tuple[int, ...]
    """Bytes that each block really took."""
    places: tuple[tuple[int, int], ...]
    """(segment, offset); segments of the start first, then one up for each new one."""
    peak_reserved: int
    final_reserved: int
    seconds: float
    """Of the model's loop alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    allocations: int
    decisions_right: int
    """Allocations for which the model asked the driver for exactly what the recording did."""
    placements_right: int


def replay(
    history: History,
    rules: Rules,
    settings: Settings | None = None,
    *,
    follow_driver: bool = True,
) -> Replay:
    """Serve the requests of a history, from the segments that it begins with.

    With ``follow_driver`` a new segment gets the address that the recorded driver chose, which
    decides ties between equally large blocks. Without, nothing that was decided is looked at.
    """
    book = AddressBook()
    start = [
        StartSegment(
            book.add(one.base, one.size),
            one.size,
            one.small,
            one.context,
            [(block.block, block.offset, block.size) for block in one.blocks],
        )
        for one in history.start
    ]
    device = RecordedDevice(
        [(one.base, one.base + one.size) for one in start],
        _addresses(history, book) if follow_driver else {},
    )
    allocator = Allocator(rules, settings or Settings(), device, history.contexts)
    allocator.restore(start)
    journal: list[Change] = []
    allocator.segments.journal = journal
    placed: list[Placed] = []
    began = perf_counter()
    allocator.run(history.operations, placed)
    seconds = perf_counter() - began
    blocks = tuple(block for block, size in history.operations if size > 0)
    grown = {owner: 0 for owner, _, _ in journal}
    for owner, _, change in journal:
        grown[owner] += max(change, 0)
    return Replay(
        blocks=blocks,
        grown=tuple(grown.get(block, 0) for block in blocks),
        begins=tuple(begin for begin, _, _ in placed),
        sizes=tuple(end - begin for begin, end, _ in placed),
        places=_places(blocks, placed, journal, [one.base for one in start]),
        peak_reserved=allocator.segments.peak_reserved,
        final_reserved=allocator.segments.reserved,
        seconds=seconds,
    )


def score(history: History, found: Replay) -> Score:
    """Count what the model has as it was recorded."""
    recorded = history.decisions
    decisions = places = 0
    for block, grown, begin in zip(found.blocks, found.grown, found.begins, strict=True):
        decisions += grown == recorded.grown.get(block, (0, 0))[1]
        place = recorded.placed.get(block)
        places += place is not None and 0 <= begin - place < AddressBook.SHIFTS
    return Score(allocations=len(found.blocks), decisions_right=decisions, placements_right=places)


def _addresses(history: History, book: AddressBook) -> dict[int, int]:
    """Where the driver put the segment that it gave for the sake of a block."""
    found = {}
    grown, released = history.decisions.grown, history.decisions.released
    for index, (block, size) in enumerate(history.operations):
        if size > 0 and block in grown:
            found[block] = book.add(*grown[block])
        elif index in released:
            for base, length in released[index]:
                book.drop(base, length)
    return found


def _places(
    blocks: Sequence[int],
    placed: Sequence[Placed],
    journal: Sequence[Change],
    start: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    """Name segments by number. Addresses are used again, so the journal is followed in step."""
    numbers = {base: number for number, base in enumerate(start)}
    bases = sorted(numbers)
    growing = {owner for owner, _, change in journal if change > 0}
    number = len(start) - 1
    at = 0
    places = []
    for block, (begin, _, _) in zip(blocks, placed, strict=True):
        while block in growing and at < len(journal):
            owner, base, change = journal[at]
            if change > 0 and owner != block:
                break
            at += 1
            if change < 0:
                bases.remove(base)
                continue
            number += 1
            numbers[base] = number
            insort(bases, base)
        base = bases[bisect_right(bases, begin) - 1]
        places.append((numbers[base], begin - base))
    return tuple(places)
