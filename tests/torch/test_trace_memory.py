"""A training step traced on fake tensors by a real torch, and what the allocator model says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from envlock.allocator.recording import parse_recording
from envlock.allocator.rules import MIB
from envlock.allocator.study import Question, study
from envlock.errors import TargetError
from envlock.targets.base import ProbeCall
from envlock.targets.local import LocalInterpreter
from tests.torch.interpreter import torch_python

PROGRAM = """
import torch

def make(width=1024, batch=64):
    model = torch.nn.Sequential(
        torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(batch, width)

    def step(model, data):
        print("a line on standard output")
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return model, data, step

def huge():
    model = torch.nn.Linear(300_000, 100_000, bias=False)  # 120 GB of weights
    return model, None, lambda model, _: None

def wrong():
    return 3

def failing():
    return 1, 2, lambda model, batch: model / 0
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "training.py").write_text(PROGRAM)
    return tmp_path


def trace(project: Path, function: str, steps: int = 3) -> dict[str, Any]:
    call = ProbeCall(
        probe="trace_memory", arguments=[str(project), f"training:{function}", str(steps)]
    )
    return LocalInterpreter(torch_python()).run_probe(call)


def test_weights_gradients_moments_and_the_optimizer_s_own_copy(project: Path) -> None:
    answer = trace(project, "make")
    weights = 2 * 4 * 1024 * 1024 * 4
    # on a GPU AdamW works on all parameters at once, which takes one more copy of them
    assert 5 * weights < answer["peak_requested"] < 5.3 * weights
    made = parse_recording("training", json.dumps(answer["trace"]).encode())
    assert made.allocations > 30
    assert "fake CPU tensors" in made.estimate
    assert "values that the program read" in made.estimate
    release = Version(answer["torch"])
    (card,) = study([made], Question(torch=release))["cards"]
    for row in card["settings_tried"]:
        assert not row["validated"]
        assert "fake CPU tensors" in row["reason"]
        assert answer["peak_requested"] <= row["smallest"] < answer["peak_requested"] + 60 * MIB


def test_more_steps_need_no_more(project: Path) -> None:
    assert (
        trace(project, "make", 2)["peak_requested"] == trace(project, "make", 6)["peak_requested"]
    )


def test_a_model_larger_than_the_machine(project: Path) -> None:
    assert trace(project, "huge", 1)["peak_requested"] >= 300_000 * 100_000 * 4


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("missing", "cannot be imported"),
        ("wrong", "returned int"),
        ("failing", "ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_is_said(project: Path, function: str, said: str) -> None:
    with pytest.raises(TargetError, match=said):
        trace(project, function)
