"""A CPU model of PyTorch's CUDA caching allocator: the same decisions, no memory.

Requests are rounded, served from the smallest fitting free block of their pool and stream (ties go
to the lowest address), split off it if the rest is worth keeping, and merged with free neighbours
when given back. Only when nothing fits does a segment come from the driver.

A replay is one loop (``Allocator.run``) without a call for an event; ``freelist`` says how free
blocks are kept. A block in use is one dictionary entry, so memory is linear in the blocks alive.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from envlock.allocator import freelist
from envlock.allocator.device import Device
from envlock.allocator.expandable import AddressRanges
from envlock.allocator.freelist import ADDRESS, SHIFT, Edges, Pool
from envlock.allocator.rules import Rules
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

Change = tuple[int, int, int]
"""(block, address, bytes): memory from the driver, for the sake of a block; negative when back."""

_NEVER: Final = 1 << 62


class Context(NamedTuple):
    """Where allocations come from: a stream, in the default pool (0) or a private one."""

    private_pool: int = 0
    stream: int = 0


class StartSegment(NamedTuple):
    """A segment that exists when a replay begins."""

    base: int
    size: int
    small: bool
    context: int
    blocks: Sequence[tuple[int, int, int]]
    """(block id, offset, bytes), in order; what none covers is free."""


class OutOfDeviceMemoryError(Exception):
    """The allocation that this model could not serve, as torch's OutOfMemoryError."""

    def __init__(self, block: int, size: int) -> None:
        super().__init__(f"no memory for {size} bytes")
        self.block = block
        self.size = size


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
        self.device = device
        self.contexts = tuple(contexts)
        self.reserved = 0
        self.peak_reserved = 0
        self.retries = 0
        self.ooms = 0
        self.live: dict[int, Placed] = {}
        self.segments: dict[int, int] = {}
        """End of each segment by its begin."""
        self.journal: list[Change] | None = None
        """What the driver was asked for, if somebody wants to know."""
        self._edges: Edges = {}
        self._retired: dict[int, Placed] = {}
        self._pools: list[tuple[Pool, Pool]] = [([], []) for _ in contexts]
        self._current = 0
        self._growing = 0
        self._large_segment = settings.large_segment or rules.large_segment
        self._limit = self._memory_limit()
        self._ages: dict[int, int] | None = None
        """How many searches there had been when a free block came to be, by its begin."""
        if self._limit is not None and settings.gc_threshold:
            self._ages = {}
        self._searches = 0
        self._ranges: dict[int, AddressRanges] = {}
        if settings.expandable:
            self._ranges = self._address_ranges()
        self._special = bool(settings.max_split or self._ranges) or self._ages is not None

    @property
    def allocated(self) -> int:
        """Bytes of the blocks in use."""
        return sum(end - begin for begin, end, _ in self.live.values())

    def restore(self, segments: Iterable[StartSegment]) -> None:
        """Begin with these segments. Their free stretches and blocks are taken as they are."""
        for segment in segments:
            pool = self._pools[segment.context][0 if segment.small else 1]
            self.segments[segment.base] = segment.base + segment.size
            self._count(segment.base, segment.size)
            at = segment.base
            for block, offset, size in segment.blocks:
                begin = segment.base + offset
                if at < begin:
                    freelist.insert(self._edges, pool, at, begin)
                at = begin + size
                self.live[block] = (begin, at, pool)
            if at < segment.base + segment.size:
                freelist.insert(self._edges, pool, at, segment.base + segment.size)
        self.peak_reserved = self.reserved

    def run(  # noqa: C901, PLR0912, PLR0915 - a call for each event would cost a third of the speed
        self, operations: Iterable[Operation], placed: list[Placed] | None = None
    ) -> None:
        """Perform operations in order; append where each allocation was placed to ``placed``.

        Raises OutOfDeviceMemoryError at an allocation that cannot be served. The model is then as
        torch is after its exception: give the same iterator again to go on.
        """
        rules, edges, live, special = self.rules, self._edges, self.live, self._special
        small_size, small_rest, large_rest = rules.small_size, rules.small_rest, rules.large_rest
        least, mask = rules.min_block - 1, -rules.min_block
        round_size = self.round_size if self.settings.divisions else None
        append = deque[Placed](maxlen=0).append if placed is None else placed.append
        take = live.pop
        small, large = self._pools[self._current]
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
                    end = edges.pop(begin)
                else:
                    begin, end = self._grow(block, pool, size)
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
                    edges.pop(end, None)
                live[block] = entry = (begin, cut, pool)
                append(entry)
            elif not requested:
                begin, end, pool = take(block)
                if begin in edges:
                    left = edges.pop(begin)
                    del pool[bisect_left(pool, (begin - left) << SHIFT | left)]
                    begin = left
                if end in edges:
                    right = edges.pop(end)
                    del pool[bisect_left(pool, (right - end) << SHIFT | end)]
                    end = right
                edges[begin] = end
                edges[end] = begin
                insort(pool, (end - begin) << SHIFT | begin)
                if special:
                    self._note_age(begin)
            else:
                self._perform_rare(block, requested)
                small, large = self._pools[self._current]

    def _perform_rare(self, argument: int, code: int) -> None:
        if code == CONTEXT:
            self._current = argument
        elif code == EMPTY_CACHE:
            self.empty_cache()
        elif code == RETIRE:
            self._retired[argument] = self.live.pop(argument)
        elif argument in self._retired:  # COMPLETE, unless a retry already waited for it
            self.live[argument] = self._retired.pop(argument)
            self.run([(argument, FREE)])

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
        """Give every segment, or page of an expandable one, that nothing uses back to the driver.

        Private pools keep theirs: a captured graph may still write there.
        """
        for block in tuple(self._retired):
            self.run([(block, COMPLETE)])
        order = sorted(range(len(self.contexts)), key=self.contexts.__getitem__)
        shared = [index for index in order if not self.contexts[index].private_pool]
        for small_or_large in (1, 0):
            for index in shared:
                pool = self._pools[index][small_or_large]
                for begin in self._unused(pool):
                    self._release(pool, begin)
            for index in shared:
                ranges = self._ranges.get(id(self._pools[index][small_or_large]))
                if ranges:
                    ranges.release()

    # -- options that change which block is taken -------------------------------------------------

    def _choose(self, pool: Pool, size: int, at: int, least_rest: int) -> tuple[int, int]:
        """Correct the best fit and the rest worth splitting off for what the settings say."""
        settings, large = self.settings, size > self.rules.small_size
        if large:
            self._searches += 1
        if self._ranges:
            least_rest = self.rules.small_rest
            at = self._best_growing(pool, at)
        if settings.max_split is None:
            return at, least_rest
        oversize = size >= settings.max_split
        if at < len(pool):
            found = pool[at] >> SHIFT
            rounding = settings.non_split_rounding or self._default_rounding
            if found >= (size + rounding if oversize else settings.max_split):
                at = len(pool)
        if oversize and large and not self._ranges:
            least_rest = _NEVER
        return at, least_rest

    @property
    def _default_rounding(self) -> int:
        return self.settings.large_segment or self.rules.non_split_rounding

    def _best_growing(self, pool: Pool, at: int) -> int:
        """Count a block that could grow as the size it could grow to, and prefer smaller ones."""
        room_after = self._ranges[id(pool)].room_after

        def reach(key: int) -> int:
            size = key >> SHIFT
            return size + room_after((key & ADDRESS) + size)

        while at + 1 < len(pool) and reach(pool[at + 1]) < reach(pool[at]):
            at += 1
        return at

    def _note_age(self, begin: int) -> None:
        if self._ages is not None:
            self._ages[begin] = self._searches

    # -- getting memory from the driver, and giving it back ---------------------------------------

    def _grow(self, block: int, pool: Pool, size: int) -> tuple[int, int]:
        """A block that nothing else uses, from the driver; torch's order of last resorts."""
        self._growing = block
        if self._ages is not None:
            self._collect_garbage()
        grown = self._ask_driver(pool, size)
        if grown is None and self._release_oversize(pool, size):
            grown = self._ask_driver(pool, size)
        if grown is None:
            self.empty_cache()
            self.retries += 1
            grown = self._ask_driver(pool, size)
        if grown is None:
            self.ooms += 1
            raise OutOfDeviceMemoryError(block, size)
        return grown

    def segment_size(self, size: int) -> int:
        """What the driver is asked for when a request of this (rounded) size finds no block."""
        rules = self.rules
        if size <= rules.small_size:
            return rules.small_segment
        if size < rules.min_large:
            return self._large_segment
        return -(-size // rules.round_large) * rules.round_large

    def _ask_driver(self, pool: Pool, size: int) -> tuple[int, int] | None:
        segment = self.segment_size(size)
        if self._limit is not None and self.reserved + segment > self._limit:
            return None
        if self._ranges:
            return self._ranges[id(pool)].grow(size)
        device = self.device
        if self.settings.throw_early and device.used + segment > device.total:
            raise OutOfDeviceMemoryError(self._growing, size)
        base = device.malloc(segment, self._growing)
        if base is None:
            return None
        self.segments[base] = end = base + segment
        self._count(base, segment)
        return base, end

    def _count(self, base: int, change: int) -> None:
        self.reserved += change
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        if self.journal is not None:
            self.journal.append((self._growing, base, change))

    def _unused(self, pool: Pool) -> list[int]:
        """Begins of the segments that are one free block, smallest first."""
        edges, segments = self._edges, self.segments
        begins = [key & ADDRESS for key in pool]
        return [begin for begin in begins if edges[begin] == segments.get(begin)]

    def _release(self, pool: Pool, base: int) -> None:
        end = self.segments.pop(base)
        freelist.remove(self._edges, pool, base, end)
        self.device.free(base, end - base)
        self._count(base, base - end)

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """With a split limit: free one oversize block that is enough, or several largest first."""
        limit = self.settings.max_split
        if limit is None:
            return False
        if self._ranges:
            if self.rules.oversize_release_fails and pool and pool[-1] >> SHIFT >= limit:
                raise OutOfDeviceMemoryError(self._growing, size)
            return False  # pages are given back by emptying the cache only
        wanted = max(size, limit)
        unused = [b for b in self._unused(pool) if self.segments[b] - b >= limit]
        enough = [base for base in unused if self.segments[base] - base >= wanted]
        if enough:
            self._release(pool, enough[0])
            return True
        released = 0
        for base in reversed(unused):
            if released >= wanted:
                break
            released += self.segments[base] - base
            self._release(pool, base)
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Give back unused large segments of at least average age, oldest average first."""
        if self._ages is None or self._limit is None:
            return
        excess = self.reserved - int(self.settings.gc_threshold * self._limit)
        if excess <= 0:
            return
        order = sorted(range(len(self.contexts)), key=self.contexts.__getitem__)
        pools = [self._pools[i][1] for i in order if not self.contexts[i].private_pool]
        unused = [(pool, base) for pool in pools for base in self._unused(pool)]
        ages = {base: self._searches - self._ages.get(base, 0) for _, base in unused}
        while excess > 0 and unused:
            average = sum(ages[base] for _, base in unused) / len(unused)
            kept = []
            for pool, base in unused:
                if ages[base] < average:
                    kept.append((pool, base))
                    continue
                excess -= self.segments[base] - base
                self._release(pool, base)
            unused = kept

    def _memory_limit(self) -> int | None:
        fraction = self.settings.fraction
        if fraction is None or (fraction >= 1.0 and not self.rules.full_fraction_limits):
            return None
        return int(fraction * self.device.total)

    def _address_ranges(self) -> dict[int, AddressRanges]:
        share = self.settings.address_space or self.rules.address_space
        found = {}
        for pools in self._pools:
            for pool, page in zip(
                pools, (self.rules.small_segment, self._large_segment), strict=True
            ):
                ranges = AddressRanges(self._edges, pool, self.device, self._count)
                ranges.set_sizes(page=page, length=int(share * self.device.total))
                found[id(pool)] = ranges
        return found
