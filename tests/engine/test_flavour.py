"""The devel flavour upon a stand-in for NVIDIA's image: ours, with what theirs says of itself.

NVIDIA's own image was not tried: it cannot be pulled where these tests run, and brings no Python.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from envlock.image.oci import Layout
from envlock.image.registry import LoopbackRegistry
from envlock.targets.engine import Engine
from tests.engine.test_assemble import BIN, Case, make_case, no_images_left
from tests.unit.base_layouts import derived
from tests.unit.wheels import make_wheel

__all__ = ["no_images_left"]

TORCH = {
    "torch/__init__.py": b"",
    "torch/version.py": b"__version__ = '2.3.0+cu121'\ncuda = '12.1'\ngit_version = 'x'\n",
}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Case:
    folder = tmp_path_factory.mktemp("flavour")
    torch = make_wheel(folder / "wheels", TORCH, name="torch", version="2.3.0")
    cuda = make_wheel(
        folder / "wheels",
        {"nvidia/x.py": b"x = 1\n"},
        name="nvidia_cuda_runtime_cu12",
        version="12.1.105",
    )
    return make_case(folder, base_layout, torch, cuda)


def stand_in(base_layout: Layout, folder: Path, **env: str) -> Layout:
    inherited = base_layout.config()["config"]["Env"]
    variables = [*inherited, *(f"{name}={value}" for name, value in env.items())]
    return derived(base_layout, folder, {"Env": variables})


@pytest.mark.parametrize("engine", ["docker", "buildah"])
def test_devel_upon_a_base_with_the_locks_cuda(
    engine: str, case: Case, base_layout: Layout, tmp_path: Path
) -> None:
    before = case.lock.read_text()
    cuda = stand_in(base_layout, tmp_path / "cuda", CUDA_VERSION="12.1.1")
    file = tmp_path / "build.json"
    into = ("-o", f"oci:{tmp_path}/out", "--no-verify", "--metadata", file)
    with LoopbackRegistry(cuda, name="nvidia/cuda", tag="12.1.1-devel-ubuntu22.04") as registry:
        name = f"127.0.0.1:{registry.port}/nvidia/cuda:12.1.1-devel-ubuntu22.04"
        base = ("--base", name, "--engine", engine)
        said = case.build("--flavour", "devel", *base, *into).stderr
        Engine.connect().remove(name)  # which both ways have pulled by it
    recorded = case.lock.read_text()
    case.lock.write_text(before)
    assert "flavour devel: --flavour devel" in said
    assert "sizes: to fetch 0 of 2 wheels, at most 0 MiB; unpacked 0 MiB\n" in said
    assert "CUDA is in this image twice: 12.1.1 of the base" in said
    report: dict[str, Any] = json.loads(file.read_text())
    assert (report["flavour"], report["flavour_why"]) == ("devel", "--flavour devel")
    assert report["cuda_twice"] in said
    assert report["base"]["env"]["CUDA_VERSION"] == "12.1.1"
    assert report["base"]["digest"] == cuda.manifest_digest
    assert report["sizes"]["fetch_bytes"] == 0
    assert report["sizes"]["unpacked_bytes"] > 0
    assert 'flavour = "devel"' in recorded


def test_devel_is_no_work_for_the_assembler_and_another_cuda_is_refused(
    case: Case, base_layout: Layout, tmp_path: Path
) -> None:
    into = ("-o", f"oci:{tmp_path}/out", "--no-verify", "--flavour", "devel")
    said = case.build("--engine", "none", *into, expect=2).stderr
    assert "--engine none cannot build this: the flavour is devel" in said
    other = stand_in(base_layout, tmp_path / "cuda", CUDA_VERSION="12.4.1")
    said = case.build("--base", f"oci:{other.folder}", *into, expect=6).stderr
    assert "flavour devel: the base has CUDA 12.4.1, the lock has 12.1" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("engine", ["docker", "buildah"])
def test_a_base_without_python_is_said_to_be_one(
    engine: str, case: Case, base_layout: Layout, tmp_path: Path
) -> None:
    """As NVIDIA's is. Never another Python than the locked one, and no guess at one."""
    labels = {"org.envlock.base.python-version": "3.11.2"}
    change = {"Env": ["PATH=/nonexistent", "CUDA_VERSION=12.1.1"], "Labels": labels}
    bare = derived(base_layout, tmp_path / "bare", change)
    options = ("--flavour", "devel", "--engine", engine, "--no-verify")
    into = ("-o", f"oci:{tmp_path}/out", "--base", f"oci:{bare.folder}")
    said = case.build(*options, *into, expect=6).stderr
    assert "hint: the base has no python3 on its PATH; name a base with exactly the lock's" in said


def test_the_preview_names_nvidias_image(case: Case) -> None:
    command = [str(BIN / "envlock"), "build", str(case.lock), "--dry-run", "--flavour", "devel"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    image = "FROM docker.io/nvidia/cuda:12.1.1-devel-ubuntu22.04"
    assert [line for line in done.stdout.splitlines() if line.startswith("FROM")] == [
        f"{image} AS install",
        image,
    ]
    assert "is a tag without a digest, which may move" in done.stderr
