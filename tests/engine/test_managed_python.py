"""An image whose Python no base has: a standalone build upon a base's system, in every way, run."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from envlock.image.foundation import PYTHON_VERSION_LABEL, read_layers
from envlock.image.oci import Layout, read_layout
from envlock.image.plan import python_version
from envlock.image.tree import read_tree, tree_digest
from envlock.lock.io import load_lock
from tests.engine.test_assemble import BIN, Case, make_case, no_images_left
from tests.unit.base_layouts import derived
from tests.unit.wheels import make_wheel
from tests.uv_mirror import Mirror, make_mirror

__all__ = ["no_images_left"]

TAG = "envlock-test-managed:x"
NO_REGISTRY = ("--base-mirror", "127.0.0.1:1/nothing")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Case:
    folder = tmp_path_factory.mktemp("managed")
    return make_case(folder, base_layout, make_wheel(folder / "wheels", {"demo.py": b"x = 7\n"}))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Without a registry, with a bootstrapped base of another Python, and a mirror for uv."""

    case: Case
    mirror: Mirror
    folder: Path

    def build(self, *options: str, expect: int = 0) -> str:
        command: list[str | Path] = ["build", self.case.lock, "--wheelhouse", self.case.wheels]
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder), **self.mirror.environment}
        return envlock(env, *command, *NO_REGISTRY, *options, expect=expect)


def envlock(env: Mapping[str, str], *words: str | Path, expect: int = 0) -> str:
    """What it said on standard error."""
    command = [BIN / "envlock", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == expect, done.stderr[-3000:]
    return done.stderr


@pytest.fixture(scope="module")
def machine(case: Case, base_layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("machine")
    inside = base_layout.config()["config"]
    labels = {**inside["Labels"], PYTHON_VERSION_LABEL: "3.1.4"}
    (folder / "cache" / "envlock").mkdir(parents=True)
    derived(base_layout, folder / "cache" / "envlock" / "base", {"Labels": labels})
    mirror = make_mirror(folder, python_version(load_lock(case.lock)), pack)
    return Machine(case=case, mirror=mirror, folder=folder / "cache")


def pack(tar: tarfile.TarFile) -> None:
    """The distribution's Python: it finds its library beside itself, wherever it stands."""
    name = Path("/usr/bin/python3").resolve().name

    def needed(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        unneeded = {"__pycache__", "dist-packages", "test", f"config-{name.removeprefix('python')}"}
        return None if unneeded & set(info.name.split("/")) or info.issym() else info

    tar.add(f"/usr/bin/{name}", f"python/bin/{name}")
    tar.add(f"/usr/lib/{name}", f"python/lib/{name}", filter=needed)
    link = tarfile.TarInfo("python/bin/python3")
    link.type, link.linkname = tarfile.SYMTYPE, name
    tar.addfile(link)


def test_the_image_runs_the_python_that_uv_brought(machine: Machine) -> None:
    said = machine.build("-t", TAG)
    assert f"asking uv for {machine.mirror.archive.name}" in said
    assert "PASS" in said
    code = "import sys, demo; print(sys.base_prefix, demo.x)"
    shown = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", TAG, "python", "-c", code],
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.split() == ["/opt/python", "7"]
    image = load_lock(machine.case.lock).table.image
    assert image.python is not None
    assert image.base is not None
    assert image.python.url.endswith(machine.mirror.place)
    assert image.python.sha256 == machine.mirror.sha256
    assert (image.python.system, image.base.reference) == (None, "managed-python")


def test_the_lock_is_enough_for_the_same_image_without_uvs_mirror(
    machine: Machine, tmp_path: Path
) -> None:
    """From the wheelhouse that ``fetch`` made of it, offline, with nothing kept but the base."""
    shelf = tmp_path / "shelf"
    env = {**os.environ, "XDG_CACHE_HOME": str(machine.folder)}
    lock = machine.case.lock
    envlock(env, "fetch", lock, "-d", shelf, "--wheelhouse", machine.case.wheels)
    assert (shelf / machine.mirror.archive.name).exists()
    other = tmp_path / "cache" / "envlock"
    other.mkdir(parents=True)
    (machine.folder / "envlock" / "base").rename(other / "base")
    try:
        env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
        into = ("--engine", "none", "-o", f"oci:{tmp_path}/out")
        said = envlock(env, "build", lock, "--wheelhouse", shelf, *into, "--offline")
    finally:
        (other / "base").rename(machine.folder / "envlock" / "base")
    assert "the same id as the first build's" in said


def test_every_way_gives_one_tree(machine: Machine, tmp_path: Path) -> None:
    before = machine.case.lock.read_text()
    trees = set()
    for engine in ("none", "docker", "buildah"):
        out = tmp_path / engine
        machine.build("--engine", engine, "-o", f"oci:{out}", "--no-verify")
        machine.case.lock.write_text(before)
        layers = [layer.path for layer in read_layers(read_layout(out))[1:]]
        trees.add(tree_digest(read_tree(layers)))
    assert len(trees) == 1


def test_where_uv_has_none_the_error_says_all_that_was_tried(machine: Machine) -> None:
    before = machine.case.lock.read_text()
    listed = Path(machine.mirror.environment["UV_PYTHON_DOWNLOADS_JSON_URL"])
    rows = listed.read_text()
    listed.write_text(json.dumps({}))
    text, _, rest = before.partition("[tool.envlock.image]\n")
    machine.case.lock.write_text(text + rest[rest.index("[tool.envlock.observed]") :])
    try:
        said = machine.build("--engine", "none", "-o", "oci:/nonexistent", expect=6)
    finally:
        listed.write_text(rows)
        machine.case.lock.write_text(before)
    assert "there is no base image with Python" in said
    assert "uv knows no standalone build of Python" in said
    assert "images/base/build.py" in said
