"""Memory snapshots: what torch writes is understood, and what it never writes is refused.

The snapshots are made here, in the documented layout, from recordings of real GPUs.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envlock.allocator.history import History
from envlock.allocator.model import COMPLETE, CONTEXT, EMPTY_CACHE, FREE, RETIRE
from envlock.allocator.replay import replay, score
from envlock.allocator.rules import MIB, Rules
from envlock.allocator.segments import Context
from envlock.allocator.snapshot import read_snapshot
from envlock.allocator.timeline import shown_frames
from envlock.errors import InputError

DATA = Path(__file__).parent / "data/allocator"
BASE = 0x7F00_0000_0000
FRAMES = [
    {"filename": "/usr/lib/python3/site-packages/torch/nn/linear.py", "name": "forward", "line": 9},
    {"filename": "/home/someone/train.py", "name": "step", "line": 42},
]
"""Innermost first, as torch has it."""


class SnapshotMaker:
    """What torch's recorder would have written, had it watched a recording."""

    def __init__(self, recording: dict[str, Any]) -> None:
        self.events: list[dict[str, Any]] = []
        self._segments = {row[0]: (BASE + row[1], row[2], row[3]) for row in recording["initial"]}
        self._alive = {
            block: (row[0], offset, size, requested)
            for row in recording["initial"]
            for block, offset, size, requested in row[4]
        }
        for event in recording["events"]:
            getattr(self, f"_{event[0]}")(*event[1:])

    def _add(self, action: str, address: int, size: int) -> None:
        self.events.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": 0,
                "time_us": 1_700_000_000_000_000 + 5 * len(self.events),
                "frames": FRAMES,
            }
        )

    def _S(self, number: int, base: int, size: int) -> None:  # noqa: N802 - the kind of event
        self._segments[number] = (BASE + base, size, "s" if size <= 2 * MIB else "l")
        self._add("segment_alloc", BASE + base, size)

    def _R(self, number: int, size: int) -> None:  # noqa: N802
        self._add("segment_free", self._segments.pop(number)[0], size)

    def _a(self, block: int, size: int, segment: int, offset: int) -> None:
        self._alive[block] = (segment, offset, size, size)
        self._add("alloc", self._segments[segment][0] + offset, size)

    def _f(self, block: int) -> None:
        segment, offset, _, requested = self._alive.pop(block)
        for action in ("free_requested", "free_completed"):
            self._add(action, self._segments[segment][0] + offset, requested)

    def snapshot(self) -> dict[str, Any]:
        rows = sorted(self._segments.items(), key=lambda item: item[1][0])
        return {
            "segments": [self._segment(number, *row) for number, row in rows],
            "device_traces": [self.events, []],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
        }

    def _segment(self, number: int, address: int, size: int, pool: str) -> dict[str, Any]:
        inside = sorted(row[1:] for row in self._alive.values() if row[0] == number)
        blocks = []
        at = 0
        for offset, length, requested in [*inside, (size, 0, 0)]:
            if at < offset:
                blocks.append(block(address + at, offset - at, 0, "inactive"))
            if length:
                blocks.append(block(address + offset, length, requested, "active_allocated"))
            at = offset + length
        return {
            "device": 0,
            "address": address,
            "total_size": size,
            "stream": 0,
            "segment_type": "small" if pool == "s" else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "blocks": blocks,
            "frames": [],
        }


def block(address: int, size: int, requested: int, state: str) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": FRAMES if requested else [],
    }


def from_recording(name: str) -> dict[str, Any]:
    packed = (DATA / f"{name}.json.gz").read_bytes()
    return SnapshotMaker(json.loads(gzip.decompress(packed))).snapshot()


def read(snapshot: Any) -> tuple[History, ...]:
    return read_snapshot(io.BytesIO(pickle.dumps(snapshot)), "snapshot.pickle")


def event(action: str, address: int = BASE, size: int = 512, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 7} | more


def read_events(*events: dict[str, Any], segments: tuple[dict[str, Any], ...] = ()) -> History:
    (history,) = read({"segments": list(segments), "device_traces": [list(events)]})
    return history


@pytest.mark.parametrize("name", ["trace-01", "trace-03", "trace-05"])
def test_a_snapshot_replays_as_exactly_as_its_recording(name: str) -> None:
    (history,) = read(from_recording(name))
    recording = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    found = replay(history, Rules())
    result = score(history, found)
    assert result.decisions_right == result.placements_right == result.allocations
    assert result.allocations == recording["allocations"]
    assert found.peak_reserved == recording["peak_reserved"]
    assert found.final_reserved == recording["final_reserved"]
    assert history.start_reserved == recording["initial_reserved"]
    assert history.start_unknown == ""
    assert len(history.times_us) == len(history.operations)
    assert history.settings_text == ""


def test_protocol_2_as_the_c_plus_plus_writer_uses() -> None:
    data = pickle.dumps(from_recording("trace-05"), protocol=2)
    (history,) = read_snapshot(io.BytesIO(data), "old")
    assert history.allocations == 937


def test_each_card_with_events_is_its_own_history() -> None:
    data = from_recording("trace-05")
    data["device_traces"] = [[], data["device_traces"][0]]
    for segment in data["segments"]:
        segment["device"] = 1
    (history,) = read(data)
    assert history.device == 1
    assert history.start


def test_frees_that_complete_later_are_retired_until_then() -> None:
    history = read_events(
        event("alloc"),
        event("free_requested"),
        event("alloc", BASE + 512),
        event("free_completed"),
        event("free_requested", BASE + 512),
        event("free_completed", BASE + 512),
    )
    assert history.operations == [(1, 512), (1, RETIRE), (2, 512), (1, COMPLETE), (2, FREE)]


def test_frees_without_completions_and_completions_without_requests() -> None:
    assert read_events(event("alloc"), event("free_requested")).operations == [(1, 512), (1, FREE)]
    assert read_events(event("alloc"), event("free_completed")).operations == [(1, 512), (1, FREE)]


def test_an_address_that_is_used_again_was_freed() -> None:
    history = read_events(event("alloc"), event("alloc", size=1024))
    assert history.operations == [(1, 512), (1, FREE), (2, 1024)]


def test_streams_and_private_pools_become_contexts() -> None:
    pool = {
        "device": 0,
        "address": BASE,
        "total_size": 2 * MIB,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 5),
        "blocks": [
            block(BASE, 512, 400, "active_allocated"),
            block(BASE, 2 * MIB - 512, 0, "inactive"),
        ],
    }
    history = read_events(
        event("segment_alloc", size=2 * MIB),
        event("alloc"),
        event("alloc", BASE + (1 << 30), stream=16),
        segments=(pool,),
    )
    assert history.contexts == (Context(), Context(private_pool=1), Context(stream=16))
    assert history.operations == [(1, CONTEXT), (1, 512), (2, CONTEXT), (2, 512)]
    assert history.decisions.grown == {1: (BASE, 2 * MIB)}


def test_a_cache_emptied_before_a_new_segment_or_a_failure_was_a_retry() -> None:
    free = event("segment_free", size=20 * MIB)
    oom = event("oom", size=30 * MIB, device_free=5 * MIB)
    del oom["addr"]
    history = read_events(free, event("segment_alloc", size=20 * MIB), event("alloc"))
    assert history.operations == [(0, EMPTY_CACHE), (1, 512)]
    assert history.decisions.retries == {0}
    assert history.start_reserved == 20 * MIB
    assert read_events(free, event("alloc")).decisions.retries == frozenset()
    failed = read_events(event("alloc"), free, oom, event("snapshot"), event("user_defined"))
    assert failed.decisions.retries == {1}
    (one,) = failed.ooms
    assert (one.operation, one.requested, one.device_free) == (2, 30 * MIB, 5 * MIB)


def test_pages_of_expandable_segments() -> None:
    history = read_events(
        event("alloc", BASE),
        event("segment_map", BASE + 20 * MIB, 20 * MIB),
        event("segment_map", BASE + 40 * MIB, 20 * MIB),
        event("alloc", BASE + 20 * MIB, 40 * MIB),
        event("free_requested", BASE + (1 << 33)),
        event("free_completed", BASE + (1 << 33)),
    )
    assert history.decisions.grown == {2: (BASE + 20 * MIB, 40 * MIB)}
    assert "expandable" in history.start_unknown
    assert [one.requested for one in history.start_requests] == [512]


def test_a_start_that_contradicts_itself_is_unknown_and_still_asked_about() -> None:
    history = read_events(event("free_requested"), event("free_completed"))
    assert history.start == ()
    assert "no known segment" in history.start_unknown
    assert len(history.start_requests) == 1


class Anything:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 3",)


HOSTILE = {
    "a class": pickle.dumps({"segments": [], "device_traces": [[Anything()]]}),
    "a class by protocol 0": b"cos\nsystem\n(S'exit 3'\ntR.",
    "an instance": b"(ios\nsystem\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"Psomewhere\n.",
    "a buffer from outside": b"\x80\x05\x97.",
    "a cut file": pickle.dumps(from_recording("trace-05"))[:-9],
    "nothing": b"",
    "text": b"hello, I am no pickle",
    "a number of two billion digits": b"\x80\x02\x8b\xff\xff\xff\x7f1",
    "a text of 2**62 bytes": b"\x80\x04\x8d" + bytes(7) + b"\x40x",
    "lists a million deep": b"\x80\x04" + b"]" * 1_000_000 + b"a" * 999_999 + b".",
    "no snapshot": pickle.dumps([1, 2]),
    "a missing key": pickle.dumps({"segments": []}),
    "no lists": pickle.dumps({"segments": 3, "device_traces": {}}),
    "traces of numbers": pickle.dumps({"segments": [], "device_traces": [7]}),
    "segments of numbers": pickle.dumps({"segments": [7], "device_traces": [[event("alloc")]]}),
    "no events": pickle.dumps({"segments": [], "device_traces": [[], []]}),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(InputError) as refusal:
        read_snapshot(io.BytesIO(data), "snapshot.pickle")
    assert len(refusal.value.message) < 400
    assert refusal.value.hint


def test_a_billion_entries_by_reference_are_counted_before_they_are_walked() -> None:
    many = [[event("alloc")] * 1_000_000] * 1000
    with pytest.raises(InputError, match="1000000000 events"):
        read({"segments": [], "device_traces": many})
    segment = {"device": 0, "blocks": [block(0, 1, 0, "inactive")] * 100_000}
    with pytest.raises(InputError, match="500000000 blocks"):
        read({"segments": [segment] * 5000, "device_traces": [[event("alloc")]]})


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.pop("addr"),
        lambda e: e.pop("action"),
        lambda e: e.update(addr=-1),
        lambda e: e.update(addr=1 << 60),
        lambda e: e.update(addr="0"),
        lambda e: e.update(size=True),
        lambda e: e.update(size=1.5),
        lambda e: e.update(size=1 << 50),
        lambda e: e.update(stream=None),
        lambda e: e.update(action="free_requested"),  # a block of the start, freed once already
    ],
)
def test_a_wrong_event_is_named(change: Change) -> None:
    bad = event("alloc")
    change(bad)
    with pytest.raises(InputError, match=r"device_traces\[0\]\[1\]"):
        read_events(event("free_completed"), bad)


@pytest.mark.parametrize("bad", [7, "alloc", None, ["alloc"]])
def test_what_is_no_event_is_named(bad: Any) -> None:
    with pytest.raises(InputError, match=r"device_traces\[0\]\[0\]"):
        read({"segments": [], "device_traces": [[bad]]})


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("address"),
        lambda s: s.update(address="x"),
        lambda s: s.update(total_size=5),
        lambda s: s.update(segment_pool_id=7),
        lambda s: s.update(segment_pool_id=(1, 2, 3)),
        lambda s: s["blocks"].append(3),
        lambda s: s["blocks"][0].pop("state"),
        lambda s: s["blocks"][0].update(size=-512),
        lambda s: s["blocks"].append(block(0, 0, 1, "active_allocated")),
    ],
)
def test_a_wrong_segment_is_named(change: Change) -> None:
    data = from_recording("trace-05")
    change(data["segments"][3])
    with pytest.raises(InputError, match=r"segments\[3\]"):
        read(data)


def test_blocks_of_nothing_at_the_start_take_the_least_that_torch_gives() -> None:
    """Empty ones would lie on top of each other, and give back what another holds."""
    history = read_events(
        event("free_requested", BASE + 2 * MIB, 0),
        event("segment_free", size=30 * MIB),
        event("free_requested", BASE + MIB, 0),
    )
    (segment,) = history.start
    assert [one.size for one in segment.blocks] == [MIB, 512]
    assert replay(history, Rules()).final_reserved == 30 * MIB


def test_more_streams_than_there_can_be() -> None:
    events = [event("alloc", BASE + 512 * n, stream=n) for n in range(5000)]
    with pytest.raises(InputError, match="1024 streams"):
        read_events(*events)


def test_frames_show_the_program_before_the_library_and_nothing_unprintable() -> None:
    assert shown_frames(FRAMES) == ("step (/home/someone/train.py:42)",)
    assert shown_frames(FRAMES[:1])[0].startswith("forward (")
    odd = [{"filename": "a\x1b[31m\n" + "b" * 999, "name": "f\u202e", "line": -1}]
    (text,) = shown_frames(odd)
    assert text.isprintable()
    assert len(text) < 400
    unclear: list[object] = [None, 7, "text", [7, None, {"name": 3, "filename": "x"}], [[[]]]]
    for nothing in unclear:
        assert shown_frames(nothing) == ()
