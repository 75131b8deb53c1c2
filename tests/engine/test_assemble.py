"""Both ways of building, on a real engine: one tree; and the assembler's image under its own id."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from envlock.image.base_export import from_engine
from envlock.image.foundation import read_layers
from envlock.image.oci import Layout, read_layout
from envlock.image.plan import Artifact
from envlock.image.registry import LoopbackRegistry
from envlock.image.tree import Tree, differing, read_tree, tree_digest
from envlock.targets.engine import Engine
from tests.unit.wheels import make_wheel

BIN = Path(sys.executable).parent
TAG = "envlock-test-assemble"
FILES = {
    "demo/__init__.py": b"def main():\n    print('demo')\n",
    "demo/run.sh": b"#!/bin/sh\n",
    "demo/__pycache__/__init__.cpython-311.pyc": b"compiled",
    "demo-1.0.data/scripts/demo-tool": b"#!python\nprint('tool')\n",
    "demo-1.0.data/data/share/demo/x.txt": b"x",
    "demo-1.0.data/headers/demo.h": b"int x;\n",
    "demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\ndemo = demo:main\n",
}
"""All that a wheel can hold."""


@dataclass(frozen=True, kw_only=True)
class Case:
    lock: Path
    wheels: Path
    base: str

    def build(self, *options: str | Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
        command = [BIN / "envlock", "build", self.lock, "--wheelhouse", self.wheels, *options]
        if "--base" not in options:
            command += ["--base", self.base]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        assert done.returncode == expect, done.stderr[-3000:]
        return done


def make_case(folder: Path, base_layout: Layout, *wheels: Artifact) -> Case:
    lock = str(folder / "a.lock")
    shelf = folder / "wheels"
    uv, python = str(BIN / "uv"), str(folder / "venv" / "bin" / "python")
    files = [str(shelf / one.wheel.filename) for one in wheels]
    for command in (
        [uv, "venv", "--quiet", "--python", "/usr/bin/python3", str(folder / "venv")],
        [uv, "pip", "install", "--quiet", "--python", python, *files],
        [
            str(BIN / "envlock"),
            "capture",
            "--python",
            python,
            "--wheelhouse",
            shelf.name,  # as a person names it, from where they stand
            "-o",
            lock,
        ],
    ):
        subprocess.run(command, check=True, cwd=folder)
    return Case(lock=Path(lock), wheels=shelf, base=f"oci:{base_layout.folder}")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Case:
    folder = tmp_path_factory.mktemp("assemble")
    one = make_wheel(folder / "wheels", FILES, modes={"demo/run.sh": 0o100755})
    return make_case(folder, base_layout, one)


@pytest.fixture(scope="module", autouse=True)
def no_images_left(case: Case) -> Iterator[None]:
    """Also those that lost their tag to the next build."""
    yield
    id_ = next(line for line in case.lock.read_text().splitlines() if line.startswith("id = "))
    label = f"label=org.envlock.lock.id={json.loads(id_.removeprefix('id = '))}"
    listed = ["docker", "images", "--quiet", "--no-trunc", "--filter", label]
    found = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["docker", "rmi", "--force", *found], check=False, capture_output=True)


def tree_of(engine: Engine, tag: str, folder: Path) -> Tree:
    layout = from_engine(engine, engine.resolve(f"{TAG}:{tag}"), folder)
    return read_tree([layer.path for layer in read_layers(layout)[1:]])


def test_both_ways_give_one_tree(case: Case, engine: Engine, tmp_path: Path) -> None:
    said = case.build("-t", f"{TAG}:assembled").stderr
    assert "assembling from wheel files, nothing is run: every package is a wheel" in said
    assert "PASS" in said
    said = case.build("-t", f"{TAG}:dockerfile", "--engine", "docker").stderr
    assert "building a Dockerfile by Docker: --engine docker" in said
    ours, theirs = (tree_of(engine, tag, tmp_path) for tag in ("assembled", "dockerfile"))
    assert differing(ours, theirs) == []
    assert tree_digest(ours) == tree_digest(theirs)
    assert ours["opt/env/bin/demo-tool"].mode == 0o755
    assert not [path for path in ours if path.endswith(".pyc")]


def test_a_contested_path_is_the_later_packages_both_ways(
    base_layout: Layout, engine: Engine, tmp_path: Path
) -> None:
    names = ("first", "second", "third")
    wheels = [
        make_wheel(tmp_path / "wheels", {"shared.py": name.encode(), f"{name}.py": b""}, name=name)
        for name in names
    ]
    rivals = make_case(tmp_path, base_layout, *wheels)
    said = rivals.build("-t", f"{TAG}:assembled", "--no-verify").stderr
    assert "shared.py: of second and third; third's is taken" in said
    rivals.build("-t", f"{TAG}:dockerfile", "--no-verify", "--engine", "docker")
    ours, theirs = (tree_of(engine, tag, tmp_path) for tag in ("assembled", "dockerfile"))
    assert differing(ours, theirs) == []
    shared = ours["opt/env/lib/python3.11/site-packages/shared.py"]
    assert shared.sha256 == hashlib.sha256(b"third").hexdigest()
    for tag in ("assembled", "dockerfile"):
        engine.remove(f"{TAG}:{tag}")


def test_the_engine_has_the_image_under_the_computed_id(
    case: Case, engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "build.json"
    out = tmp_path / "out"
    case.build("--engine", "none", "-o", f"oci:{out}", "--metadata", file)
    report: dict[str, Any] = json.loads(file.read_text())
    case.build("-t", f"{TAG}:assembled", "--no-cache", "--no-verify")
    assert engine.resolve(f"{TAG}:assembled").image_id == report["image_id"]
    manifest = json.loads(read_layout(out).manifest)
    assert manifest["config"]["digest"] == report["image_id"]
    assert (report["verified"], report["way"]) == (None, "assembler")
    run = ["docker", "run", "--rm", "--network", "none", f"{TAG}:assembled", "demo"]
    assert subprocess.run(run, check=True, capture_output=True).stdout == b"demo\n"


def test_a_base_in_an_engine_is_built_upon_too(
    case: Case, base_layout: Layout, engine: Engine, tmp_path: Path
) -> None:
    before = engine.resolve(f"{TAG}:assembled")
    with LoopbackRegistry(base_layout) as registry:
        case.build("-t", f"{TAG}:named", "--no-verify", "--base", registry.reference)
        engine.remove(registry.reference)
    assert engine.resolve(f"{TAG}:named").image_id == before.image_id


@pytest.mark.parametrize("choice", ["none", "docker", "buildah"])
def test_built_twice(choice: str, case: Case, tmp_path: Path) -> None:
    options = ["--engine", choice, "--check-reproducible", "--no-verify"]
    output = ["-o", f"docker-archive:{tmp_path}/image.tar"] if choice != "docker" else []
    assert "built twice without cache: the same layers" in case.build(*options, *output).stderr


def test_one_changed_byte_is_refused_by_name(case: Case, tmp_path: Path) -> None:
    (wheel,) = case.wheels.glob("demo-*.whl")
    data = wheel.read_bytes()
    wheel.write_bytes(data[:99] + bytes([data[99] ^ 1]) + data[100:])
    try:
        into = ("-o", f"oci:{tmp_path}/x")
        for engine in (("none", *into), ("buildah", *into), ("docker",)):
            assert "demo: " in case.build("--engine", *engine, expect=6).stderr
    finally:
        wheel.write_bytes(data)
    assert not (tmp_path / "x").exists()


def test_what_the_lock_says_of_its_first_build_is_held_against_the_next(
    case: Case, tmp_path: Path
) -> None:
    output = ("--engine", "none", "-o", f"oci:{tmp_path}/x")
    case.build(*output)
    text = case.lock.read_text()
    assert "the same id as the first build's" in case.build(*output).stderr
    wrong = "\n".join(
        f'id = "sha256:{"0" * 64}"' if line.startswith('id = "sha256:') else line
        for line in text.splitlines()
    )
    case.lock.write_text(f"{wrong}\n")
    try:
        assert "when it was first built" in case.build(*output, expect=6).stderr
    finally:
        case.lock.write_text(text)


def test_a_project_goes_on_top(case: Case, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import demo\ndemo.main()\n")
    (tmp_path / "secret.env").write_text("x")
    (tmp_path / ".dockerignore").write_text("*.env\n")
    before = case.lock.read_text()
    case.build("-t", f"{TAG}:assembled", "--no-verify")
    plain = engine.resolve(f"{TAG}:assembled").layers
    recorded = case.lock.read_text()
    case.build("-t", f"{TAG}:assembled", "--project", tmp_path)
    assert engine.resolve(f"{TAG}:assembled").layers[:-1] == plain
    assert case.lock.read_text() == recorded
    run = ["docker", "run", "--rm", "--network", "none", f"{TAG}:assembled"]
    done = subprocess.run([*run, "python", "train.py"], check=True, capture_output=True)
    assert done.stdout == b"demo\n"
    listed = subprocess.run([*run, "ls", "-A"], check=True, capture_output=True).stdout.split()
    assert listed == [b".dockerignore", b"train.py"]
    case.lock.write_text(before)


_SKOPEO = """#!/bin/sh
printf '%s\\n' "$@" > {said}
[ -z "{fault}" ] || {{ echo "{fault}" >&2; exit 1; }}
"""


@pytest.mark.parametrize("fault", ["", "unauthorized: authentication required"])
def test_a_push_is_one_copy_by_skopeo(
    fault: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the program; the benchmark pushes with the real one."""
    said, program = tmp_path / "said", tmp_path / "bin" / "skopeo"
    program.parent.mkdir()
    program.write_text(_SKOPEO.format(said=said, fault=fault))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    options = ("--engine", "none", "-o", f"oci:{tmp_path}/x", "--push", "127.0.0.1:1/x/y:1")
    talk = case.build(*options, expect=5 if fault else 0).stderr
    assert (fault or "pushed 127.0.0.1:1/x/y:1 by skopeo") in talk
    command, *arguments, source, target = said.read_text().splitlines()
    assert (command, target) == ("copy", "docker://127.0.0.1:1/x/y:1")
    assert arguments == ["--quiet", "--dest-tls-verify=false"]
    assert source.startswith("oci:")
    assert not Path(source.removeprefix("oci:")).exists()


def test_an_engine_is_not_asked_where_none_is_wanted(case: Case, tmp_path: Path) -> None:
    environ = {**os.environ, "DOCKER_HOST": "unix:///nonexistent.sock"}
    command = [str(BIN / "envlock"), "build", str(case.lock), "--wheelhouse", str(case.wheels)]
    command += ["--base", case.base, "--no-verify"]
    none = [*command, "--engine", "none", "-o", f"oci:{tmp_path}/x"]
    subprocess.run(none, check=True, capture_output=True, env=environ)
    failed = subprocess.run(command, check=False, capture_output=True, text=True, env=environ)
    assert failed.returncode == 5
    assert "--engine none -o oci:FOLDER" in failed.stderr
