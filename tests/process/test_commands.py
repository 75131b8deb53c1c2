"""diff, doctor, requires and explain as people run them, on lock files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from envlock.lock.io import render_lock
from envlock.lock.observation import Observation
from tests.unit.envs import Facts, env, torch
from tests.unit.healthy import CUDA_TORCH
from tests.unit.locks import lock

ENVLOCK = Path(sys.executable).parent / "envlock"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def run(
    folder: Path, *arguments: str, columns: int = 80, stdin: IO[bytes] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ENVLOCK, *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        env={**os.environ, "COLUMNS": str(columns)},
    )


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def seen(*facts: Facts) -> Observation:
    """CUDA_TORCH, with the two distributions that the small lock installs."""
    packages = {n: CUDA_TORCH["packages"][n] for n in ("numpy", "torch")}
    return env(CUDA_TORCH, {"packages": packages, "toolkit/nvcc": "13.0.88"}, *facts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("locks")
    sides: dict[str, Facts] = {
        "cu121": {},
        "cu118": torch("2.3.0+cu118", "11.8"),
        "old-gpu": {"gpus": [{"compute_capability": "3.5", "name": "Tesla K40c"}]},
        "old-gpu-cu118": {
            **torch("2.3.0+cu118", "11.8"),
            "gpus": [{"compute_capability": "3.5", "name": "Tesla K40c"}],
        },
    }
    for name, facts in sides.items():
        (place / f"{name}.lock").write_text(render_lock(lock(seen(facts))))
    (place / "train.log").write_text(f"Traceback (most recent call last):\n  ...\n{OOM}\n")
    return place


def test_another_cuda_build_leads_and_fails(folder: Path) -> None:
    done = run(folder, "diff", "cu121.lock", "cu118.lock", "--format", "json")
    assert done.returncode == 1
    errors = [f["code"] for f in report(done)["findings"] if f["severity"] == "error"]
    assert errors == ["EL201"]
    assert run(folder, "diff", "cu121.lock", "cu121.lock").returncode == 0


@pytest.mark.parametrize(
    ("error", "leading"), [("train.log", "EL201"), (OOM, "EL201"), (NO_KERNEL, "EL501")]
)
def test_the_cause_of_a_message_leads_whether_file_or_text(
    folder: Path, error: str, leading: str
) -> None:
    argv = ("diff", "cu121.lock", "old-gpu-cu118.lock", "--format", "json", "--error", error)
    done = run(folder, *argv)
    assert done.returncode == 1
    assert report(done)["findings"][0]["code"] == leading


def test_a_message_changes_the_order_and_not_the_verdict(folder: Path) -> None:
    done = run(folder, "doctor", "cu121.lock", "--error", "KeyError: 'lr'")
    assert done.returncode == 0
    assert "EL932" in done.stdout
    missing = run(folder, "doctor", "cu121.lock", "--error", "gone.log")
    assert missing.returncode == 4
    assert "no such file" in missing.stderr
    pasted = run(folder, "doctor", "old-gpu.lock", "--error", f"{'x' * 5000}\n{NO_KERNEL}")
    assert pasted.returncode == 1
    assert "EL501" in pasted.stdout.splitlines()[2]


def test_doctor_lists_its_checks(folder: Path) -> None:
    short = run(folder, "doctor", "old-gpu.lock")
    assert short.returncode == 1
    counts = re.search(
        r"^(\d+) checks: (\d+) failed, (\d+) noted, (\d+) not checkable, (\d+) passed, "
        r"(\d+) without an object",
        short.stdout,
        re.MULTILINE,
    )
    assert counts is not None
    total, *parts = map(int, counts.groups())
    assert total == sum(parts) >= 40
    long = run(folder, "doctor", "old-gpu.lock", "--verbose").stdout
    listed = re.findall(r"^  (EL\d{3})  ", long.partition(f"{total} checks: ")[2], re.MULTILINE)
    assert len(listed) == len(set(listed)) == total
    assert "checks: " not in run(folder, "doctor", "cu121.lock", "--format", "json").stdout


@pytest.mark.parametrize(
    ("machine", "code", "begins"),
    [
        ((), 0, "REQUIREMENTS  cu121.lock"),
        (("--gpu", "8.6", "--driver", "550.54.15", "--glibc", "2.31"), 0, "CAN RUN  cu121.lock"),
        (("--gpu", "RTX 5090"), 1, "CANNOT RUN  cu121.lock on GPU RTX 5090"),
        (("--driver", "470.182.03"), 1, "CANNOT RUN"),
        (("--glibc", "2.5"), 1, "CANNOT RUN"),
        (("--gpu", "Radeon 9700"), 3, "UNDECIDED"),
    ],
)
def test_requires_gives_one_verdict(
    folder: Path, machine: tuple[str, ...], code: int, begins: str
) -> None:
    done = run(folder, "requires", "cu121.lock", *machine)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(begins)
    assert "525.60.13" in done.stdout


def test_requires_as_json(folder: Path) -> None:
    can = run(folder, "requires", "cu121.lock", "--gpu", "8.6", "--format", "json")
    cannot = run(folder, "requires", "cu121.lock", "--gpu", "12.0", "--format", "json")
    assert (can.returncode, report(can)["result"]) == (0, "pass")
    assert (cannot.returncode, report(cannot)["result"]) == (1, "fail")
    assert report(cannot)["findings"][0]["code"] == "EL501"
    unknown = run(folder, "requires", "cu121.lock", "--gpu", "Radeon 9700", "--format", "json")
    assert (unknown.returncode, report(unknown)["result"]) == (3, "nothing")


@pytest.mark.parametrize("option", [("--driver", "new"), ("--glibc", "2.x"), ("--gpu", "\x1b[2J")])
def test_requires_refuses_what_is_no_value(folder: Path, option: tuple[str, str]) -> None:
    done = run(folder, "requires", "cu121.lock", *option)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {option[0]} ")
    assert "\x1b" not in done.stderr


def test_explain_knows_every_code_that_a_report_names(folder: Path) -> None:
    found = run(folder, "diff", "cu121.lock", "old-gpu-cu118.lock", "--verbose").stdout
    for code in sorted(set(re.findall(r"\bEL\d{3}\b", found))):
        done = run(folder, "explain", code)
        assert done.returncode == 0
        assert done.stdout.startswith(f"{code}  ")


def test_help_cuts_no_description(folder: Path) -> None:
    done = run(folder, "--help")
    assert done.returncode == 0
    commands = done.stdout.partition("commands:")[2]
    assert "capture" in commands
    assert "..." not in commands


@pytest.mark.parametrize("command", [["smoke"], ["verify", "some-image"]])
def test_limits_of_one_s_own_are_read_before_anything_runs(
    folder: Path, command: list[str]
) -> None:
    (folder / "limits.toml").write_text("[tensor_pek]\nsame = { fail = 1 }\n")
    done = run(folder, *command, "--tolerances", "limits.toml")
    assert done.returncode == 4
    assert "did you mean tensor_peak?" in done.stderr
