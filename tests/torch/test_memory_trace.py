"""``envlock memory trace`` as CI runs it: a function of the user's, a real torch, no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.process.test_commands import run
from tests.torch.interpreter import torch_python
from tests.torch.test_trace_memory import PROGRAM


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "training.py").write_text(PROGRAM)
    return tmp_path


def test_does_it_still_fit_is_an_estimate_with_an_exit_code(project: Path) -> None:
    ask = ("memory", "trace", "training:make", "--python", str(torch_python()), "-o", "trace.json")
    fits = run(project, *ask, "--card", "24GiB", "-f", "json")
    assert fits.returncode == 0, fits.stderr
    found = json.loads(fits.stdout)
    (card,) = found["cards"]
    assert card["source"] == "training:make"
    assert "fake CPU tensors" in card["estimate"]
    assert not any(row["validated"] for row in card["settings_tried"])
    # the answer about the trace that was kept is the answer that was given
    again = run(project, "memory", "trace.json", "--card", "24GiB", "-f", "json")
    kept = json.loads(again.stdout)["cards"][0]
    assert kept["settings_tried"][0]["smallest"] == card["settings_tried"][0]["smallest"]
    unfit = run(project, "memory", "trace.json", "--card", "600MiB")
    assert unfit.returncode == 1
    assert unfit.stdout.startswith("DOES NOT FIT  ")
    assert "estimate" in unfit.stdout


def test_a_model_larger_than_the_machine_needs_no_memory_here(project: Path) -> None:
    ask = ("memory", "trace", "training:huge", "--python", str(torch_python()), "--steps", "1")
    done = run(project, *ask, "--card", "H200")
    assert done.returncode == 0
    assert run(project, *ask, "--card", "A100 80GB").returncode == 1


def test_what_goes_wrong_is_said(project: Path) -> None:
    done = run(project, "memory", "trace", "training:missing", "--python", str(torch_python()))
    assert done.returncode == 5
    assert "cannot be imported" in done.stderr
