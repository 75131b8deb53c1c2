"""``envlock doctor --memory`` on this machine, and on one whose driver a compiler made up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envlock.targets.base import PROBES
from tests.process.test_commands import run

NVML = r"""
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
static int device;
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out) { *out = &device; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, Memory *out) {
    out->total = 24ULL << 30; out->used = 6ULL << 30; out->free = 18ULL << 30; return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, Process *out) {
    if (*count < 2) return 7;
    out[0].pid = JOB; out[0].used = 2ULL << 30;
    out[1].pid = 77; out[1].used = ~0ULL;
    *count = 2; return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *count, Process *out) {
    out[0].pid = 88; out[0].used = 5 << 20; *count = 1; return 0;
}
"""


@pytest.fixture
def job() -> Iterator[int]:
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "backend:native", "SECRET": "hunter2"}
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment
    ) as one:
        yield one.pid
        one.kill()


def probe(pid: int, folder: Path | None = None) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-B", PROBES / "triage_memory.py", "token", str(pid), "0.2"],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder or "")},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[2])
    return answer


def driver(folder: Path, job: int, *, init: int = 0) -> None:
    source = folder / "nvml.c"
    source.write_text(NVML.replace("JOB", str(job)).replace("INIT", str(init)))
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)


def test_who_holds_memory_on_a_gpu(tmp_path: Path, job: int) -> None:
    driver(tmp_path, job)
    (gpu,) = probe(job, tmp_path)["gpus"]
    assert gpu["used"] == 6 << 30
    assert dict(gpu["processes"]) == {job: 2 << 30, 77: None, 88: 5 << 20}


def test_a_driver_that_refuses_is_unknown_and_no_empty_machine(tmp_path: Path, job: int) -> None:
    driver(tmp_path, job, init=18)
    assert "code 18" in probe(job, tmp_path)["gpus"]["unknown"]


def test_only_named_variables_of_the_job_are_read(job: int) -> None:
    answer = probe(job)
    assert answer["variables"] == {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
    assert "hunter2" not in json.dumps(answer)
    assert len(answer["growth"]) == 5


def test_files_of_dead_processes_are_counted(job: int) -> None:
    shared = Path("/dev/shm")
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    before = probe(job)["shm"]
    names = [shared / f"torch_{dead.pid}_1_0", shared / f"torch_{job}_1_0"]
    try:
        for name in names:
            name.write_bytes(bytes(2 << 20))
        after = probe(job)["shm"]
    finally:
        for name in names:
            name.unlink(missing_ok=True)
    assert after["left_files"] - before["left_files"] == 1
    assert after["left_bytes"] - before["left_bytes"] == 2 << 20


def test_the_command_says_what_it_could_not_see(tmp_path: Path, job: int) -> None:
    done = run(tmp_path, "doctor", "--memory", "--pid", str(job), "--fail-on", "never")
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if line[:2] in {f"{n}." for n in range(9)}]
    assert len(titles) == 5
    assert titles[1].endswith("not checkable")
    assert "resident" in done.stdout
    data = json.loads(
        run(tmp_path, "doctor", "--memory", "-f", "json", "--fail-on", "never").stdout
    )
    assert data["command"] == "doctor"
    assert "growth, as from losses that keep their graph" in data["unknown_subjects"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--memory", "--pid", "4194304"], 5, "there is no process"),
        (["some.lock", "--memory"], 2, "this machine"),
    ],
)
def test_what_cannot_be_asked(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = run(tmp_path, "doctor", *arguments)
    assert done.returncode == code
    assert said in done.stderr
