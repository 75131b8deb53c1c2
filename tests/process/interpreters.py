"""Every Python of this machine that the probe must run on. Not a test module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 8)


def interpreters() -> dict[str, Path]:
    """``3.11`` -> an interpreter of that release; at least the one that runs the tests."""
    names = [shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], 20)]
    paths = [Path(sys.executable), *(Path(name) for name in names if name)]
    if pyenv := os.environ.get("PYENV_ROOT"):
        paths += sorted(Path(pyenv).glob("versions/3.*/bin/python3"))
    found: dict[str, Path] = {}
    for path in paths:
        release = _release(path)
        if release is not None and release >= OLDEST:
            found.setdefault(f"{release[0]}.{release[1]}", path)
    return dict(sorted(found.items()))


def _release(path: Path) -> tuple[int, int] | None:
    """None for a shim that leads nowhere."""
    ask = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([path, "-Sc", ask], capture_output=True, text=True, check=False)
    numbers = done.stdout.split()
    return (int(numbers[0]), int(numbers[1])) if done.returncode == 0 else None
