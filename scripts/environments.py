"""What demo and tests run on: an engine, a base image, and environments with a real torch.

Everything is made once and kept in ``build/`` or the user's cache folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
DISTRIBUTION_PYTHON = Path("/usr/bin/python3")
"""The distribution's own: the bootstrapped base has exactly this one."""
PYTORCH_CPU = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True, kw_only=True)
class Environment:
    name: str
    requirements: tuple[str, ...]
    fallback: tuple[str, ...] = field(default=())
    """Options of a second try, where pip's own configuration does not lead to the files."""


TORCH = Environment(
    name="torch-cpu",
    requirements=("torch==2.13.0+cpu", "numpy==2.2.6"),
    fallback=("--extra-index-url", PYTORCH_CPU),
)
CUDA_TORCH = Environment(name="torch-cu121", requirements=("torch==2.3.0", "numpy==1.26.4"))
NEWER_CUDA_TORCH = Environment(name="torch-cu124", requirements=("torch==2.6.0", "numpy==1.26.4"))


def ensure_environment(wanted: Environment, folder: Path = BUILD) -> Path:
    """The interpreter of a virtual environment with these packages and nothing else."""
    home = folder / wanted.name
    python = home / "bin" / "python"
    if (home / "ready").exists():
        return python
    say(f"making {wanted.name}: {' '.join(wanted.requirements)}")
    uv = Path(sys.executable).parent / "uv"
    check([uv, "venv", "--quiet", "--clear", "--python", DISTRIBUTION_PYTHON, home])
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    if subprocess.run([*pip, *wanted.requirements], check=False).returncode != 0:
        if not wanted.fallback:
            sys.exit(f"{wanted.name} could not be installed")
        check([*pip, *wanted.fallback, *wanted.requirements])
    (home / "ready").touch()
    return python


def ensure_engine() -> None:
    """A Docker Engine that answers; installed from distribution packages where there is none."""
    check(["sh", ROOT / "scripts" / "install-engine.sh"])
    check(["sh", ROOT / "scripts" / "start-engine.sh"])


def ensure_base() -> Path:
    """The bootstrapped base image with the distribution's Python, as an OCI layout."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envlock" / "base"
    if not (cache / "index.json").exists():
        say("bootstrapping the base image")
        check([sys.executable, ROOT / "images" / "base" / "build.py", cache])
    return cache


def check(command: list[str | Path]) -> None:
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(f"failed with code {done.returncode}: {' '.join(map(str, command))}")


def say(text: str) -> None:
    print(f"-- {text}", file=sys.stderr, flush=True)
