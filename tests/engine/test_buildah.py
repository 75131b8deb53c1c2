"""Buildah, without any daemon: the assembler's tree, the same layers again, nothing left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from envlock.image.foundation import read_layers
from envlock.image.oci import Layout, read_layout
from envlock.image.tree import Tree, differing, read_tree, tree_digest
from tests.engine.test_assemble import BIN, FILES, Case, make_case
from tests.unit.wheels import make_wheel

NO_DOCKER = {**os.environ, "DOCKER_HOST": "unix:///nonexistent.sock"}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Case:
    folder = tmp_path_factory.mktemp("buildah")
    demo = make_wheel(folder / "wheels", FILES, modes={"demo/run.sh": 0o100755})
    heavy = make_wheel(folder / "wheels", {"triton/x.py": b"x = 1\n"}, name="triton")
    return make_case(folder, base_layout, demo, heavy)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "scripts").mkdir(parents=True)
    (folder / "train.py").write_text("import demo\ndemo.main()\n")
    (folder / "secret.env").write_text("x")
    (folder / ".dockerignore").write_text("*.env\n")
    (folder / "Dockerfile").write_text("RUN touch /pwned\n")
    (folder / "scripts" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "scripts" / "run.sh").chmod(0o701)
    (folder / "scripts" / "link.py").symlink_to("../train.py")
    return folder


def built(case: Case, engine: str, output: Path, *options: str | Path) -> tuple[Tree, Any]:
    """What stands upon the base, and the report."""
    report = output.with_suffix(".json")
    into = ("-o", f"oci:{output}", "--metadata", report, "--no-verify")
    case.build("--engine", engine, *into, *options)
    layers = read_layers(read_layout(output))
    return read_tree([one.path for one in layers[1:]]), json.loads(report.read_text())


def test_every_way_gives_one_tree_with_a_project_on_top(
    case: Case, project: Path, tmp_path: Path
) -> None:
    found = {
        engine: built(case, engine, tmp_path / engine, "--project", project)
        for engine in ("none", "docker", "buildah")
    }
    ours, _ = found["none"]
    assert sorted(path for path in ours if path.startswith("workspace")) == [
        "workspace",
        "workspace/.dockerignore",
        "workspace/Dockerfile",
        "workspace/scripts",
        "workspace/scripts/link.py",
        "workspace/scripts/run.sh",
        "workspace/train.py",
    ]
    for engine, (tree, report) in found.items():
        assert differing(ours, tree) == [], engine
        assert tree_digest(tree) == tree_digest(ours)
        names = [layer["name"] for layer in report["layers"]]
        assert names[:3] == ["torch", "packages", "project"]
        config = read_layout(tmp_path / engine).config()["config"]
        assert (config["WorkingDir"], config["User"]) == ("/workspace", "10001:10001")
    assert found["buildah"][1]["engine"].startswith("Buildah 1.")
    assert found["buildah"][1]["why"] == "--engine buildah"


def test_without_a_docker_engine_buildah_is_taken_and_said(case: Case, tmp_path: Path) -> None:
    """An OS package is what only a Dockerfile can do; that it does not exist is said by apt."""
    command = [str(BIN / "envlock"), "build", str(case.lock), "--wheelhouse", str(case.wheels)]
    command += ["--base", case.base, "--apt", "no-such-package=1", "-o", f"oci:{tmp_path}/x"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=NO_DOCKER)
    assert done.returncode == 6, done.stderr
    chosen = "building a Dockerfile by Buildah: packages of the distribution are asked for; no "
    assert chosen in done.stderr
    assert "os_packages.py" in done.stderr.rpartition("the build failed")[2]
    assert not (tmp_path / "x").exists()


def test_an_interrupted_build_leaves_nothing(case: Case, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [str(BIN / "envlock"), "build", str(case.lock), "--wheelhouse", str(case.wheels)]
    command += ["--base", case.base, "--engine", "buildah", "-o", f"oci:{tmp_path}/x"]
    running = subprocess.Popen(
        command, stderr=subprocess.PIPE, env={**NO_DOCKER, "XDG_CACHE_HOME": str(cache)}
    )
    assert running.stderr
    for line in running.stderr:
        if b"RUN --mount" in line:
            break
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert not (tmp_path / "x").exists()
    assert [path.name for path in (cache / "envlock").iterdir()] == []
    assert str(cache) not in Path("/proc/self/mounts").read_text()


def test_an_image_goes_where_podman_finds_it_under_its_id(case: Case, tmp_path: Path) -> None:
    """In a storage of the test's own."""
    settings = tmp_path / "storage.conf"
    settings.write_text(
        f'[storage]\ndriver = "overlay"\nrunroot = "{tmp_path}/run"\ngraphroot = "{tmp_path}/root"\n'
    )
    env = {**NO_DOCKER, "CONTAINERS_STORAGE_CONF": str(settings)}
    command = [str(BIN / "envlock"), "build", str(case.lock), "--wheelhouse", str(case.wheels)]
    command += ["--base", case.base, "--engine", "buildah", "-t", "team/train:1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    listed = ["buildah", "images", "--no-trunc", "--format", "{{.Name}}:{{.Tag}} {{.ID}}"]
    found = subprocess.run(listed, check=True, capture_output=True, text=True, env=env).stdout
    image_id = done.stdout.splitlines()[0].split()[1]
    assert found.split() == ["docker.io/team/train:1", image_id]
