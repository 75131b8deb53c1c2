"""What has no wheel is built in the image, with the lock's tools, without network, and nowhere else."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from envlock.image.base_export import from_engine
from envlock.image.foundation import read_layers
from envlock.image.oci import Layout
from envlock.image.tree import read_tree
from envlock.lock.io import load_lock
from envlock.targets.engine import Engine
from tests.engine.test_assemble import BIN, Case, no_images_left
from tests.unit.wheels import make_wheel

__all__ = ["no_images_left"]

TAG = "envlock-test-sources:x"
BACKEND = '''
"""Builds a wheel with the standard library, and tries what a source build must not be able to do."""
import base64, contextlib, hashlib, os, pathlib, socket, sys, zipfile

def digest(text):
    value = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return "sha256=" + value.rstrip(b"=").decode()

def build_wheel(folder, settings=None, metadata=None):
    if "CANARY" in os.environ:
        pathlib.Path(os.environ["CANARY"]).write_text("it ran here")
    network = False
    with contextlib.suppress(OSError):
        socket.create_connection(("1.1.1.1", 53), 2).close()
        network = True
    for place in ("/stage/packages/opt/env/evil", "/opt/env/evil", "/etc/evil", "/built/evil.whl"):
        with contextlib.suppress(OSError):
            pathlib.Path(place).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(place).write_text("evil")
    try:
        import tool
    except ImportError:
        sys.exit("No module named 'tool'")
    text = f"NETWORK = {network}\\nEPOCH = {os.environ.get('SOURCE_DATE_EPOCH')!r}\\nTOOL = {tool.x}\\n"
    name = "sourced-1.0-py3-none-any.whl"
    info = "sourced-1.0.dist-info"
    files = {
        "sourced.py": text,
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: sourced\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    rows = [f"{path},{digest(content)},{len(content)}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\\n".join([*rows, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        for path, content in files.items():
            wheel.writestr(zipfile.ZipInfo(path), content)
    return name
'''
FILES = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend.py": BACKEND,
    "PKG-INFO": "Metadata-Version: 2.1\nName: sourced\nVersion: 1.0\n",
}


def make_sdist(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    path = folder / "sourced-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"sourced-1.0/{name}")
            info.size = len(content.encode())
            tar.addfile(info, io.BytesIO(content.encode()))
    return path


@dataclass(frozen=True, kw_only=True)
class Sourced(Case):
    canary: Path


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Sourced:
    folder = tmp_path_factory.mktemp("sources")
    shelf = folder / "wheels"
    tool = make_wheel(shelf, {"tool.py": b"x = 7\n"}, name="tool")
    sdist = make_sdist(shelf)
    uv, python = str(BIN / "uv"), str(folder / "venv" / "bin" / "python")
    install = [uv, "pip", "install", "--quiet", "--python", python, "--no-build-isolation"]
    canary = folder / "canary"
    env = {**os.environ, "CANARY": str(canary)}
    for command in (
        [uv, "venv", "--quiet", "--python", "/usr/bin/python3", str(folder / "venv")],
        [*install, str(shelf / tool.wheel.filename)],
        [*install, str(sdist)],
    ):
        subprocess.run(command, check=True, cwd=folder, env=env)
    assert canary.exists(), "the backend shows where it runs"
    canary.unlink()
    lock = folder / "a.lock"
    capture = [str(BIN / "envlock"), "capture", "--python", python, "--wheelhouse", "wheels"]
    subprocess.run([*capture, "-o", str(lock)], check=True, cwd=folder, env=env)
    base = f"oci:{base_layout.folder}"
    return Sourced(lock=lock, wheels=shelf, base=base, canary=canary)


def test_a_capture_runs_nothing_and_locks_the_source_by_its_hash(case: Sourced) -> None:
    assert not case.canary.exists()
    (package,) = (one for one in load_lock(case.lock).packages if one.name == "sourced")
    assert package.sdist is not None
    assert (package.sdist.path, package.sdist.url) == ("sourced-1.0.tar.gz", None)
    assert not package.wheels


def test_it_is_not_built_unless_it_is_allowed(case: Sourced) -> None:
    said = case.build("-t", TAG, expect=6).stderr
    assert "sourced has no wheel; building from source is not done silently" in said
    assert "--allow-source" in said


def test_it_is_built_without_network_and_leaves_only_its_files(
    case: Sourced, engine: Engine, tmp_path: Path
) -> None:
    said = case.build("-t", TAG, "--allow-source").stderr
    assert "building a Dockerfile by Docker: built from source: sourced" in said
    assert "PASS" in said
    run = ["docker", "run", "--rm", "--network", "none", TAG, "python", "-c"]
    code = "import sourced; print(sourced.NETWORK, sourced.EPOCH, sourced.TOOL)"
    shown = subprocess.run([*run, code], check=True, capture_output=True, text=True).stdout
    assert shown == "False 315532800 7\n"
    layout = from_engine(engine, engine.resolve(TAG), tmp_path)
    tree = read_tree([layer.path for layer in read_layers(layout)[1:]])
    assert "opt/env/lib/python3.11/site-packages/sourced.py" in tree
    assert [path for path in tree if "evil" in path or path.startswith(("built", "build"))] == []


def test_it_is_the_same_each_time(case: Sourced) -> None:
    options = ("--allow-source", "--check-reproducible", "--no-verify")
    assert "built twice without cache: the same layers" in case.build(*options).stderr


def test_verify_does_not_promise_the_bytes_of_another_build(case: Sourced) -> None:
    """The captured build had no fixed clock, so its module says something else."""
    said = case.build("-t", TAG, "--allow-source", "--verbose").stderr
    assert "packages.sourced.record" in said


def test_a_tool_that_the_lock_lacks_is_named(case: Sourced, base_layout: Layout) -> None:
    """Built with the lock's own tools, so that no version of them is left to chance."""
    folder = case.lock.parent
    python = str(folder / "venv" / "bin" / "python")
    lock = folder / "without.lock"
    uv = [str(BIN / "uv"), "pip", "uninstall", "--quiet", "--python", python, "tool"]
    subprocess.run(uv, check=True)
    capture = [str(BIN / "envlock"), "capture", "--python", python, "--wheelhouse", "wheels"]
    subprocess.run([*capture, "-o", str(lock)], check=True, cwd=folder)
    bare = Case(lock=lock, wheels=case.wheels, base=f"oci:{base_layout.folder}")
    said = bare.build("--allow-source", "--no-verify", expect=6).stderr
    assert "No module named 'tool'" in said
    assert "sourced could not be built from source" in said
    assert "install it in the environment, and capture again" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engine", "none", "-o", "oci:x"), "--engine none cannot build this"),
        (("--engine", "buildah", "-o", "oci:x"), "cannot cut a step off from the network"),
        (("--apt", "hostname=3.23"), "what is built from source must not have it"),
    ],
)
def test_not_where_it_could_reach_the_network(
    options: tuple[str, ...], words: str, case: Sourced
) -> None:
    assert words in case.build("--allow-source", *options, expect=2).stderr


def test_an_altered_source_is_refused_by_name(case: Sourced) -> None:
    path = case.wheels / "sourced-1.0.tar.gz"
    data = path.read_bytes()
    path.write_bytes(data + b"\n")
    try:
        said = case.build("--allow-source", "--no-verify", expect=6).stderr
    finally:
        path.write_bytes(data)
    assert "sourced: " in said
    assert "is not the file that the lock names" in said
