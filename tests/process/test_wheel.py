"""The built wheel, in an empty environment, has all it needs: templates, facts, probes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from envlock.lock.io import render_lock
from tests.unit.locks import lock

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``envlock`` command of an environment that holds the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = folder.glob("torch_envlock-*.whl")
    subprocess.run(
        [str(UV), "venv", "--quiet", "--python", sys.executable, str(folder / "venv")], check=True
    )
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run(
        [str(UV), "pip", "install", "--quiet", "--python", python, str(wheel)], check=True
    )
    return folder / "venv" / "bin" / "envlock"


def test_it_renders_from_its_own_templates(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text(render_lock(lock()))
    for name in ("one", "two"):
        command = [str(installed), "render", "a.lock", "-o", name]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    files = {p.name: p.read_bytes() for p in (tmp_path / "one").iterdir()}
    assert files["Dockerfile"].startswith(b"# escape=\\\n")
    assert {"install.py", "requirements.txt", "plan.json", "embedded.toml", "uv"} <= files.keys()
    assert files == {p.name: p.read_bytes() for p in (tmp_path / "two").iterdir()}


def test_it_observes_and_compares(installed: Path, tmp_path: Path) -> None:
    capture = [
        str(installed),
        "capture",
        "--offline",
        "--python",
        sys.executable,
        "-o",
        "here.lock",
    ]
    subprocess.run(capture, cwd=tmp_path, check=True, capture_output=True)
    compare = [str(installed), "diff", "here.lock", "--python", sys.executable, "--format", "json"]
    done = subprocess.run(compare, cwd=tmp_path, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    explain = subprocess.run(
        [str(installed), "explain"], check=True, capture_output=True, text=True
    )
    assert "EL201" in explain.stdout
