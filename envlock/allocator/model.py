"""A CPU model of PyTorch's CUDA caching allocator: the same decisions, no memory.

Requests are rounded, served from the smallest fitting free block of their pool and stream (ties go
to the lowest address), split off it if the rest is worth keeping, and merged with free neighbours
when given back. Only when nothing fits does a segment come from the driver.

A replay is one loop (``Allocator.run``) without a call for an event; ``freelist`` says how free
blocks are kept. A block in use is one dictionary entry, so memory is linear in the blocks alive.
"""

from __future__ import annotations

import gc
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from envlock.allocator import freelist
from envlock.allocator.device import Device
from envlock.allocator.freelist import ADDRESS, SHIFT, Pool
from envlock.allocator.rules import Rules
from envlock.allocator.segments import Context, Segments
from envlock.allocator.settings import Settings
from envlock.errors import InputError

FREE: Final = 0
"""Second half of an operation: the block is free from now on. A positive number allocates it."""
EMPTY_CACHE: Final = -1
"""Every segment that nothing uses goes back to the driver."""
CONTEXT: Final = -2
"""What follows happens on another stream or private pool: an index into ``contexts``."""
RETIRE: Final = -3
"""The block was given back, but a kernel on another stream may still use it."""
COMPLETE: Final = -4
"""That kernel ended. Retired blocks are also free after a retry, which waits for all kernels."""

Operation = tuple[int, int]
"""(block id, bytes) allocates; (block id or argument, one of the codes above) does the rest."""
Placed = tuple[int, int, Pool]
"""Begin, end and pool of a block in use."""

_NEVER: Final = 1 << 62


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing in a replay refers to itself, and looking for that takes a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class StartSegment(NamedTuple):
    """A segment that exists when a replay begins."""

    base: int
    size: int
    small: bool
    context: int
    blocks: Sequence[tuple[int, int, int]]
    """(block id, offset, bytes), in order; what none covers is free."""


class Allocator:
    """One card's caching allocator. Not for use by several threads."""

    def __init__(
        self,
        rules: Rules,
        settings: Settings,
        device: Device,
        contexts: Sequence[Context] = (Context(),),
    ) -> None:
        if settings.backend != "native":
            raise InputError(
                f"backend:{settings.backend} is the driver's own allocator and is not modelled",
                hint="ask about backend:native",
            )
        self.rules = rules
        self.settings = settings
        self.segments = Segments(rules, settings, device, contexts)
        self.segments.before_retry = self.empty_cache
        self.live: dict[int, Placed] = {}
        self._retired: dict[int, Placed] = {}
        self._current = 0
        self._special = bool(settings.max_split or settings.expandable)
        self._special = self._special or self.segments.ages is not None

    @property
    def allocated(self) -> int:
        """Bytes of the blocks in use."""
        return sum(end - begin for begin, end, _ in self.live.values())

    def restore(self, segments: Iterable[StartSegment]) -> None:
        """Begin with these segments. Their free stretches and blocks are taken as they are."""
        for segment in segments:
            pool = self.segments.pools[segment.context][0 if segment.small else 1]
            self.segments.add(segment.base, segment.size)
            at = segment.base
            for block, offset, size in segment.blocks:
                begin = segment.base + offset
                if at < begin:
                    freelist.insert(self.segments.edges, pool, at, begin)
                at = begin + size
                self.live[block] = (begin, at, pool)
            if at < segment.base + segment.size:
                freelist.insert(self.segments.edges, pool, at, segment.base + segment.size)

    def run(self, operations: Iterable[Operation], placed: list[Placed] | None = None) -> None:
        """Perform operations in order; append where each allocation was placed to ``placed``.

        Raises OutOfDeviceMemoryError at an allocation that cannot be served. The model is then as
        torch is after its exception: give the same iterator again to go on.
        """
        with _no_collection():
            self._serve(operations, placed)

    def _serve(  # noqa: C901, PLR0912, PLR0915 - a call for each event would cost a third of the speed
        self, operations: Iterable[Operation], placed: list[Placed] | None = None
    ) -> None:
        rules, live, special = self.rules, self.live, self._special
        edges, pools, grow = self.segments.edges, self.segments.pools, self.segments.grow
        small_size, small_rest, large_rest = rules.small_size, rules.small_rest, rules.large_rest
        least, mask = rules.min_block - 1, -rules.min_block
        round_size = self.round_size if self.settings.divisions else None
        append = deque[Placed](maxlen=0).append if placed is None else placed.append
        take, take_edge = live.pop, edges.pop
        small, large = pools[self._current]
        for block, requested in operations:
            if requested > 0:
                size = round_size(requested) if round_size else (requested + least) & mask
                if size <= small_size:
                    pool, least_rest = small, small_rest
                else:
                    pool, least_rest = large, large_rest
                at = bisect_left(pool, size << SHIFT)
                if special:
                    at, least_rest = self._choose(pool, size, at, least_rest)
                if at < len(pool):
                    begin = pool.pop(at) & ADDRESS
                    end = take_edge(begin)
                else:
                    begin, end = grow(block, pool, size)
                cut = begin + size
                rest = end - cut
                if rest >= least_rest:
                    edges[cut] = end
                    edges[end] = cut
                    insort(pool, rest << SHIFT | cut)
                    if special:
                        self._note_age(cut)
                else:
                    cut = end
                    take_edge(end, None)
                live[block] = entry = (begin, cut, pool)
                append(entry)
            elif not requested:
                begin, end, pool = take(block)
                left = take_edge(begin, None)
                if left is not None:
                    del pool[bisect_left(pool, (begin - left) << SHIFT | left)]
                    begin = left
                right = take_edge(end, None)
                if right is not None:
                    del pool[bisect_left(pool, (right - end) << SHIFT | end)]
                    end = right
                edges[begin] = end
                edges[end] = begin
                insort(pool, (end - begin) << SHIFT | begin)
                if special:
                    self._note_age(begin)
            else:
                self._perform_rare(block, requested)
                small, large = pools[self._current]

    def _perform_rare(self, argument: int, code: int) -> None:
        if code == CONTEXT:
            self._current = argument
        elif code == EMPTY_CACHE:
            self.empty_cache()
        elif code == RETIRE:
            self._retired[argument] = self.live.pop(argument)
        elif argument in self._retired:  # COMPLETE, unless a retry already waited for it
            self.live[argument] = self._retired.pop(argument)
            self._serve([(argument, FREE)])

    def round_size(self, requested: int) -> int:
        """The bytes that a request really takes, under the settings."""
        rules, settings = self.rules, self.settings
        rounded = max(-(-requested // rules.min_block), 1) * rules.min_block
        bypass = settings.roundup_bypass
        if not settings.divisions or (bypass is not None and requested > bypass):
            return rounded
        last = len(settings.divisions) - 1
        interval = requested.bit_length() - rules.roundup_start.bit_length()
        divisions = settings.divisions[min(max(interval, 0), last)]
        if not divisions or requested <= rules.min_block * divisions:
            return rounded
        if divisions == 1:
            return rounded if rules.one_division_rounds else requested
        step = (1 << (requested.bit_length() - 1)) // divisions
        return -(-requested // step) * step

    def empty_cache(self) -> None:
        """Wait for what is retired, and give all memory back that nothing uses."""
        for block in tuple(self._retired):
            self._serve([(block, COMPLETE)])
        self.segments.release_unused()

    # -- options that change which block is taken -------------------------------------------------

    def _choose(self, pool: Pool, size: int, at: int, least_rest: int) -> tuple[int, int]:
        """Correct the best fit and the rest worth splitting off for what the settings say."""
        settings, rules, ranges = self.settings, self.rules, self.segments.ranges
        large = size > rules.small_size
        self.segments.searches += large
        if ranges:
            least_rest = rules.small_rest
            at = self._best_growing(pool, at)
        if settings.max_split is None:
            return at, least_rest
        oversize = size >= settings.max_split
        if at < len(pool):
            rounding = settings.non_split_rounding or settings.large_segment
            most = size + (rounding or rules.non_split_rounding)
            if pool[at] >> SHIFT >= (most if oversize else settings.max_split):
                at = len(pool)
        if oversize and large and not ranges:
            least_rest = _NEVER
        return at, least_rest

    def _best_growing(self, pool: Pool, at: int) -> int:
        """Count a block that could grow as the size it could grow to, and prefer smaller ones."""
        room_after = self.segments.ranges[id(pool)].room_after

        def reach(key: int) -> int:
            size = key >> SHIFT
            return size + room_after((key & ADDRESS) + size)

        while at + 1 < len(pool) and reach(pool[at + 1]) < reach(pool[at]):
            at += 1
        return at

    def _note_age(self, begin: int) -> None:
        ages = self.segments.ages
        if ages is None:
            return
        if len(ages) > 4 * len(self.segments.edges) + 1024:
            for gone in ages.keys() - self.segments.edges.keys():
                del ages[gone]
        ages[begin] = self.segments.searches
