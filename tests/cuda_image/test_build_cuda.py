"""Real CUDA wheels, built and verified without a GPU; and two CUDA builds compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envlock.image.base_export import from_engine
from envlock.image.foundation import read_layers
from envlock.image.tree import differing, read_tree
from envlock.targets.engine import Engine

ENVLOCK = str(Path(sys.executable).parent / "envlock")


def envlock(*arguments: str | Path, expect: int = 0) -> str:
    command = [ENVLOCK, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1800)
    assert done.returncode == expect, done.stderr[-3000:]
    return done.stdout


def python(variable: str) -> str:
    path = os.environ.get(variable)
    assert path, f"set {variable} to the interpreter of an environment with that torch"
    return path


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The colleague's lock: torch 2.3.0+cu121."""
    lock = tmp_path_factory.mktemp("older") / "colleague.lock"
    envlock("capture", "--python", python("ENVLOCK_TEST_CUDA_TORCH_PYTHON"), "-o", lock)
    return lock


@pytest.fixture(scope="module")
def images(older: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    lock = tmp_path_factory.mktemp("newer") / "pylock.env.toml"
    envlock("capture", "--python", python("ENVLOCK_TEST_NEWER_CUDA_TORCH_PYTHON"), "-o", lock)
    tags = ("envlock-test-cuda:older", "envlock-test-cuda:newer")
    for source, tag in zip((older, lock), tags, strict=True):
        envlock("build", source, "-t", tag, "--no-verify")
    yield tags
    subprocess.run(["docker", "rmi", "--force", *tags], check=False, capture_output=True)


def report(text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def test_the_image_is_what_the_lock_says(older: Path, images: tuple[str, str]) -> None:
    verdict = report(envlock("verify", images[0], "--lock", older, "--format", "json"))
    assert verdict["result"] == "pass"
    assert not [f for f in verdict["findings"] if f["severity"] != "info"]
    assert verdict["checked"] >= 40


def test_a_round_trip_gives_the_same_id(
    older: Path, images: tuple[str, str], tmp_path: Path
) -> None:
    again = tmp_path / "again.lock"
    envlock("capture", "--image", images[0], "--offline", "-o", again)
    ids = [
        next(line for line in p.read_text().splitlines() if line[:3] == "id ")
        for p in (older, again)
    ]
    assert ids[0] == ids[1]


def test_another_cuda_build_leads_and_the_libraries_fold(
    older: Path, images: tuple[str, str]
) -> None:
    found = envlock("diff", older, f"image:{images[1]}", "--format", "json", expect=1)
    verdict = report(found)
    lead = verdict["findings"][0]
    assert (lead["code"], lead["severity"], lead["subject"]) == ("EL201", "error", "torch.cuda")
    assert (lead["left"], lead["right"]) == ("12.1", "12.4")
    folded = {finding["subject"] for finding in lead["folded"]}
    assert any(subject.startswith("packages.nvidia-") for subject in folded)
    loose = {finding["subject"] for finding in verdict["findings"][1:]}
    assert not any(subject.startswith("packages.nvidia-") for subject in loose)
    assert "memory" in lead["message"]
    assert "cu121" in lead["hint"]


def test_two_builds_have_the_same_layers(older: Path, images: tuple[str, str]) -> None:
    second = "envlock-test-cuda:second"
    envlock("build", older, "-t", second, "--no-cache", "--no-verify")
    command = ["docker", "inspect", "-f", "{{json .RootFS.Layers}}"]
    layers = [
        subprocess.run([*command, tag], check=True, capture_output=True).stdout
        for tag in (images[0], second)
    ]
    subprocess.run(["docker", "rmi", "--force", second], check=False, capture_output=True)
    assert layers[0] == layers[1]


def test_a_dockerfile_gives_the_same_files(
    older: Path, images: tuple[str, str], tmp_path: Path
) -> None:
    tag = "envlock-test-cuda:dockerfile"
    envlock("build", older, "-t", tag, "--engine", "docker", "--no-verify")
    engine = Engine.connect()
    trees = []
    for name in (images[0], tag):
        layout = from_engine(engine, engine.resolve(name), tmp_path / "exports")
        trees.append(read_tree([layer.path for layer in read_layers(layout)[1:]]))
        shutil.rmtree(tmp_path / "exports")  # gigabytes
    engine.remove(tag)
    assert len(trees[0]) > 10_000
    assert differing(*trees) == []
