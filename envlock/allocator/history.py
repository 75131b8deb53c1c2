"""What happened in one process on one card: the form that every replay and question works on.

``recording`` reads it from an ``alloc-trace/1`` file, ``snapshot`` from a user's own snapshot.
What was requested stands in ``operations``; what the real allocator and its driver decided stands
apart, so that a replay can be done without looking at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from envlock.allocator.model import Operation
from envlock.allocator.segments import Context


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldBlock:
    """A block in use when a history begins."""

    block: int
    offset: int
    size: int
    requested: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldSegment:
    """A segment that exists when a history begins; what no block covers is free."""

    base: int
    size: int
    small: bool
    blocks: tuple[HeldBlock, ...]
    """In order of their offsets."""
    context: int = 0


class StartRequest(NamedTuple):
    """A block in use when a history begins, as it was asked for."""

    block: int
    requested: int
    context: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedOom:
    """An allocation that the real card could not serve."""

    operation: int
    """How many operations came before it."""
    requested: int
    device_free: int
    """What the driver still had, in bytes."""
    context: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """What the real allocator and its driver did, as far as it was recorded."""

    grown: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """(address, bytes) of what the driver gave for the sake of a block."""
    placed: Mapping[int, int] = field(default_factory=dict)
    """Address of a block."""
    released: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """(address, bytes) that went back to the driver in an operation, by its index."""
    retries: frozenset[int] = frozenset()
    """Operations that emptied the cache because the card was full, not because it was asked for."""
    peak_reserved: int | None = None
    final_reserved: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    source: str
    operations: Sequence[Operation]
    start: tuple[HeldSegment, ...] = ()
    start_requests: tuple[StartRequest, ...] = ()
    """What was in use at the start, by address; also where ``start`` is not known."""
    start_unknown: str = ""
    """Why ``start`` is not known although something was in use."""
    start_reserved: int = 0
    contexts: tuple[Context, ...] = (Context(),)
    decisions: Decisions = field(default_factory=Decisions)
    device: int = 0
    settings_text: str | None = None
    """PYTORCH_CUDA_ALLOC_CONF of the recorded process; None where the file does not say."""
    times_us: Sequence[int] = ()
    """Of each operation, or nothing."""
    frames: Mapping[int, object] = field(default_factory=dict)
    """Where a block was allocated, as the file has it: checked only when it is shown."""
    ooms: tuple[RecordedOom, ...] = ()
    estimate: str = ""
    """Why the sizes are an estimate; empty where a real allocator was recorded."""

    @property
    def allocations(self) -> int:
        return sum(size > 0 for _, size in self.operations)
