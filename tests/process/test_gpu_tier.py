"""The GPU tier without a GPU: it says so; and its pieces, on a snapshot made here."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import gpu_tier
from tests.unit.test_allocator_snapshot import from_recording

SCRIPT = Path(gpu_tier.__file__).with_name("gpu-tier.sh")


def tier(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", SCRIPT, *arguments],
        env={**os.environ, "ENVLOCK_PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_gpu_it_ends_at_once_and_says_why(tmp_path: Path) -> None:
    done = tier(tmp_path / "out", sys.executable)
    assert done.returncode == 5
    assert "sees no GPU here" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"), [((), "usage"), (("out", "no-such-python"), "is not there")]
)
def test_a_call_that_cannot_be_right(tmp_path: Path, arguments: tuple[str], said: str) -> None:
    done = tier(*(tmp_path / one if one == "out" else one for one in arguments))
    assert done.returncode == 2
    assert said in done.stderr


class Recorder:
    """Stands in for the target's Python: writes a snapshot as torch would, and its counters."""

    def __init__(self, folder: Path, *, peak: int) -> None:
        data = folder / "made.pickle"
        data.write_bytes(pickle.dumps(from_recording("trace-05")))
        stats = {"torch": "2.6.0+cu124", "peak_reserved": peak, "retries": 0}
        self.path = folder / "python"
        self.path.write_text(
            f"#!{sys.executable}\n"
            "import shutil, sys\n"
            "if sys.argv[1] == '-c':\n"
            "    print('2.6.0+cu124 a card')\n"
            "elif sys.argv[1].endswith('gpu_workloads.py'):\n"
            f"    shutil.copyfile({str(data)!r}, sys.argv[3])\n"
            f"    print({json.dumps(stats)!r})\n"
            "else:\n"
            "    sys.exit(9)\n"
        )
        self.path.chmod(0o755)


def test_snapshots_become_small_fixtures_and_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    recorder = Recorder(tmp_path, peak=861_929_472)
    assert gpu_tier.main([str(out), str(recorder.path)]) == 1  # it cannot be captured
    summary = json.loads((out / "summary.json").read_text())
    assert summary == json.loads(capsys.readouterr().out)
    assert summary["model_agreed"]
    assert not summary["complete"]
    assert not summary["steps"]["capture"]["ran"]
    replayed = summary["steps"]["replay default"]
    assert replayed["agreement"]["decisions_right"] == 937
    assert replayed["fixture_bytes"] < 100_000
    names = {path.name for path in out.iterdir()}
    assert {"snapshot-default.json.gz", "memory-default.json"} <= names
    assert not [name for name in names if name.endswith(".pickle")]


def test_a_model_that_is_off_is_said() -> None:
    card: dict[str, Any] = {"agreement": {"compared": True, "allocations": 9}}
    for peak, right, agreed in ((5, 9, True), (6, 9, False), (5, 8, False)):
        card["agreement"] |= {"decisions_right": right, "peak_reserved": peak}
        assert gpu_tier.compared(card, {"peak_reserved": 5})["agreed"] is agreed
    card["agreement"] = {"compared": False, "reason": "expandable"}
    assert not gpu_tier.compared(card, {"peak_reserved": 5})["agreed"]


def test_a_reduced_snapshot_names_nothing() -> None:
    text = json.dumps(gpu_tier.reduce_snapshot(from_recording("trace-05")))
    assert "train.py" not in text
    assert "frames" not in text
    assert "time_us" not in text
