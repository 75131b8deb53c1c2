"""Before a long run: disks, compile caches, and what the GPU does at this moment."""

from __future__ import annotations

from typing import Any

import pytest

from envlock.diff.judge import Judgement, Status
from envlock.findings import Severity
from tests.unit.envs import ABSENT, Facts, check_lead, codes, gpu, one, pair
from tests.unit.healthy import CUDA_TORCH

MIB, GIB = 2**20, 2**30


def places(**facts: Any) -> Facts:
    roomy = {
        "path": "/srv",
        "filesystem": "ext4",
        "free_bytes": 500 * GIB,
        "total_bytes": 900 * GIB,
        "free_files": 10**6,
        "writable": True,
    }
    name = facts.pop("name", "working")
    every = dict.fromkeys(("working", "temporary", "cache"), roomy)
    return {"preflight/places": {**every, name: {**roomy, **facts}}}


def caches(name: str = "triton", **facts: Any) -> Facts:
    small = {
        "path": "~/.triton/cache",
        "filesystem": "ext4",
        "free_bytes": 500 * GIB,
        "writable": True,
        "used_bytes": 50 * MIB,
        "counted_all": True,
    }
    every = {"inductor": small, "triton": small, "cuda": {**small, "limit_bytes": GIB}}
    return {"preflight/caches": {**every, name: {**every[name], **facts}}}


def card(**facts: Any) -> Facts:
    return {"gpus": [gpu("8.0", "NVIDIA A100", **facts)]}


LOOKED: Facts = {"preflight": {}}

TRIPS: dict[str, tuple[Facts, str, Severity]] = {
    "4 GiB for checkpoints": (places(free_bytes=4 * GIB), "EL621", Severity.WARNING),
    "no room at all": (places(free_bytes=3 * MIB), "EL621", Severity.ERROR),
    "a full /tmp": (places(name="temporary", free_bytes=500 * MIB), "EL621", Severity.WARNING),
    "a full home": (places(name="cache", free_bytes=0), "EL621", Severity.ERROR),
    "no more files": (places(free_files=12), "EL621", Severity.WARNING),
    "a read-only working directory": (places(writable=False), "EL622", Severity.WARNING),
    "a read-only /tmp": (places(name="temporary", writable=False), "EL622", Severity.ERROR),
    "no home": (places(name="cache", writable=False), "EL622", Severity.WARNING),
    "Triton's cache on NFS": (caches(filesystem="nfs4"), "EL623", Severity.WARNING),
    "torch.compile's on Lustre": (
        caches("inductor", filesystem="lustre"),
        "EL623",
        Severity.WARNING,
    ),
    "a cache in a small tmpfs": (
        caches(filesystem="tmpfs", free_bytes=60 * MIB),
        "EL623",
        Severity.WARNING,
    ),
    "a cache of another user": (caches(writable=False), "EL624", Severity.WARNING),
    "the driver's cache is full": (caches("cuda", used_bytes=GIB), "EL625", Severity.WARNING),
    "a huge cache": (caches("inductor", used_bytes=30 * GIB), "EL625", Severity.INFO),
    "huge, and not even counted": (
        caches("inductor", used_bytes=30 * GIB, counted_all=False),
        "EL625",
        Severity.INFO,
    ),
    "too hot": (card(slowed_by=["sw-power-cap", "hw-thermal"]), "EL514", Severity.WARNING),
    "a weak power supply": (card(slowed_by=["hw-power-brake"]), "EL514", Severity.WARNING),
    "half the power": (
        card(power_limit_w=200, default_power_limit_w=400),
        "EL515",
        Severity.WARNING,
    ),
    "no persistence": ({**card(persistence=False), **LOOKED}, "EL516", Severity.INFO),
}

NEAR_MISSES: dict[str, tuple[Facts, str]] = {
    "room for checkpoints": (places(free_bytes=11 * GIB), "EL621"),
    "2 GiB in /tmp": (places(name="temporary", free_bytes=2 * GIB), "EL621"),
    "a file system that counts no files": (places(free_files=ABSENT), "EL621"),
    "writable": (places(), "EL622"),
    "a local cache": (caches(filesystem="xfs"), "EL623"),
    "a cache in a large tmpfs": (caches(filesystem="tmpfs", free_bytes=30 * GIB), "EL623"),
    "checkpoints on NFS": ({**places(filesystem="nfs4"), **caches()}, "EL623"),
    "a cache that will be made": (caches(used_bytes=ABSENT), "EL624"),
    "half a cache": (caches("cuda", used_bytes=GIB // 2), "EL625"),
    "a larger limit": (caches("cuda", used_bytes=GIB, limit_bytes=4 * GIB), "EL625"),
    "the driver's cache is off": (
        {"preflight/caches": {"cuda": ABSENT, **caches()["preflight/caches"]}},
        "EL625",
    ),
    "idle, or under full load": (card(slowed_by=["sw-power-cap", "application-clocks"]), "EL514"),
    "its usual power": (card(power_limit_w=400, default_power_limit_w=400), "EL515"),
    "a little less": (card(power_limit_w=370, default_power_limit_w=400), "EL515"),
    "persistent": ({**card(persistence=True), **LOOKED}, "EL516"),
    "not before a run": (card(persistence=False), "EL516"),
}


@pytest.mark.parametrize("name", TRIPS)
def test_trips(name: str) -> None:
    facts, code, severity = TRIPS[name]
    assert check_lead(one(facts), code, severity).hint


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    facts, code = NEAR_MISSES[name]
    judged = one(facts)
    assert code not in codes(judged)
    if name != "not before a run":
        assert status(judged, code) is Status.PASSED, "and it was looked at"


def status(judged: Judgement, code: str) -> Status:
    return next(o.status for o in judged.outcomes if o.code == code)


CODES = ("EL621", "EL622", "EL623", "EL624", "EL625")


@pytest.mark.parametrize("code", CODES)
def test_what_nobody_looked_at_is_not_passed(code: str) -> None:
    looks: tuple[Facts, ...] = (CUDA_TORCH, LOOKED, {"preflight": {"unknown": "no disk"}})
    for facts in looks:
        assert status(one(facts), code) is Status.NOT_CHECKABLE


def test_a_cache_too_large_to_count_is_not_passed() -> None:
    judged = one(caches("inductor", counted_all=False))
    assert status(judged, "EL625") is Status.NOT_CHECKABLE


def test_without_a_cache_there_is_nothing_to_check() -> None:
    off = {"preflight/caches": dict.fromkeys(("inductor", "triton", "cuda"), ABSENT)}
    assert status(one(off), "EL623") is Status.DOES_NOT_APPLY


def test_a_gpu_that_does_not_tell_is_not_passed() -> None:
    assert status(one(card()), "EL514") is Status.NOT_CHECKABLE
    assert status(one(card(slowed_by={"unknown": "no NVML"})), "EL514") is Status.NOT_CHECKABLE
    assert status(one(card(slowed_by=ABSENT)), "EL514") is Status.DOES_NOT_APPLY
    assert status(one({"gpus": []}), "EL514") is Status.DOES_NOT_APPLY
    second = gpu("8.0", "NVIDIA A100", slowed_by={"unknown": "no NVML"})
    both = {"gpus": [gpu("8.0", "NVIDIA A100", slowed_by=ABSENT), second]}
    assert status(one(both), "EL514") is Status.NOT_CHECKABLE


def test_one_that_is_in_order_says_nothing_of_one_that_does_not_tell() -> None:
    unknown = gpu("8.0", "NVIDIA A100", slowed_by={"unknown": "no NVML"})
    fine = {"gpus": [gpu("8.0", "NVIDIA A100", slowed_by=[]), unknown]}
    hot = {"gpus": [unknown, gpu("8.0", "NVIDIA A100", slowed_by=["hw-thermal"])]}
    absent = {"gpus": [gpu("8.0", "NVIDIA A100", slowed_by=[]), gpu("8.0", slowed_by=ABSENT)]}
    assert status(one(fine), "EL514") is Status.NOT_CHECKABLE
    assert status(one(hot), "EL514") is Status.FAILED
    assert status(one(absent), "EL514") is Status.PASSED


def test_one_full_disk_is_one_finding() -> None:
    full = places(name="temporary", free_bytes=10 * MIB)
    judged = one({**full, **caches("inductor", free_bytes=10 * MIB)})
    assert codes(judged) == ["EL621"]
    assert [folded.code for folded in judged.findings[0].folded] == ["EL623"]


def test_the_state_of_the_moment_is_no_difference() -> None:
    left, right = card(slowed_by=[], sm_clock_mhz=1410), card(slowed_by=[], sm_clock_mhz=210)
    assert codes(pair({**left, **places()}, {**right, **places(free_bytes=60 * GIB)})) == []
