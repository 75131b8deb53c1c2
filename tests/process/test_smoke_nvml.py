"""Neighbours on the GPU through a driver library that a compiler made up: no GPU is needed here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envlock.targets.base import PROBES

NVML = r"""
typedef struct { unsigned long long total, free, used; } Memory;
static int device[2];
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out) { *out = &device[i]; return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    if (uuid[0] != 'G') return 2;
    *out = &device[1]; return 0;
}
int nvmlDeviceGetMemoryInfo(void *d, Memory *out) {
    out->total = 24ULL << 30; out->used = d == &device[0] ? 5ULL << 30 : 1 << 20;
    out->free = out->total - out->used; return 0;
}
int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *count, void *infos) {
    if (d != &device[0]) { *count = 0; return 0; }
    *count = 3; return 7; /* no room for them: insufficient size */
}
"""


def neighbours(folder: Path, *, init: int = 0, visible: str | None = None) -> Any:
    source = folder / "nvml.c"
    source.write_text(NVML.replace("INIT", str(init)))
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    program = "import json, smoke_nvml; print(json.dumps(smoke_nvml.neighbours()))"
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        env={
            "LD_LIBRARY_PATH": str(folder),
            "PYTHONPATH": str(PROBES),
            **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("visible", "processes", "used"),
    [(None, 3, 5 << 30), ("0", 3, 5 << 30), ("1,0", 0, 1 << 20), ("GPU-12345678", 0, 1 << 20)],
)
def test_the_gpu_that_torch_would_take_is_asked(
    tmp_path: Path, visible: str | None, processes: int, used: int
) -> None:
    assert neighbours(tmp_path, visible=visible) == {"processes": processes, "used": used}


def test_a_driver_that_refuses_is_an_error_and_no_empty_gpu(tmp_path: Path) -> None:
    said = neighbours(tmp_path, init=18)
    assert said == "OSError: the driver library refused nvmlInit with code 18"


def test_a_gpu_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert "the GPU's handle" in neighbours(tmp_path, visible="MIG-1")
