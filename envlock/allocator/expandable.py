"""Expandable segments: long address ranges that get memory page by page, where it is missing.

Each pool of each stream has its own ranges, usually one. A request that fits nowhere is put at the
lowest address where free and unmapped bytes in a row are enough, and the unmapped ones among them
get memory. When the cache is emptied, pages that lie wholly in free blocks lose theirs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from envlock.allocator import freelist
from envlock.allocator.device import Device
from envlock.allocator.freelist import ADDRESS, SHIFT, Edges, Pool

OnMapped = Callable[[int, int], None]
"""Told (begin, bytes) of memory that was added; bytes are negative where it was taken away."""


class AddressRanges:
    """The address ranges of one pool."""

    def __init__(self, edges: Edges, pool: Pool, device: Device, on_mapped: OnMapped) -> None:
        self._edges = edges
        self._pool = pool
        self._device = device
        self._on_mapped = on_mapped
        self._page = 0
        self._length = 0
        self._bases: list[int] = []
        self._begins: list[int] = []
        """Begins of unmapped stretches, sorted; their ends are in ``_unmapped``."""
        self._unmapped: dict[int, int] = {}

    def set_sizes(self, *, page: int, length: int) -> None:
        """Bytes of a page, and of a new range (rounded up to whole pages)."""
        self._page = page
        self._length = -(-length // page) * page

    def room_after(self, end: int) -> int:
        """How far a free block that ends here could grow."""
        return self._unmapped.get(end, end) - end

    def grow(self, size: int) -> tuple[int, int] | None:
        """A free block of at least this size, taken out of the pool; None when the card is full.

        What was mapped before the card turned out to be full stays mapped, as in torch.
        """
        begin = self._find(size)
        if begin is None:
            return None
        end = freelist.end_of(self._edges, begin)
        if end is None:
            mapped = self._map(begin, min(size, self._unmapped[begin] - begin))
            if mapped is None:
                return None
            begin, end = mapped
        while end - begin < size:
            wanted = min(size - (end - begin), self._unmapped[end] - end)
            mapped = self._map(end, wanted)
            if mapped is None:
                return None
            begin, end = mapped
        freelist.remove(self._edges, self._pool, begin, end)
        return begin, end

    def release(self) -> None:
        """Take the memory of every page that no block in use touches."""
        for key in tuple(self._pool):
            begin = key & ADDRESS
            index = bisect_left(self._bases, begin + 1) - 1
            if index >= 0 and begin < self._bases[index] + self._length:
                self._unmap(self._bases[index], begin, begin + (key >> SHIFT))

    def _find(self, size: int) -> int | None:
        """The lowest begin of free and unmapped bytes in a row, in a new range if need be.

        None for a request that is longer than any range.
        """
        for begin in self._begins:
            before = freelist.begin_of(self._edges, begin)
            first = begin if before is None else before
            at = first
            while at - first < size:
                step = freelist.end_of(self._edges, at) or self._unmapped.get(at)
                if step is None:
                    break
                at = step
            else:
                return first
        if size > self._length:
            return None
        base = self._device.reserve_addresses(self._length)
        insort(self._bases, base)
        self._add_unmapped(base, base + self._length)
        return base

    def _map(self, begin: int, size: int) -> tuple[int, int] | None:
        """Give an unmapped stretch memory from its begin on: all pages of it, or none."""
        end = begin + -(-size // self._page) * self._page
        if not self._device.map(end - begin):
            return None
        rest = self._drop_unmapped(begin)
        if end < rest:
            self._add_unmapped(end, rest)
        self._on_mapped(begin, end - begin)
        left = freelist.begin_of(self._edges, begin)
        if left is not None:
            freelist.remove(self._edges, self._pool, left, begin)
            begin = left
        right = freelist.end_of(self._edges, end)
        if right is not None:
            freelist.remove(self._edges, self._pool, end, right)
            end = right
        freelist.insert(self._edges, self._pool, begin, end)
        return begin, end

    def _unmap(self, base: int, begin: int, end: int) -> None:
        """Take the whole pages out of a free block; what is left of it at its ends stays free."""
        first = base + -(-(begin - base) // self._page) * self._page
        last = base + (end - base) // self._page * self._page
        if first >= last:
            return
        freelist.remove(self._edges, self._pool, begin, end)
        if begin < first:
            freelist.insert(self._edges, self._pool, begin, first)
        if last < end:
            freelist.insert(self._edges, self._pool, last, end)
        self._device.unmap(last - first)
        self._on_mapped(first, first - last)
        if last in self._unmapped:
            last = self._drop_unmapped(last)
        index = bisect_left(self._begins, first) - 1
        if index >= 0 and self._unmapped[self._begins[index]] == first:
            first = self._begins[index]
            self._drop_unmapped(first)
        if first == base and last == base + self._length:
            self._bases.remove(base)  # nothing left: the range itself is given back
        else:
            self._add_unmapped(first, last)

    def _add_unmapped(self, begin: int, end: int) -> None:
        self._unmapped[begin] = end
        insort(self._begins, begin)

    def _drop_unmapped(self, begin: int) -> int:
        del self._begins[bisect_left(self._begins, begin)]
        return self._unmapped.pop(begin)
