"""How free blocks are kept: sorted integers for the search, a map of ends for merging.

A pool is a sorted list with one integer a free block, its size and its address side by side, so
that ``bisect`` finds the smallest block that fits and, among equals, the one at the lowest
address. The map holds both ends of every free block, each leading to the other. No address is the
begin of one free block and the end of another: neighbours were merged, and segments never touch.
So whether a value lies above or below its key says which end the key is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

Pool = list[int]
Edges = dict[int, int]

SHIFT: Final = 56
"""Bits of an address. Recorded ones have 55."""
ADDRESS: Final = (1 << SHIFT) - 1


def insert(edges: Edges, pool: Pool, begin: int, end: int) -> None:
    """Add a free block that has no free neighbour."""
    edges[begin] = end
    edges[end] = begin
    insort(pool, (end - begin) << SHIFT | begin)


def remove(edges: Edges, pool: Pool, begin: int, end: int) -> None:
    """Take a whole free block out."""
    del edges[begin], edges[end]
    del pool[bisect_left(pool, (end - begin) << SHIFT | begin)]


def begin_of(edges: Edges, end: int) -> int | None:
    """Where the free block begins that ends here, if one does."""
    other = edges.get(end)
    return other if other is not None and other < end else None


def end_of(edges: Edges, begin: int) -> int | None:
    """Where the free block ends that begins here, if one does."""
    other = edges.get(begin)
    return other if other is not None and other > begin else None
