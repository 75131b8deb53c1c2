"""Two real environments side by side: two wheels that own one library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ENVLOCK = str(Path(sys.executable).parent / "envlock")
UV = str(Path(sys.executable).parent / "uv")
CU12, CU11 = "nvidia-nvtx-cu12==12.1.105", "nvidia-nvtx-cu11==11.8.86"
"""NVIDIA's smallest wheels with a library; both bring nvidia/nvtx/lib/libnvToolsExt.so.1."""


def environment(home: Path, *wheels: str) -> Path:
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, home], check=True)
    python = home / "bin" / "python"
    for wheel in wheels:  # one after the other: the last one wins
        command = [UV, "pip", "install", "--quiet", "--no-deps", "--python", str(python), wheel]
        subprocess.run(command, check=True)
    return python


def diff(left: Path, right: Path, expect: int) -> dict[str, Any]:
    command = [ENVLOCK, "diff", f"python:{left}", f"python:{right}", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stderr[-2000:]
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_two_wheels_that_own_one_library(tmp_path: Path) -> None:
    works = environment(tmp_path / "works", CU12)
    fails = environment(tmp_path / "fails", CU12, CU11)
    verdict = diff(works, fails, 1)
    lead = verdict["findings"][0]
    assert (lead["code"], lead["severity"]) == ("EL305", "error")
    assert "libnvToolsExt.so.1" in lead["message"]
    assert all(name in lead["message"] for name in ("nvidia-nvtx-cu11", "nvidia-nvtx-cu12"))
    check = [UV, "pip", "check", "--python", str(fails)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0, "nobody else"
    cured = diff(fails, works, 0)
    assert not [f for f in cured["findings"] if f["severity"] != "info"]


def test_either_wheel_alone_is_silent(tmp_path: Path) -> None:
    one, two = environment(tmp_path / "a", CU12), environment(tmp_path / "b" / "c", CU12)
    assert [f for f in diff(one, two, 0)["findings"] if f["severity"] != "info"] == []
