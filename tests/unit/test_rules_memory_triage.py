"""Each step of the triage: what trips it, the near miss that must not, and what cannot be seen."""

from __future__ import annotations

from typing import Any

import pytest

from envlock.rules.memory_triage import Step, triage

GIB, MIB = 1 << 30, 1 << 20
JOB, OTHER = 4711, 1234
UNKNOWN = {"unknown": "not readable"}
ABSENT = {"absent": True}


def cache(used: int = GIB, filesystem: str = "ext4") -> dict[str, Any]:
    return {
        "path": "/tmp/torchinductor_*",
        "filesystem": filesystem,
        "used_bytes": used,
        "counted_all": True,
    }


def machine(**changes: Any) -> dict[str, Any]:
    """A job that is alone on one card, with nothing wrong."""
    return {
        "pid": JOB,
        "gpus": [gpu((JOB, 5 * GIB))],
        "process": {"VmRSS": GIB, "RssAnon": GIB, "RssShmem": 0, "VmLck": 0, "VmPin": 0},
        "variables": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        "shm": {"size": 8 * GIB, "free": 7 * GIB, "left_bytes": 0, "left_files": 0},
        "limit": {"bytes": 16 * GIB, "used": 15 * GIB},
        "caches": {"inductor": cache(), "triton": {**cache(), "used_bytes": ABSENT}},
        "growth": [[GIB, 5 * GIB]] * 5,
        **changes,
    }


def gpu(*processes: tuple[int, int | None], used: int = 5 * GIB, index: int = 0) -> dict[str, Any]:
    return {
        "index": index,
        "total": 24 * GIB,
        "used": used,
        "processes": [list(one) for one in processes],
    }


def codes(answer: dict[str, Any]) -> list[str]:
    return [finding.code for step in triage(answer) for finding in step.findings]


def step(answer: dict[str, Any], number: int) -> Step:
    return triage(answer)[number - 1]


def test_a_healthy_machine_has_no_finding_and_hides_nothing() -> None:
    steps = triage(machine())
    assert not any(one.findings for one in steps)
    status = [one.status for one in steps]
    # what torch's own cache holds, nobody outside the job can tell
    assert status == ["passed", "not checkable", "passed", "passed", "passed"]
    assert "memory_reserved" in " ".join(steps[1].lines())
    assert "expandable_segments:True" in " ".join(steps[1].lines())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"gpus": [gpu((JOB, GIB), (OTHER, 4 * GIB))]}, "EL850"),
        ({"gpus": [gpu((JOB, GIB), (OTHER, None))]}, "EL850"),
        ({"pid": 0, "gpus": [gpu((OTHER, 5 * GIB))], "growth": ABSENT}, "EL850"),
        ({"gpus": [gpu((JOB, 5 * GIB), used=7 * GIB)]}, "EL851"),
        ({"variables": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}, "EL852"),
        ({"shm": {"size": 64 * MIB, "free": MIB, "left_bytes": 0, "left_files": 0}}, "EL853"),
        ({"shm": {"size": 8 * GIB, "free": GIB // 4, "left_bytes": 0, "left_files": 0}}, "EL853"),
        ({"shm": {"size": 8 * GIB, "free": 7 * GIB, "left_bytes": GIB, "left_files": 3}}, "EL853"),
        ({"limit": {"bytes": 1000 * MIB, "used": 951 * MIB}}, "EL854"),
        ({"caches": {"inductor": cache(filesystem="tmpfs")}}, "EL855"),
        ({"growth": [[GIB + n * MIB, 5 * GIB] for n in range(5)]}, "EL856"),
        ({"growth": [[GIB, GIB + n * MIB] for n in range(5)]}, "EL856"),
    ],
)
def test_a_fault_is_found(changes: dict[str, Any], code: str) -> None:
    assert codes(machine(**changes)) == [code]


@pytest.mark.parametrize(
    "changes",
    [
        # somebody on a card that the job does not use
        {"gpus": [gpu((JOB, 5 * GIB)), gpu((OTHER, 9 * GIB), index=1, used=9 * GIB)]},
        {"gpus": [gpu((JOB, 5 * GIB), used=6 * GIB)]},
        {"gpus": [gpu((JOB, None), used=9 * GIB)]},
        {"variables": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}},
        {"shm": {"size": 8 * GIB, "free": GIB, "left_bytes": 4096, "left_files": 1}},
        {"limit": {"bytes": 1000 * MIB, "used": 950 * MIB}},
        {"limit": {"bytes": ABSENT, "used": 950 * MIB}},
        {"caches": {"inductor": cache(used=MIB, filesystem="tmpfs")}},
        {"growth": [[GIB + n, 5 * GIB] for n in range(5)]},
        {"growth": [[GIB, 1], [2 * GIB, 1], [2 * GIB, 1], [3 * GIB, 1], [4 * GIB, 1]]},
    ],
)
def test_a_near_miss_is_not(changes: dict[str, Any]) -> None:
    assert codes(machine(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"gpus": UNKNOWN}, 1),
        ({"gpus": [gpu((JOB, None), used=9 * GIB)]}, 1),
        ({"gpus": UNKNOWN}, 2),
        ({"variables": UNKNOWN}, 2),
        ({"gpus": [gpu((OTHER, GIB))]}, 2),
        ({"shm": UNKNOWN}, 3),
        ({"process": UNKNOWN}, 3),
        ({"process": {}}, 3),
        ({"limit": {"bytes": UNKNOWN, "used": 5}}, 3),
        ({"limit": {"bytes": 5, "used": UNKNOWN}}, 3),
        ({"caches": {"cuda": UNKNOWN}}, 4),
        ({"caches": {"cuda": {**cache(), "filesystem": UNKNOWN}}}, 4),
        ({"growth": UNKNOWN}, 5),
        ({"growth": [[GIB, None]] * 5}, 5),
        ({"growth": [[None, GIB]] * 5}, 5),
        ({"pid": 0, "growth": ABSENT}, 5),
    ],
)
def test_what_cannot_be_seen_is_not_passed(changes: dict[str, Any], number: int) -> None:
    assert step(machine(**changes), number).missing
    if number != 2:
        assert step(machine(**changes), number).status == "not checkable"


def test_the_order_is_the_one_in_which_causes_are_found() -> None:
    everything = machine(
        gpus=[gpu((JOB, GIB), (OTHER, 4 * GIB))],
        variables={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        shm={"size": 64 * MIB, "free": 0, "left_bytes": 0, "left_files": 0},
        caches={"inductor": cache(filesystem="tmpfs")},
        growth=[[n * GIB, 1] for n in range(5)],
    )
    assert codes(everything) == ["EL850", "EL852", "EL853", "EL855", "EL856"]
