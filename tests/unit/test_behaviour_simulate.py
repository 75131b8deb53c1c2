"""Traces and recordings of the smoke probe, played to the allocator model."""

from __future__ import annotations

from typing import Any

import pytest

from envlock.errors import InputError
from envlock.findings import Severity
from envlock.lock.behaviour import Unavailable
from envlock.rules.behaviour import judge_behaviour
from envlock.targets.base import ProbeCall
from envlock.targets.simulate import check_model, peak_requested, simulate
from envlock.targets.smoke import measure
from tests.unit.probes import probe_module

MIB = 1 << 20
GROWING = [
    *((block, 30 * MIB) for block in range(1, 5)),
    *((block, 0) for block in range(1, 5)),
    *((block, 50 * MIB) for block in range(5, 8)),
    *((block, 0) for block in range(5, 8)),
]
"""Blocks that none of the released ones is large enough for."""


def test_peak_requested_is_what_is_alive_at_once() -> None:
    assert peak_requested([(1, 10), (2, 20), (1, 0), (3, 5), (2, 0), (3, 0)]) == 30


def test_growing_blocks_reserve_more_than_is_used_and_expandable_segments_do_not() -> None:
    probe = simulate(
        GROWING, "2.6.0+cu124", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    )
    plain, expandable = probe["values"]["default_settings"], probe["values"]["user_settings"]
    assert plain["requested"] == expandable["requested"] == 150 * MIB
    assert plain["reserved"] == 270 * MIB
    assert plain["min_device"] < plain["reserved"]
    assert expandable["reserved"] == 160 * MIB
    assert probe["settings"] == {"user_settings": "expandable_segments:True"}


def test_timeline_has_the_most_of_each_stretch() -> None:
    short = simulate(GROWING, "2.6.0", {})["values"]["default_settings"]["timeline"]
    assert short["operations"] == len(short["allocated"]) == len(GROWING)
    assert short["allocated"][:5] == [30 * MIB, 60 * MIB, 90 * MIB, 120 * MIB, 90 * MIB]
    assert short["reserved"][-1] == 270 * MIB
    trace = [*((n, MIB * (1 + n % 7)) for n in range(1, 301)), *((n, 0) for n in range(1, 301))]
    figures = simulate(trace, "2.6.0", {})["values"]["default_settings"]
    long = figures["timeline"]
    assert long["operations"] == 600
    assert len(long["allocated"]) == len(long["reserved"]) == 60
    assert figures["requested"] < max(long["allocated"]) < 1.05 * figures["requested"]  # rounded
    assert max(long["reserved"]) == figures["reserved"]


def test_without_settings_only_the_default_is_simulated() -> None:
    assert simulate(GROWING, "2.6.0", {})["values"].keys() == {"default_settings"}


def test_settings_that_torch_would_refuse_are_skipped_with_the_reason() -> None:
    probe = simulate(GROWING, "2.6.0", {"PYTORCH_CUDA_ALLOC_CONF": "no_such_option:1"})
    assert "no_such_option" in probe["skipped"]["user_settings"]


def test_a_release_that_is_not_modelled_is_refused() -> None:
    with pytest.raises(InputError, match=r"1\.4"):
        simulate(GROWING, "1.4.0", {})


BASE = 0x7F0000000000
TRACE = [
    {"action": "segment_alloc", "addr": BASE, "size": 2 * MIB},
    {"action": "alloc", "addr": BASE, "size": 1000},
    {"action": "alloc", "addr": BASE + 1024, "size": 512},
    {"action": "free_requested", "addr": BASE, "size": 1000},
    {"action": "free_completed", "addr": BASE, "size": 1000},
    {"action": "alloc", "addr": BASE, "size": 512},
    {"action": "segment_alloc", "addr": BASE + 4 * MIB, "size": 20 * MIB},
    {"action": "alloc", "addr": BASE + 4 * MIB, "size": 5 * MIB},
]
"""As ``torch.cuda.memory._snapshot()["device_traces"][0]`` has it."""


def test_a_snapshot_of_the_card_becomes_a_recording_that_the_model_repeats() -> None:
    recording = probe_module("smoke_snapshot").as_recording(TRACE, 22 * MIB)
    assert recording["events"][0] == ["S", 0, 0, 2 * MIB]
    assert check_model(recording, "2.6.0", {}) == {
        "allocations": 4,
        "decisions_right": 4,
        "placements_right": 4,
        "peak_reserved": 22 * MIB,
        "recorded_peak_reserved": 22 * MIB,
    }


def test_a_card_that_decides_otherwise_is_counted() -> None:
    strange = [dict(event) for event in TRACE]
    strange[6]["size"] = 6 * MIB  # a card that asks for just what it needs
    recording = probe_module("smoke_snapshot").as_recording(strange, 8 * MIB)
    assert check_model(recording, "2.6.0", {})["decisions_right"] == 3


class Killed:
    """A container in which the memory limit ended the loaders, after /dev/shm was looked at."""

    set_by_envlock = ()
    reason = "the process was ended by SIGKILL (the memory limit of this control group killed 2)"

    def describe(self) -> str:
        return "image:small"

    def run_probe(self, call: ProbeCall) -> dict[str, Any]:
        shm = {"status": "ok", "seconds": 0.1, "free": 1 << 30, "largest_block": 1 << 26}
        return {
            "battery": probe_module("smoke_groups").battery_digest(),
            "threads": 1,
            "noise": {},
            "probes": {"shm": {**shm, "skipped": {"all": self.reason}}},
        }


def test_a_probe_that_was_killed_half_way_is_unavailable_and_not_a_broken_answer() -> None:
    measured = measure(Killed(), battery=("shm",))
    assert measured.probes.shm == Unavailable(status="unavailable", reason=Killed.reason)
    errors = [f for f in judge_behaviour(None, measured).findings if f.severity is Severity.ERROR]
    assert [f.code for f in errors] == ["EL815"]
