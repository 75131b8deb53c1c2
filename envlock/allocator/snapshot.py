"""A user's own ``torch.cuda.memory._dump_snapshot`` file, turned into histories.

The file holds the segments at its end and, a card, the last events before it. What is freed without
having been allocated, or is there at the end without it, existed when the events begin. Every
value is checked where it is read: the file may come from anybody.

Layout (``torch/cuda/memory.py`` and ``torch/csrc/cuda/memory_snapshot.cpp``, torch 2.0 on)::

    segments       [{device, address, total_size, stream, segment_type small|large,
                     segment_pool_id, is_expandable, blocks: [{size, requested_size,
                     state active_allocated|active_pending_free|inactive, frames}]}]
    device_traces  [[{action, addr, size, stream, time_us, frames, device_free}]], a list a card
    allocator_settings  {PYTORCH_CUDA_ALLOC_CONF, ...}
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any, Final

from envlock.allocator.events import CardEvents, PrivateRange
from envlock.allocator.history import Decisions, HeldBlock, HeldSegment, History, StartRequest
from envlock.allocator.rules import Rules
from envlock.allocator.segments import Context
from envlock.allocator.unpickle import load_plain
from envlock.errors import InputError

_MOST_EVENTS: Final = 50_000_000
_MOST_BLOCKS: Final = 20_000_000
"""Of all cards and segments together: one object in a pickle may stand in many places."""
_MOST_CARDS: Final = 1024
_MOST: Final = 1 << 55
_HINT: Final = "a snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes"
_RULES: Final = Rules()


@dataclass(frozen=True, slots=True)
class _Block:
    address: int
    size: int
    requested: int
    frames: object


@dataclass(frozen=True, slots=True)
class _Segment:
    """A segment as it is at the end of the recording."""

    address: int
    size: int
    small: bool
    stream: int
    pool: int
    expandable: bool
    active: tuple[_Block, ...]


def read_snapshot(file: IO[bytes], source: str) -> tuple[History, ...]:
    """One history a card that has events. Raises InputError where the file is no snapshot."""
    data = load_plain(file)
    if not isinstance(data, dict):
        raise InputError(f"{source} holds no memory snapshot", hint=_HINT)
    traces, segments = data.get("device_traces"), data.get("segments")
    if not isinstance(traces, list) or not isinstance(segments, list) or len(traces) > _MOST_CARDS:
        raise InputError(f"{source} holds no memory snapshot", hint=_HINT)
    found = []
    _refuse_too_large(traces, segments, source)
    for device, trace in enumerate(traces):
        where = f"{source}: device_traces[{device}]"
        if not trace:
            continue
        ended = list(_segments(segments, device, source))
        events = CardEvents(
            [PrivateRange(s.address, s.address + s.size, s.pool) for s in ended if s.pool]
        )
        events.read(trace, where)
        found.append(_history(source, device, _settings_text(data), ended, events))
    if not found:
        raise InputError(
            f"{source} holds no events, only the state at its end",
            hint="call torch.cuda.memory._record_memory_history() before the run",
        )
    return tuple(found)


def _refuse_too_large(traces: Sequence[Any], segments: Sequence[Any], source: str) -> None:
    """Count before walking: a short pickle may refer to one long list a million times."""
    events = blocks = 0
    for device, trace in enumerate(traces):
        if not isinstance(trace, list):
            raise InputError(f"{source}: device_traces[{device}] is not a list", hint=_HINT)
        events += len(trace)
    for index, segment in enumerate(segments):
        row = segment.get("blocks") if isinstance(segment, dict) else None
        if not isinstance(row, list):
            raise InputError(f"{source}: segments[{index}] has no list of blocks", hint=_HINT)
        blocks += len(row)
    if events > _MOST_EVENTS or blocks > _MOST_BLOCKS or len(segments) > _MOST_BLOCKS:
        raise InputError(
            f"{source} holds {events} events and {blocks} blocks, more than any snapshot",
            hint="record fewer events (max_entries of _record_memory_history)",
        )


def _settings_text(data: dict[Any, Any]) -> str | None:
    settings = data.get("allocator_settings")
    text = settings.get("PYTORCH_CUDA_ALLOC_CONF") if isinstance(settings, dict) else None
    return text if isinstance(text, str) else None


def _segments(rows: Sequence[Any], device: int, source: str) -> Iterator[_Segment]:
    pools: dict[object, int] = {(0, 0): 0}
    for index, row in enumerate(rows):
        where = f"{source}: segments[{index}]"
        try:
            if row["device"] == device:
                yield _segment(row, pools, where)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{where} is not a segment: {error!r}"[:300], hint=_HINT) from error


def _segment(row: dict[str, Any], pools: dict[object, int], where: str) -> _Segment:
    at = address = _number(row["address"])
    active = []
    for block in row["blocks"]:
        size = _number(block["size"])
        if block["state"] != "inactive":
            if not size:
                raise ValueError("a block in use has no size")
            requested = block.get("requested_size", size)
            active.append(_Block(at, size, _number(requested) or size, block.get("frames")))
        at += size
    total = _number(row["total_size"])
    if at != address + total:
        raise InputError(f"{where}: its blocks are not as long as it is", hint=_HINT)
    first, second = row.get("segment_pool_id", (0, 0))
    return _Segment(
        address=address,
        size=total,
        small=row["segment_type"] == "small",
        stream=_number(row.get("stream", 0)),
        pool=pools.setdefault((_number(first), _number(second)), len(pools)),
        expandable=row.get("is_expandable") is True,
        active=tuple(active),
    )


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError("a number is missing or out of range")
    return value


def _history(
    source: str,
    device: int,
    settings_text: str | None,
    ended: Sequence[_Segment],
    events: CardEvents,
) -> History:
    contexts = {context: index for index, context in enumerate(events.contexts)}
    held = [one for one in ended if one.address not in events.new_segments]
    held += [
        _Segment(
            address, size, size <= _RULES.small_segment, stream, 0, expandable=False, active=()
        )
        for address, (size, stream) in events.start_segments.items()
    ]
    blocks = {
        address: (one.block, one.requested, 0, one.context)
        for address, one in events.start_blocks.items()
    }
    frames = dict(events.frames)
    number = len(events.placed) + len(events.start_blocks)
    for segment in ended:
        context = contexts.setdefault(Context(segment.pool, segment.stream), len(contexts))
        for block in segment.active:
            if block.address in events.alive or block.address in blocks:
                continue
            number += 1
            blocks[block.address] = (number, block.requested, block.size, context)
            if block.frames:
                frames[number] = block.frames
    start: tuple[HeldSegment, ...] = ()
    unknown = ""
    if events.expandable or any(one.expandable for one in ended):
        unknown = "the recording has expandable segments, whose pages at its start are not known"
    else:
        try:
            start = tuple(_held(held, blocks, contexts))
        except _UnclearStartError as error:
            unknown = str(error)
    return History(
        source=source,
        device=device,
        operations=events.operations,
        start=start,
        start_requests=tuple(
            StartRequest(block, requested, context)
            for _, (block, requested, _, context) in sorted(blocks.items())
        ),
        start_unknown=unknown if blocks else "",
        start_reserved=sum(one.size for one in held),
        contexts=tuple(contexts),
        decisions=Decisions(
            grown=events.grown,
            placed=events.placed,
            released={at: tuple(back) for at, back in events.released.items()},
            retries=frozenset(events.retries),
        ),
        settings_text=settings_text,
        times_us=events.times_us,
        frames=frames,
        ooms=tuple(events.ooms),
    )


class _UnclearStartError(Exception):
    """The segments at the start cannot be told from what was recorded."""


def _held(
    held: Sequence[_Segment],
    blocks: dict[int, tuple[int, int, int, int]],
    contexts: dict[Context, int],
) -> Iterator[HeldSegment]:
    """Put the blocks of the start into the segments of the start."""
    ordered = sorted(held, key=lambda one: one.address)
    for one, following in pairwise(ordered):
        if one.address + one.size > following.address:
            raise _UnclearStartError("segments at the start overlap")
    bases = [one.address for one in ordered]
    inside: list[list[int]] = [[] for _ in ordered]
    for address in sorted(blocks):
        at = bisect_right(bases, address) - 1
        if at < 0 or address >= bases[at] + ordered[at].size:
            raise _UnclearStartError("a block at the start lies in no known segment")
        inside[at].append(address)
    for segment, addresses in zip(ordered, inside, strict=True):
        yield HeldSegment(
            base=segment.address,
            size=segment.size,
            small=segment.small,
            context=contexts.setdefault(Context(segment.pool, segment.stream), len(contexts)),
            blocks=tuple(_laid_out(segment, addresses, blocks)),
        )


def _laid_out(
    segment: _Segment, addresses: Sequence[int], blocks: dict[int, tuple[int, int, int, int]]
) -> Iterator[HeldBlock]:
    """Sizes of blocks. A free rest too small to have been split off belongs to its block."""
    least_rest = _RULES.small_rest if segment.small else _RULES.large_rest
    end = segment.address + segment.size
    for address, following in pairwise([*addresses, end]):
        number, requested, size, _ = blocks[address]
        size = size or -(-requested // _RULES.min_block) * _RULES.min_block
        if 0 < following - address - size < least_rest:
            size = following - address
        if address + size > following:
            raise _UnclearStartError("blocks at the start overlap")
        yield HeldBlock(
            block=number, offset=address - segment.address, size=size, requested=requested
        )
