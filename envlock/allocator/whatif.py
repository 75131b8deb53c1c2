"""What a recorded run would need on another card, or under other allocator settings.

A question is answered by replaying requests and frees in the model. What was in use when the
recording began is asked for first, in order of address: how it came to be there is not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Final

from envlock.allocator.device import PAGE, Device
from envlock.allocator.history import History, RecordedOom
from envlock.allocator.model import (
    CONTEXT,
    FREE,
    RETIRE,
    Allocator,
    Operation,
    Placed,
)
from envlock.allocator.rules import Rules
from envlock.allocator.segments import Context, OutOfDeviceMemoryError
from envlock.allocator.settings import Settings
from envlock.allocator.validation import Validation, validation_of

MOST_OPERATIONS: Final = 300_000
"""All runs for one card together; a longer history is asked about the part around its peak."""
_RUNS: Final = 12
"""That many runs one setting takes at most: the bisection and the run without a limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One run on one card."""

    finished: bool
    peak_reserved: int
    retries: int
    """How often the card was full and the cache had to be emptied: one step from failure."""
    failed_after: int | None = None
    """How many operations had been performed when memory ran out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What one setting makes of a run."""

    peak_reserved: int
    """On a card that is large enough."""
    smallest: int
    """Bytes for the allocator with which the run still finishes."""
    retries: int
    """On that smallest card."""
    validation: Validation


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The operations that questions are asked about, from an empty allocator on."""

    operations: Sequence[Operation]
    contexts: tuple[Context, ...]
    caveats: tuple[str, ...]


def workload(history: History, *, settings: int, around: int) -> Workload:
    """What to replay for a number of settings: the whole history, or the part around a moment.

    The recorded card's own lack of memory is left out: only a cache that the program emptied
    itself is emptied.
    """
    caveats = []
    if history.estimate:
        caveats.append(history.estimate)
    if history.start_requests:
        caveats.append(
            f"{len(history.start_requests)} blocks were in use when the recording began, and how "
            "they came to be placed is not recorded"
        )
    retries = history.decisions.retries
    operations = (
        [operation for index, operation in enumerate(history.operations) if index not in retries]
        if retries
        else history.operations
    )
    around -= sum(index < around for index in retries)
    most = max(MOST_OPERATIONS // (settings * _RUNS), 10_000)
    begin = max(0, min(around - most * 3 // 4, len(operations) - most))
    end = min(begin + most, len(operations))
    before = _start(history)
    if begin:
        before = _alive_after([*before, *operations[:begin]])
        caveats.append(
            f"asked about {end - begin} of {len(operations)} operations, those around the peak"
        )
    return Workload(
        operations=[*before, *operations[begin:end]],
        contexts=history.contexts,
        caveats=tuple(caveats),
    )


def _start(history: History) -> list[Operation]:
    """Asks for what was in use at the start."""
    operations: list[Operation] = []
    current = 0
    for block, requested, context in history.start_requests:
        if context != current:
            operations.append((context, CONTEXT))
            current = context
        operations.append((block, max(requested, 1)))
    if current:
        operations.append((0, CONTEXT))
    return operations


def _alive_after(operations: Sequence[Operation]) -> list[Operation]:
    """The shortest way to what is in use after these operations."""
    alive: dict[int, tuple[int, int]] = {}
    context = 0
    for block, code in operations:
        if code > 0:
            alive[block] = (code, context)
        elif code in (FREE, RETIRE):
            alive.pop(block, None)
        elif code == CONTEXT:
            context = block
    found: list[Operation] = []
    current = 0
    for block, (size, index) in alive.items():
        if index != current:
            found.append((index, CONTEXT))
            current = index
        found.append((block, size))
    found.append((context, CONTEXT))
    return found


def run_on(work: Workload, rules: Rules, settings: Settings, capacity: int | None) -> Outcome:
    """Run to the end, or until memory runs out: the program ends there."""
    allocator = Allocator(rules, settings, Device(capacity), work.contexts)
    operations = iter(work.operations)
    try:
        allocator.run(operations)
    except OutOfDeviceMemoryError:
        return Outcome(
            finished=False,
            peak_reserved=allocator.segments.peak_reserved,
            retries=allocator.segments.retries,
            failed_after=len(work.operations) - length_hint(operations) - 1,
        )
    return Outcome(
        finished=True,
        peak_reserved=allocator.segments.peak_reserved,
        retries=allocator.segments.retries,
    )


def need(work: Workload, rules: Rules, settings: Settings) -> Need:
    """The smallest memory with which the run finishes, by bisection.

    Between the most that is ever in use and what an unlimited card would hold in reserve a run may
    fail, finish, and fail again with more; the answer is a size that was seen to finish, next to
    one that was seen to fail.
    """
    placed: list[Placed] = []
    allocator = Allocator(rules, settings, Device(), work.contexts)
    allocator.run(work.operations, placed)
    share = settings.fraction or 1.0
    enough = _pages(allocator.segments.peak_reserved / share)
    too_little = _pages(_peak_allocated(work.operations, placed)) - PAGE
    step = max(PAGE, _pages((enough - too_little) >> (_RUNS - 1)))
    best = run_on(work, rules, settings, enough)
    while not best.finished:  # a limit in force may itself need more, as garbage is collected
        too_little, enough = enough, enough * 2
        best = run_on(work, rules, settings, enough)
    while enough - too_little > step:
        middle = _pages((enough + too_little) / 2)
        if middle in (enough, too_little):
            break
        outcome = run_on(work, rules, settings, middle)
        if outcome.finished:
            enough, best = middle, outcome
        else:
            too_little = middle
    return Need(
        peak_reserved=allocator.segments.peak_reserved,
        smallest=enough,
        retries=best.retries,
        validation=validation_of(
            settings, rules, work.contexts, retries=best.retries, caveats=work.caveats
        ),
    )


def oom_workload(history: History, oom: RecordedOom) -> Workload:
    """Everything up to an allocation that failed, and that allocation."""
    cut = History(
        source=history.source,
        operations=history.operations[: oom.operation],
        start_requests=history.start_requests,
        contexts=history.contexts,
        decisions=history.decisions,
        estimate=history.estimate,
    )
    work = workload(cut, settings=6, around=oom.operation)
    failing = [(oom.context, CONTEXT), (-1, max(oom.requested, 1))]
    return Workload(
        operations=[*work.operations, *failing], contexts=work.contexts, caveats=work.caveats
    )


def oom_capacity(history: History, oom: RecordedOom) -> int:
    """What the allocator had of the card: what it held when it failed, and what was left."""
    reserved = history.start_reserved
    grown, released = history.decisions.grown, history.decisions.released
    for index, (block, size) in enumerate(history.operations[: oom.operation]):
        if size > 0 and block in grown:
            reserved += grown[block][1]
        elif index in released:
            reserved -= sum(length for _, length in released[index])
    return reserved + oom.device_free


def _peak_allocated(operations: Sequence[Operation], placed: Sequence[Placed]) -> int:
    now = peak = 0
    sizes: dict[int, int] = {}
    places = iter(placed)
    for block, code in operations:
        if code > 0:
            begin, end, _ = next(places)
            sizes[block] = end - begin
            now += end - begin
            peak = max(peak, now)
        elif code in (FREE, RETIRE):
            now -= sizes.pop(block)
    return peak


def _pages(size: float) -> int:
    return -(-int(size) // PAGE) * PAGE
