"""The driver's side: how much memory a card has, and at which address a segment begins.

The allocator only ever learns addresses and "no" from a driver, so this is all it needs of one.
Addresses matter because ties between equally large free blocks go to the lowest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

PAGE = 2 << 20
"""The driver hands out memory in pages of this many bytes."""

_FIRST_ADDRESS = 1 << 32
_BEYOND_RECORDED = 1 << 55
"""Above every address that a recording may hold."""
_UNLIMITED = 1 << 44
"""Stands in for the size of a card that was not named, where a size is needed (16 TiB)."""


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


class Device:
    """A card with ``capacity`` bytes for this process, or without a limit.

    New segments get rising addresses with a page between them: the allocator relies on segments
    never touching.
    """

    def __init__(self, capacity: int | None = None, *, first_address: int = _FIRST_ADDRESS) -> None:
        self.capacity = capacity
        self.used = 0
        self._next = first_address

    @property
    def total(self) -> int:
        return _UNLIMITED if self.capacity is None else self.capacity

    def malloc(self, size: int, block: int = 0) -> int | None:
        """The address of a new segment, or None when the card is full.

        ``block`` is the id of the allocation that needs it.
        """
        del block  # this card treats all alike
        return self.reserve_addresses(size) if self.map(size) else None

    def free(self, base: int, size: int) -> None:
        del base  # this card never uses an address twice
        self.unmap(size)

    def reserve_addresses(self, size: int) -> int:
        """A range of addresses without memory behind it."""
        base = self._next
        self._next += _pages(size) + PAGE
        return base

    def map(self, size: int) -> bool:
        if self.used + _pages(size) > self.total:
            return False
        self.used += _pages(size)
        return True

    def unmap(self, size: int) -> None:
        self.used -= _pages(size)


class RecordedDevice(Device):
    """A driver that puts segments where a recording says the real one did, and elsewhere beyond."""

    def __init__(self, taken: Iterable[tuple[int, int]], recorded: Mapping[int, int]) -> None:
        """``taken``: begin and end of the segments that exist already.

        ``recorded``: where the segment went that the real driver gave for the sake of a block.
        """
        super().__init__(first_address=_BEYOND_RECORDED)
        self._end_of = dict(taken)
        self._begins = sorted(self._end_of)
        self._recorded = recorded

    def malloc(self, size: int, block: int = 0) -> int | None:
        begins, begin = self._begins, self._recorded.get(block, -1)
        at = bisect_left(begins, begin)
        if (
            begin < 0
            # a gap is right, and an overlap by less than segments are moved apart
            or (at < len(begins) and not 0 != begin + size - begins[at] < AddressBook.SHIFTS)
            or (at and not 0 != self._end_of[begins[at - 1]] - begin < AddressBook.SHIFTS)
        ):
            begin = self.reserve_addresses(size)
            at = len(begins)
        begins.insert(at, begin)
        self._end_of[begin] = begin + size
        return begin

    def free(self, base: int, size: int) -> None:
        del size
        del self._begins[bisect_left(self._begins, base)], self._end_of[base]


class AddressBook:
    """Moves recorded segments apart that touch, by so few bytes that no order changes."""

    SHIFTS: Final = 3
    """Of 0, 1 and 2 bytes one is always left: a segment touches at most two others."""

    def __init__(self) -> None:
        self._begins: dict[int, int] = {}
        """Shift of the segment that begins at a recorded address."""
        self._ends: dict[int, int] = {}
        """Shift of the segment that ends at a recorded address."""

    def add(self, base: int, size: int) -> int:
        """Where a segment that was recorded at ``base`` is said to lie."""
        touching = {self._ends.get(base), self._begins.get(base + size)}
        shift = next(shift for shift in range(self.SHIFTS) if shift not in touching)
        self._begins[base] = self._ends[base + size] = shift
        return base + shift

    def drop(self, base: int, size: int) -> None:
        self._begins.pop(base, None)
        self._ends.pop(base + size, None)
