"""Running a history through the model, and comparing with what the real allocator did."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

from envlock.allocator.device import AddressBook, Device, RecordedDevice
from envlock.allocator.history import History
from envlock.allocator.model import Allocator, Placed, StartSegment
from envlock.allocator.rules import Rules, Ties
from envlock.allocator.segments import Change
from envlock.allocator.settings import Settings


class Place(NamedTuple):
    """Where a block lies. Segments are numbered: those of the start first, then as they come."""

    segment: int
    offset: int


NOWHERE = Place(-1, 0)
"""The recording does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What the model decided; one entry an allocation, in order, in every sequence."""

    blocks: tuple[int, ...]
    grown: tuple[int, ...]
    """Bytes that the driver was asked for; 0 where a cached block did."""
    sizes: tuple[int, ...]
    """Bytes that each block really took."""
    places: tuple[Place, ...]
    """Empty where nobody asked for them: naming segments takes as long as the model's loop."""
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
    name_places: bool = True,
) -> Replay:
    """Serve the requests of a history, from the segments that it begins with.

    With ``follow_driver`` a new segment gets the address that the recorded driver chose, which
    decides ties between equally large blocks. Without, nothing that was decided is looked at.
    """
    start, device = _start(history, rules, follow_driver=follow_driver)
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
        sizes=tuple(end - begin for begin, end, _ in placed),
        places=tuple(_places(blocks, placed, journal, [one.base for one in start]))
        if name_places
        else (),
        peak_reserved=allocator.segments.peak_reserved,
        final_reserved=allocator.segments.reserved,
        seconds=seconds,
    )


def decisions_right(history: History, found: Replay) -> int:
    """Allocations for which the model asked the driver for exactly what the recording did."""
    ours = {block: size for block, size in zip(found.blocks, found.grown, strict=True) if size}
    recorded = {block: size for block, (_, size) in history.decisions.grown.items() if size}
    wrong = sum(ours.get(block) != size for block, size in recorded.items())
    return len(found.blocks) - wrong - len(ours.keys() - recorded.keys())


def score(history: History, found: Replay) -> Score:
    """Count what the model has as it was recorded."""
    grown = history.decisions.grown
    places = 0
    same = {number: number for number in range(len(history.start))}
    """The recorded number of each of the model's segments."""
    for block, size, place, recorded in zip(
        found.blocks, found.grown, found.places, recorded_places(history), strict=True
    ):
        if size and block in grown:
            same[place.segment] = recorded.segment
        places += Place(same.get(place.segment, -2), place.offset) == recorded
    return Score(
        allocations=len(found.blocks),
        decisions_right=decisions_right(history, found),
        placements_right=places,
    )


def recorded_places(history: History) -> Iterator[Place]:
    """Where the real allocator put each allocation, in order."""
    decisions = history.decisions
    numbers = {segment.base: number for number, segment in enumerate(history.start)}
    bases = sorted(numbers)
    number = len(numbers) - 1
    for index, (block, size) in enumerate(history.operations):
        if size <= 0:
            for base, _ in decisions.released.get(index, ()):
                if base in numbers:
                    del numbers[base]
                    bases.remove(base)
            continue
        if block in decisions.grown:
            base, number = decisions.grown[block][0], number + 1
            if base not in numbers:
                insort(bases, base)
            numbers[base] = number
        address = decisions.placed.get(block)
        at = -1 if address is None else bisect_right(bases, address) - 1
        if address is None or at < 0:
            yield NOWHERE
        else:
            yield Place(numbers[bases[at]], address - bases[at])


def _start(
    history: History, rules: Rules, *, follow_driver: bool
) -> tuple[list[StartSegment], Device]:
    """The segments at the start, and a driver for more."""

    def held(bases: Iterator[int]) -> list[StartSegment]:
        return [
            StartSegment(
                base,
                one.size,
                one.small,
                one.context,
                [(block.block, block.offset, block.size) for block in one.blocks],
            )
            for one, base in zip(history.start, bases, strict=True)
        ]

    if rules.ties is Ties.SEGMENT_AGE:
        # rising addresses are the age; among those of the start it is taken from their addresses
        device = Device()
        aged = {
            one.base: device.reserve_addresses(one.size)
            for one in sorted(history.start, key=lambda segment: segment.base)
        }
        return held(aged[one.base] for one in history.start), device
    book = AddressBook()
    start = held(book.add(one.base, one.size) for one in history.start)
    taken = [(one.base, one.base + one.size) for one in start]
    return start, RecordedDevice(taken, _addresses(history, book) if follow_driver else {})


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
) -> Iterator[Place]:
    """Name segments by number. Addresses are used again, so the journal is followed in step."""
    numbers = {base: number for number, base in enumerate(start)}
    bases = sorted(numbers)
    grown_at = {owner: index for index, (owner, _, change) in enumerate(journal) if change > 0}
    number = len(start) - 1
    at = 0
    for block, (begin, _, _) in zip(blocks, placed, strict=True):
        # What went back later is still listed then; nothing is placed there any more.
        for _, base, change in journal[at : grown_at.get(block, -1) + 1]:
            at += 1
            if change < 0:
                if base in numbers:  # pages of an expandable segment may go back in other portions
                    del numbers[base]
                    bases.remove(base)
                continue
            if base not in numbers:
                insort(bases, base)
            number += 1
            numbers[base] = number
        base = bases[bisect_right(bases, begin) - 1]
        yield Place(numbers[base], begin - base)
