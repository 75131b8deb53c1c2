"""One card's events of a snapshot, in one pass: requests on one side, decisions on the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import length_hint
from typing import Any, Final, NamedTuple

from envlock.allocator.history import RecordedOom
from envlock.allocator.model import COMPLETE, CONTEXT, EMPTY_CACHE, FREE, RETIRE, Operation
from envlock.allocator.segments import Context
from envlock.errors import InputError

_MOST: Final = 1 << 55
"""Of an address or a stream: both are addresses that a process can use."""
_MOST_SIZE: Final = 1 << 44
_MOST_CONTEXTS: Final = 1024


class PrivateRange(NamedTuple):
    """Addresses of a private pool, which events of most releases do not name."""

    begin: int
    end: int
    pool: int


class StartBlock(NamedTuple):
    """A block that is freed in a trace and was allocated before it."""

    block: int
    requested: int
    context: int


class CardEvents:
    """What the events of one card say; ``read`` fills it."""

    def __init__(self, private: Sequence[PrivateRange] = ()) -> None:
        self.operations: list[Operation] = []
        self.times_us: list[int] = []
        self.contexts: list[Context] = [Context()]
        self.frames: dict[int, object] = {}
        self.grown: dict[int, tuple[int, int]] = {}
        self.placed: dict[int, int] = {}
        self.released: dict[int, list[tuple[int, int]]] = {}
        self.retries: set[int] = set()
        self.ooms: list[RecordedOom] = []
        self.start_blocks: dict[int, StartBlock] = {}
        """By address."""
        self.start_segments: dict[int, tuple[int, int]] = {}
        """(bytes, stream) of what went back to the driver and came before, by address."""
        self.new_segments: dict[int, int] = {}
        """Bytes of what came from the driver and did not go back, by address."""
        self.alive: dict[int, int] = {}
        """Block by address, of those that were allocated here and not freed."""
        self.expandable = False
        self._private = sorted(private)
        self._indices: dict[tuple[int, int], int] = {(0, 0): 0}
        self._new: tuple[int, int] | None = None
        self._releasing = -2
        """The operation that the segments given back now belong to."""

    def read(self, trace: Sequence[Any], where: str) -> None:
        """Take all events. Raises InputError, naming the first one that is wrong."""
        events = iter(trace)
        try:
            completions = self._read(events)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            at = len(trace) - length_hint(events) - 1
            raise InputError(
                f"{where}[{at}] is not an event of the allocator: {reason[:200]}",
                hint="a snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes",
            ) from error
        if not completions:
            # recorded without them: what was asked for is all that is known
            self.operations = [
                (block, FREE if code == RETIRE else code) for block, code in self.operations
            ]

    def _read(  # noqa: C901, PLR0912, PLR0915 - a call for each event would double the time
        self, events: Iterable[Any]
    ) -> int:
        """Returns how many frees were seen to be completed."""
        operations, times, alive = self.operations, self.times_us, self.alive
        placed, frames, private = self.placed, self.frames, self._private
        pending: dict[int, int] = {}
        number = current = completions = stream_before = 0
        for event in events:
            action = event["action"]
            if action == "alloc":
                address, size, stream = event["addr"], event["size"], event["stream"]
                _check(address, size, stream)
                if stream != stream_before or private:
                    stream_before = stream
                    context = self._context(stream, address)
                    if context != current:
                        current = context
                        operations.append((context, CONTEXT))
                        times.append(event.get("time_us", 0))
                if address in alive:  # its free was not recorded
                    operations.append((alive[address], FREE))
                    times.append(event.get("time_us", 0))
                number += 1
                alive[address] = number
                placed[number] = address
                if where := event.get("frames"):
                    frames[number] = where
                if self._new:
                    self.grown[number], self._new = self._new, None
                # torch asks for nothing where nothing is asked of it
                operations.append((number, size or 1))
            elif action == "free_requested":
                address = event["addr"]
                block = alive.pop(address, None)
                if block is None:
                    block = number = number + 1
                    self._note_start(block, event)
                pending[address] = block
                operations.append((block, RETIRE))
            elif action == "free_completed":
                address = event["addr"]
                completions += 1
                block = pending.pop(address, None)
                if block is not None and operations[-1] == (block, RETIRE):
                    operations[-1] = (block, FREE)
                    continue
                if block is not None:
                    operations.append((block, COMPLETE))
                else:
                    block = alive.pop(address, None)
                    if block is None:
                        block = number = number + 1
                        self._note_start(block, event)
                    operations.append((block, FREE))
            elif not self._take_rare(action, event):
                continue
            times.append(event.get("time_us", 0))
        return completions

    def _take_rare(self, action: object, event: dict[str, Any]) -> bool:
        """What happened at the driver; says whether it is an operation of its own."""
        if action in ("segment_alloc", "segment_map"):
            address, size = event["addr"], event["size"]
            _check(address, size, 0)
            self.expandable = self.expandable or action == "segment_map"
            self._note_retry()
            begin, before = self._new or (address, 0)
            self._new = (begin, before + size)
            self.new_segments[address] = size
            return False
        if action in ("segment_free", "segment_unmap"):
            address, size, stream = event["addr"], event["size"], event["stream"]
            _check(address, size, stream)
            first = self._releasing != len(self.operations) - 1
            if first:  # a run of these is the cache being emptied once
                self.operations.append((0, EMPTY_CACHE))
                self._releasing = len(self.operations) - 1
            if self.new_segments.pop(address, None) is None:
                self.start_segments[address] = (size, stream)
            self.released.setdefault(self._releasing, []).append((address, size))
            return first
        if action == "oom":
            free, size, stream = event["device_free"], event["size"], event["stream"]
            _check(free, size, stream)
            self._note_retry()
            self.ooms.append(
                RecordedOom(
                    operation=len(self.operations),
                    requested=size,
                    device_free=free,
                    context=self._context(stream, 0),
                )
            )
        return False  # snapshot, user_defined, and what torch may add

    def _note_retry(self) -> None:
        """The cache was emptied just now because the card was full."""
        if self._releasing >= 0 and self._releasing == len(self.operations) - 1:
            self.retries.add(self._releasing)

    def _note_start(self, block: int, event: dict[str, Any]) -> None:
        address, size, stream = event["addr"], event["size"], event["stream"]
        _check(address, size, stream)
        if address in self.start_blocks:
            raise ValueError("a block is freed twice")
        # torch has no block of nothing, whatever an event says
        self.start_blocks[address] = StartBlock(block, max(size, 1), self._context(stream, address))

    def _context(self, stream: int, address: int) -> int:
        pool = 0
        if self._private:
            at = bisect_right(self._private, (address, _MOST, 0)) - 1
            if at >= 0 and address < self._private[at].end:
                pool = self._private[at].pool
        index = self._indices.get((pool, stream))
        if index is None:
            index = self._indices[pool, stream] = len(self.contexts)
            if index >= _MOST_CONTEXTS:
                raise ValueError(f"more than {_MOST_CONTEXTS} streams")
            self.contexts.append(Context(pool, stream))
        return index


def _check(address: object, size: object, stream: object) -> None:
    if (
        not (type(address) is type(size) is type(stream) is int)
        or not 0 <= address < _MOST
        or not 0 <= size < _MOST_SIZE
        or not 0 <= stream < _MOST
    ):
        raise ValueError("a number is missing or out of range")
