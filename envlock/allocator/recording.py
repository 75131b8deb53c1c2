"""Reading ``alloc-trace/1``: what a real allocator was asked for and what it did, sizes only.

    initial   [segment id, base, bytes, pool s|l, [[block id, offset, bytes, requested bytes]]]
    events    S (segment id, base, bytes) a segment from the driver · R (segment id, bytes) one back
              a (block id, bytes, segment id, offset) · f (block id)

Bases are relative to the lowest segment. What was decided (S, and the place of an ``a``) may be
left out: then there is nothing to compare with. ``estimate`` says that no real allocator was
recorded, and why.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from envlock.allocator.history import Decisions, HeldBlock, HeldSegment, History, StartRequest
from envlock.allocator.model import EMPTY_CACHE, FREE, Operation
from envlock.errors import InputError

SCHEMA: Final = "alloc-trace/1"
GZIP_BEGIN: Final = b"\x1f\x8b"

_MOST_BYTES: Final = 1 << 30
"""A recording that unpacks to more is not read."""
_MOST_SIZE: Final = 1 << 44
"""Bytes of a block or segment, and the highest address."""


class _FaultError(Exception):
    """What is wrong with a recording, and where."""


def read_recording(path: Path) -> History:
    """Load a recording, packed by gzip or not. Raises InputError, naming the file and the spot."""
    try:
        with path.open("rb") as file:
            return parse_recording(path.name, read_text(file, path.name))
    except OSError as error:
        raise InputError(
            f"{path.name} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error


def read_text(file: BufferedReader, source: str) -> bytes:
    """The whole of a file, unpacked if gzip packed it. Raises InputError."""
    try:
        if file.peek(2)[:2] == GZIP_BEGIN:
            with gzip.open(file) as packed:
                return packed.read(_MOST_BYTES + 1)
        return file.read(_MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(
            f"{source} cannot be unpacked: {error}", hint="copy it again, or unpack it with gzip -d"
        ) from error


def parse_recording(name: str, text: bytes) -> History:
    """The history in a recording's JSON. Raises InputError, naming the spot."""
    if len(text) > _MOST_BYTES:
        raise InputError(
            f"{name} unpacks to more than {_MOST_BYTES >> 20} MiB", hint="record fewer steps"
        )
    try:
        return _history(name, json.loads(text))
    except _FaultError as fault:
        raise InputError(f"{name}: {fault}", hint=f"expected is {SCHEMA}") from fault
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name} is not JSON: {str(error)[:200]}", hint=f"expected is {SCHEMA}"
        ) from error


def _history(name: str, data: Any) -> History:
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise _FaultError("schema: not a recording of an allocator")
    rows = _rows(data, "initial")
    segments = [_segment(f"initial[{index}]", row) for index, row in enumerate(rows)]
    for one, following in pairwise(sorted(segments, key=lambda segment: segment.base)):
        if one.base + one.size > following.base:
            raise _FaultError("initial: two segments overlap")
    events = _Events({row[0]: row[1] for row in rows}, segments)
    for index, row in enumerate(_rows(data, "events")):
        events.add(f"events[{index}]", row)
    estimate = data.get("estimate", "")
    if not isinstance(estimate, str):
        raise _FaultError("estimate: not a text")
    return History(
        source=name,
        operations=events.operations,
        start=tuple(segments),
        start_requests=tuple(
            StartRequest(block.block, block.requested, segment.context)
            for segment in sorted(segments, key=lambda segment: segment.base)
            for block in segment.blocks
        ),
        start_reserved=sum(segment.size for segment in segments),
        decisions=Decisions(
            grown=events.grown,
            placed=events.placed,
            released={at: tuple(back) for at, back in events.released.items()},
            retries=frozenset(events.retries),
            peak_reserved=_optional(data.get("peak_reserved")),
            final_reserved=_optional(data.get("final_reserved")),
        ),
        estimate=estimate[:500],
    )


class _Events:
    """Takes events in order; keeps requests and decisions apart."""

    def __init__(self, bases: dict[int, int], start: Sequence[HeldSegment]) -> None:
        self.operations: list[Operation] = []
        self.grown: dict[int, tuple[int, int]] = {}
        self.placed: dict[int, int] = {}
        self.released: dict[int, list[tuple[int, int]]] = {}
        self.retries: set[int] = set()
        self._bases = bases
        self._alive = {one.block for segment in start for one in segment.blocks}
        if len(self._alive) != sum(len(segment.blocks) for segment in start):
            raise _FaultError("initial: a block id stands twice")
        self._new: tuple[int, int] | None = None
        self._releasing = False

    def add(self, where: str, row: Any) -> None:
        kind = row[0] if isinstance(row, list) and row else None
        if kind == "a":
            self._allocate(where, row)
        elif kind == "f":
            self._free(where, row)
        elif kind == "R":
            self._release(row)
        elif kind == "S":
            self._grow(row)
        else:
            raise _FaultError(f"{where}: not an event")
        self._releasing = kind == "R"

    def _allocate(self, where: str, row: list[Any]) -> None:
        block, size = _number(row, 1, where), _number(row, 2, where)
        if block in self._alive or not size:
            raise _FaultError(f"{where}: the block is in use already, or empty")
        self._alive.add(block)
        self.operations.append((block, size))
        offset = _optional(row[4]) if len(row) > 4 else None
        if offset is not None and (base := self._bases.get(row[3])) is not None:
            self.placed[block] = base + offset
        if self._new:
            self.grown[block], self._new = self._new, None

    def _free(self, where: str, row: list[Any]) -> None:
        block = _number(row, 1, where)
        if block in self._alive:  # otherwise it came to be before anything that is known
            self._alive.remove(block)
            self.operations.append((block, FREE))

    def _grow(self, row: list[Any]) -> None:
        if self._releasing:
            self.retries.add(len(self.operations) - 1)
        numbers = [_optional(value) for value in (*row[1:4], None, None, None)[:3]]
        number, base, size = numbers
        if number is not None and base is not None and size:
            self._bases[number] = base
            self._new = (base, size)

    def _release(self, row: list[Any]) -> None:
        """A run of these is the cache being emptied once."""
        if not self._releasing:
            self.operations.append((0, EMPTY_CACHE))
        number, size = (_optional(value) for value in (*row[1:3], None, None)[:2])
        base = None if number is None else self._bases.pop(number, None)
        if base is not None and size:
            self.released.setdefault(len(self.operations) - 1, []).append((base, size))


def _rows(data: dict[str, Any], key: str) -> list[Any]:
    rows = data.get(key)
    if not isinstance(rows, list):
        raise _FaultError(f"{key}: not a list")
    return rows


def _optional(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_SIZE else None


def _number(row: list[Any], column: int, where: str) -> int:
    value = _optional(row[column]) if column < len(row) else None
    if value is None:
        raise _FaultError(f"{where}: column {column} is not a number of bytes or an id")
    return value


def _segment(where: str, row: Any) -> HeldSegment:
    if not isinstance(row, list) or len(row) != 5 or row[3] not in ("s", "l"):
        raise _FaultError(f"{where}: not [id, base, size, pool, blocks]")
    _, base, size = (_number(row, column, where) for column in (0, 1, 2))
    blocks = []
    for block in row[4] if isinstance(row[4], list) else ():
        if not isinstance(block, list):
            raise _FaultError(f"{where}: a block is not [id, offset, size, requested]")
        number, offset, length, requested = (_number(block, column, where) for column in range(4))
        blocks.append(HeldBlock(block=number, offset=offset, size=length, requested=requested))
    blocks.sort(key=lambda block: block.offset)
    at = 0
    for one in blocks:
        if one.offset < at or not one.size or one.offset + one.size > size:
            raise _FaultError(f"{where}: a block overlaps another or the end")
        at = one.offset + one.size
    return HeldSegment(base=base, size=size, small=row[3] == "s", blocks=tuple(blocks))
