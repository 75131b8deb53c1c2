"""Two real environments with CUDA wheels side by side: the right fault leads each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent
OLDER_NVJITLINK = "nvidia-nvjitlink-cu12==12.1.105"
"""torch 2.3.0+cu121 does not pin it, so that an environment of today has a newer one."""


pytestmark = pytest.mark.usefixtures("own_cache")


def run(*command: str | Path, **variables: str) -> None:
    subprocess.run(list(map(str, command)), check=True, env={**os.environ, **variables})


def capture(python: Path, lock: Path, **variables: str) -> Path:
    run(BIN / "envlock", "capture", "--offline", "--python", python, "-o", lock, **variables)
    return lock


def diff(left: Path, right: Path, expect: int) -> dict[str, Any]:
    command: list[str | Path] = [BIN / "envlock", "diff", left, right, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stderr[-2000:]
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def loud(verdict: dict[str, Any]) -> list[str]:
    return [f["code"] for f in verdict["findings"] if f["severity"] != "info"]


def install(wheel: str, *where: str | Path) -> None:
    """``--python EXE`` is an option of pip, ``--target FOLDER`` one of its install."""
    before, after = (where, ()) if where[0] == "--python" else ((), where)
    run(sys.executable, "-m", "pip", *before, "install", "-q", "--no-deps", *after, wheel)


def environment(home: Path, *wheels: str) -> Path:
    run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, home)
    for wheel in wheels:  # one after the other: the last one wins
        install(wheel, "--python", home / "bin" / "python")
    return home / "bin" / "python"


def test_a_library_of_a_module_comes_first(cuda_torch: Path, tmp_path: Path) -> None:
    """`module load cuda/12.1` before a torch whose wheels have a newer nvJitLink."""
    folder = tmp_path / "module"
    install(OLDER_NVJITLINK, "--target", folder)
    library = folder / "nvidia" / "nvjitlink" / "lib"
    works = capture(cuda_torch, tmp_path / "works.lock")
    fails = capture(cuda_torch, tmp_path / "fails.lock", LD_LIBRARY_PATH=str(library))
    verdict = diff(works, fails, 1)
    lead = verdict["findings"][0]
    assert (lead["code"], lead["severity"]) == ("EL308", "error")
    assert "libnvJitLink.so.12" in lead["message"]
    assert "LD_LIBRARY_PATH" in lead["message"] + lead["hint"]
    assert loud(diff(works, works, 0)) == []


def test_nccl_of_two_cuda_majors(tmp_path: Path) -> None:
    works = environment(tmp_path / "works", "nvidia-nccl-cu12==2.20.5")
    fails = environment(tmp_path / "fails", "nvidia-nccl-cu12==2.20.5", "nvidia-nccl-cu11==2.20.5")
    left, right = capture(works, tmp_path / "l.lock"), capture(fails, tmp_path / "r.lock")
    lead = diff(left, right, 1)["findings"][0]
    assert (lead["code"], lead["severity"]) == ("EL305", "error")
    assert "libnccl.so.2" in lead["message"]
    assert loud(diff(left, left, 0)) == []


def test_numpy_2_with_an_old_torch(tmp_path: Path) -> None:
    works = environment(tmp_path / "works", "torch==2.2.2", "numpy==1.26.4")
    left = capture(works, tmp_path / "l.lock")
    install("numpy==2.1.3", "--python", works)
    right = capture(works, tmp_path / "r.lock")
    lead = diff(left, right, 1)["findings"][0]
    assert (lead["code"], lead["severity"], lead["subject"]) == ("EL130", "error", "packages.numpy")
    assert "numpy<2" in lead["hint"]
