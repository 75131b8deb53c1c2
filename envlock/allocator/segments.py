"""Segments: what the driver gave, in which order more is asked for, and what goes back when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from envlock.allocator.device import Device
from envlock.allocator.expandable import AddressRanges
from envlock.allocator.freelist import ADDRESS, SHIFT, Edges, Pool
from envlock.allocator.rules import Rules
from envlock.allocator.settings import Settings

Change = tuple[int, int, int]
"""(block, address, bytes): memory from the driver, for the sake of a block; negative when back."""


class Context(NamedTuple):
    """Where allocations come from: a stream, in the default pool (0) or a private one."""

    private_pool: int = 0
    stream: int = 0


class OutOfDeviceMemoryError(Exception):
    """The allocation that this model could not serve, as torch's OutOfMemoryError."""

    def __init__(self, block: int, size: int) -> None:
        super().__init__(f"no memory for {size} bytes")
        self.block = block
        self.size = size


class Segments:
    """The pools of free blocks of one card, and the segments that they are parts of."""

    def __init__(
        self, rules: Rules, settings: Settings, device: Device, contexts: Sequence[Context]
    ) -> None:
        self.rules = rules
        self.settings = settings
        self.device = device
        self.contexts = tuple(contexts)
        self.edges: Edges = {}
        self.pools: list[tuple[Pool, Pool]] = [([], []) for _ in contexts]
        """Small and large, of each context."""
        self.ends: dict[int, int] = {}
        """End of each segment by its begin; expandable ones are in ``ranges``."""
        self.reserved = 0
        self.peak_reserved = 0
        self.retries = 0
        self.ooms = 0
        self.journal: list[Change] | None = None
        """What the driver was asked for, if somebody wants to know."""
        self.before_retry: Callable[[], None] = self.release_unused
        """Called when the card is full; whoever holds blocks back frees them here first."""
        self._growing = 0
        self._throws = settings.throw_early
        self._large_segment = settings.large_segment or rules.large_segment
        self._limit = self._memory_limit()
        self.ages: dict[int, int] | None = None
        """How many searches there had been when a free block came to be, by its begin."""
        if self._limit is not None and settings.gc_threshold:
            self.ages = {}
        self.searches = 0
        self.ranges: dict[int, AddressRanges] = {}
        """With expandable segments: of each pool, by its identity."""
        if settings.expandable:
            self.ranges = self._address_ranges()

    def add(self, base: int, size: int) -> None:
        """Count a segment as given by the driver."""
        self.ends[base] = base + size
        self._count(base, size)

    def grow(self, block: int, pool: Pool, size: int) -> tuple[int, int]:
        """A block that nothing else uses, from the driver; torch's order of last resorts."""
        self._growing = block
        if self.ages is not None:
            self._collect_garbage()
        grown = self._ask_driver(pool, size)
        if grown is None and self._release_oversize(pool, size):
            grown = self._ask_driver(pool, size)
        if grown is None:
            self.before_retry()
            self.retries += 1
            grown = self._ask_driver(pool, size)
        if grown is None:
            self.ooms += 1
            raise OutOfDeviceMemoryError(block, size)
        return grown

    def _ask_driver(self, pool: Pool, size: int) -> tuple[int, int] | None:
        """A segment, or more pages of one; None when there is no memory, or none is allowed."""
        rules = self.rules
        if size <= rules.small_size:
            segment = rules.small_segment
        elif size < rules.min_large:
            segment = self._large_segment
        else:
            segment = -(-size // rules.round_large) * rules.round_large
        if self._limit is not None and self.reserved + segment > self._limit:
            return None
        if self.ranges:
            return self.ranges[id(pool)].grow(size)
        device = self.device
        if self._throws and device.used + segment > device.total:
            raise OutOfDeviceMemoryError(self._growing, size)
        base = device.malloc(segment, self._growing)
        if base is None:
            return None
        self.ends[base] = end = base + segment
        self._count(base, segment)
        return base, end

    def release_unused(self) -> None:
        """Give every segment, or page of an expandable one, that nothing uses back to the driver.

        Private pools keep theirs: a captured graph may still write there.
        """
        shared = self._shared()
        for large in (1, 0):
            pools = [self.pools[index][large] for index in shared]
            for pool in pools:
                self._release(pool, self._unused(pool))
            if self.ranges:
                for pool in pools:
                    self.ranges[id(pool)].release()

    def _shared(self) -> list[int]:
        """Contexts of the default pool, in order of their streams."""
        order = sorted(range(len(self.contexts)), key=self.contexts.__getitem__)
        return [index for index in order if not self.contexts[index].private_pool]

    def _count(self, base: int, change: int) -> None:
        self.reserved = reserved = self.reserved + change
        if reserved > self.peak_reserved:  # noqa: PLR1730 - a call takes longer than the rest here
            self.peak_reserved = reserved
        if self.journal is not None:
            self.journal.append((self._growing, base, change))

    def _unused(self, pool: Pool) -> list[int]:
        """Begins of the segments that are one free block, smallest first."""
        edges, ends = self.edges, self.ends
        begins = [key & ADDRESS for key in pool]
        return [begin for begin in begins if edges[begin] == ends.get(begin)]

    def _release(self, pool: Pool, bases: Sequence[int]) -> None:
        """Give whole segments, each one free block, back to the driver."""
        if not bases:
            return
        gone = set(bases)
        pool[:] = [key for key in pool if key & ADDRESS not in gone]
        for base in bases:
            end = self.ends.pop(base)
            del self.edges[base], self.edges[end]
            self.device.free(base, end - base)
            self._count(base, base - end)

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """With a split limit: free one oversize block that is enough, or several largest first."""
        limit = self.settings.max_split
        if limit is None:
            return False
        if self.ranges:
            if self.rules.oversize_release_fails and pool and pool[-1] >> SHIFT >= limit:
                raise OutOfDeviceMemoryError(self._growing, size)
            return False  # pages are given back by emptying the cache only
        wanted = max(size, limit)
        unused = [b for b in self._unused(pool) if self.ends[b] - b >= limit]
        enough = [base for base in unused if self.ends[base] - base >= wanted]
        if enough:
            self._release(pool, enough[:1])
            return True
        released = 0
        for base in reversed(unused):
            if released >= wanted:
                break
            released += self.ends[base] - base
            self._release(pool, [base])
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Give back unused large segments of at least average age, oldest average first."""
        if self.ages is None or self._limit is None:
            return
        excess = self.reserved - int(self.settings.gc_threshold * self._limit)
        if excess <= 0:
            return
        pools = [self.pools[index][1] for index in self._shared()]
        unused = [(pool, base) for pool in pools for base in self._unused(pool)]
        ages = {base: self.searches - self.ages.get(base, 0) for _, base in unused}
        while excess > 0 and unused:
            average = sum(ages[base] for _, base in unused) / len(unused)
            kept = []
            for pool, base in unused:
                if ages[base] < average:
                    kept.append((pool, base))
                    continue
                excess -= self.ends[base] - base
                self._release(pool, [base])
            unused = kept

    def _memory_limit(self) -> int | None:
        fraction = self.settings.fraction
        if fraction is None or (fraction >= 1.0 and not self.rules.full_fraction_limits):
            return None
        return int(fraction * self.device.total)

    def _address_ranges(self) -> dict[int, AddressRanges]:
        share = self.settings.address_space or self.rules.address_space
        found = {}
        for pools in self.pools:
            for pool, page in zip(
                pools, (self.rules.small_segment, self._large_segment), strict=True
            ):
                ranges = AddressRanges(self.edges, pool, self.device, self._count)
                ranges.set_sizes(page=page, length=int(share * self.device.total))
                found[id(pool)] = ranges
        return found
