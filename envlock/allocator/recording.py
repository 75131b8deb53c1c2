"""Recordings of a real allocator (``alloc-trace/1``) and what the model makes of them.

A recording holds sizes and events, nothing else: no code, no names, no frames. The segments that
existed at its start, then in order: segments from the driver and back to it, allocations with the
place they got, frees. The model gets the requests and the frees, empties its cache where the
recording did, and is compared with every decision and place that was recorded.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from envlock.allocator.device import AddressBook, RecordedDevice
from envlock.allocator.model import (
    EMPTY_CACHE,
    EXPECT,
    FREE,
    Allocator,
    Change,
    Operation,
    Placed,
    StartSegment,
)
from envlock.allocator.rules import Rules
from envlock.allocator.settings import Settings
from envlock.errors import InputError

SCHEMA: Final = "alloc-trace/1"

_MOST_BYTES: Final = 1 << 30
"""A recording that unpacks to more is not read."""
_MOST_SIZE: Final = 1 << 44
"""Bytes of a block or segment, and the highest address."""


Event = tuple[str, int, int, int, int]
"""S (id, base, size) · R (id, size) · a (block, size, segment, offset) · f (block); 0 beyond.

What was decided (the id and base of S, the place of a) is -1 where the file does not say.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedSegment:
    id: int
    base: int
    size: int
    small: bool
    blocks: tuple[tuple[int, int, int], ...]
    """(block id, offset, bytes), in order of offset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    name: str
    start: tuple[RecordedSegment, ...]
    events: tuple[Event, ...]
    """As in the file; frees of blocks that nobody allocated are left out."""
    peak_reserved: int
    final_reserved: int

    @property
    def allocations(self) -> int:
        return sum(event[0] == "a" for event in self.events)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The model's own answer for one allocation."""

    block: int
    grown: int
    """Bytes of the segment that the driver was asked for; 0 when a cached block did."""
    segment: int
    """Numbered as recordings do: first those of the start, then one up for each new one."""
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    outcomes: tuple[Outcome, ...]
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


def read_recording(path: Path) -> Recording:
    """Load a recording. Raises InputError, naming the file and the place in it."""
    try:
        with gzip.open(path) as packed:
            text = packed.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path.name} cannot be read: {error}") from error
    if len(text) > _MOST_BYTES:
        raise InputError(f"{path.name} unpacks to more than {_MOST_BYTES >> 20} MiB")
    try:
        return _recording(path.name, json.load(io.BytesIO(text)))
    except _FaultError as fault:
        raise InputError(f"{path.name}: {fault}", hint=f"expected is {SCHEMA}") from fault
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is not JSON: {error}") from error


def replay(recording: Recording, rules: Rules, *, follow_driver: bool = True) -> Replay:
    """Run the model over a recording's requests and frees.

    With ``follow_driver`` a new segment gets the address that the recorded driver chose, which
    decides ties between equally large blocks. Without, nothing that the recorded allocator or
    driver decided is read: neither segments nor places.
    """
    book = AddressBook()
    start = [
        StartSegment(book.add(one.base, one.size), one.size, one.small, 0, one.blocks)
        for one in recording.start
    ]
    device = RecordedDevice((one.base, one.base + one.size) for one in start)
    allocator = Allocator(rules, Settings(), device)
    allocator.restore(start)
    numbers = {one.base: recorded.id for one, recorded in zip(start, recording.start, strict=True)}
    operations = list(_operations(recording, book if follow_driver else None))
    placed: list[Placed] = []
    journal: list[Change] = []
    allocator.journal = journal
    began = perf_counter()
    allocator.run(operations, placed)
    seconds = perf_counter() - began
    return Replay(
        outcomes=_outcomes(recording, placed, journal, numbers),
        peak_reserved=allocator.peak_reserved,
        final_reserved=allocator.reserved,
        seconds=seconds,
    )


def score(recording: Recording, outcomes: Sequence[Outcome]) -> Score:
    """Count what the model has as it was recorded."""
    decisions = places = recorded_size = 0
    recorded_id = -1
    same = {segment.id: segment.id for segment in recording.start}
    """The recorded number of each of the model's segments."""
    mine = iter(outcomes)
    for event in recording.events:
        if event[0] == "S":
            recorded_id, recorded_size = event[1], event[3]
        elif event[0] == "a":
            outcome = next(mine)
            decisions += outcome.grown == recorded_size
            if outcome.grown and recorded_size:
                same[outcome.segment] = recorded_id
            places += (same.get(outcome.segment), outcome.offset) == event[3:5]
            recorded_size = 0
    return Score(allocations=len(outcomes), decisions_right=decisions, placements_right=places)


def _operations(recording: Recording, book: AddressBook | None) -> Iterator[Operation]:
    """With a book, the addresses of new segments come along."""
    bases = {one.id: one.base for one in recording.start}
    releasing = False
    for kind, one, two, three, _ in recording.events:
        if kind == "a":
            yield one, two
        elif kind == "f":
            yield one, FREE
        elif kind == "R":
            if not releasing:  # a run of them is the cache being emptied once
                yield 0, EMPTY_CACHE
            if book and one in bases:
                book.drop(bases.pop(one), two)
        elif book and two >= 0:
            bases[one] = two
            yield book.add(two, three), EXPECT
        releasing = kind == "R"


def _outcomes(
    recording: Recording,
    placed: Sequence[Placed],
    journal: Sequence[Change],
    start: dict[int, int],
) -> tuple[Outcome, ...]:
    """Name segments by number. Addresses are used again, so the journal is followed in step."""
    number = max(start.values(), default=-1)
    numbers = dict(start)
    bases = sorted(numbers)
    changes = iter(journal)
    grown = {owner: size for owner, _, size in journal if size > 0}
    blocks = (event[1] for event in recording.events if event[0] == "a")
    outcomes = []
    for block, (begin, _, _) in zip(blocks, placed, strict=True):
        if block in grown:
            for _, base, size in changes:
                if size > 0:
                    number += 1
                    numbers[base] = number
                    insort(bases, base)
                    break
                bases.remove(base)
        base = bases[bisect_right(bases, begin) - 1]
        outcomes.append(
            Outcome(
                block=block,
                grown=grown.get(block, 0),
                segment=numbers[base],
                offset=begin - base,
            )
        )
    return tuple(outcomes)


class _FaultError(Exception):
    """What is wrong with a recording, and where."""


def _recording(name: str, data: Any) -> Recording:
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise _FaultError("schema: not a recording of an allocator")
    start = tuple(
        _segment(f"initial[{index}]", row) for index, row in enumerate(_rows(data, "initial"))
    )
    ordered = sorted(start, key=lambda segment: segment.base)
    for one, next_one in pairwise(ordered):
        if one.base + one.size > next_one.base:
            raise _FaultError("initial: two segments overlap")
    known = {block for segment in start for block, _, _ in segment.blocks}
    if len(known) != sum(len(segment.blocks) for segment in start):
        raise _FaultError("initial: a block id stands twice")
    return Recording(
        name=name,
        start=start,
        events=tuple(_events(_rows(data, "events"), known)),
        peak_reserved=_number(data.get("peak_reserved"), "peak_reserved"),
        final_reserved=_number(data.get("final_reserved"), "final_reserved"),
    )


def _rows(data: dict[str, Any], key: str) -> list[Any]:
    rows = data.get(key)
    if not isinstance(rows, list):
        raise _FaultError(f"{key}: not a list")
    return rows


def _number(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_SIZE:
        raise _FaultError(f"{where}: not a number of bytes or an id")
    return value


def _segment(where: str, row: Any) -> RecordedSegment:
    if not isinstance(row, list) or len(row) != 5 or row[3] not in ("s", "l"):
        raise _FaultError(f"{where}: not [id, base, size, pool, blocks]")
    number, base, size = (_number(value, where) for value in row[:3])
    blocks = []
    at = 0
    for block in row[4] if isinstance(row[4], list) else ():
        if not isinstance(block, list) or len(block) < 3:
            raise _FaultError(f"{where}: a block is not [id, offset, size, requested]")
        blocks.append((_number(block[0], where), _number(block[1], where), _number(block[2], where)))
    blocks.sort(key=lambda block: block[1])
    for _, offset, length in blocks:
        if offset < at or not length or offset + length > size:
            raise _FaultError(f"{where}: a block overlaps another or the end")
        at = offset + length
    return RecordedSegment(id=number, base=base, size=size, small=row[3] == "s", blocks=tuple(blocks))


_REQUIRED: Final = {"S": (3,), "R": (), "a": (1, 2), "f": (1,)}
"""Columns that a replay needs; the others only say what was decided."""


def _events(rows: Sequence[Any], known: set[int]) -> Iterator[Event]:
    """Checked events. ``known`` holds the blocks alive at the start, and is used up."""
    for index, row in enumerate(rows):
        where = f"events[{index}]"
        if not isinstance(row, list) or not row or row[0] not in _REQUIRED or len(row) > 5:
            raise _FaultError(f"{where}: not an event")
        kind = row[0]
        for column in _REQUIRED[kind]:
            _number(row[column] if column < len(row) else None, where)
        if kind == "a":
            if row[1] in known or not row[2]:
                raise _FaultError(f"{where}: the block is in use already, or empty")
            known.add(row[1])
        elif kind == "f":
            if row[1] not in known:
                continue  # allocated before the recording began, by nobody that it knows
            known.remove(row[1])
        numbers = [v if type(v) is int and 0 <= v <= _MOST_SIZE else -1 for v in row[1:]]
        one, two, three, four = (*numbers, 0, 0, 0, 0)[:4]
        yield kind, one, two, three, four
