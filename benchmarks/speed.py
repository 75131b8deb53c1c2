"""Speed next to other tools, as ratios of medians measured in one run: ``make bench``.

The commands of a comparison run in turn, so that a machine that slows down slows all of them.
Figures are whole processes, wall time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.environments import BUILD, TORCH, check, ensure_environment

ENVLOCK = str(Path(sys.executable).parent / "envlock")
UV = str(Path(sys.executable).parent / "uv")
OTHERS = ("envfixer==0.2.0", "ceteris==0.4.1")
RUNS = 7

Command = Sequence[str]


def main() -> int:
    python = str(ensure_environment(TORCH))
    tools = _others()
    with tempfile.TemporaryDirectory(prefix="envlock-bench-") as name:
        folder = Path(name)
        missed = [*_capture(python, tools, folder), *_diff(python, tools, folder)]
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


def _capture(python: str, tools: Path, folder: Path) -> list[str]:
    out = str(folder / "a.lock")
    medians = in_turn(
        {
            "envlock capture --offline": [
                ENVLOCK,
                "capture",
                "--offline",
                "--python",
                python,
                "-o",
                out,
            ],
            "collect_env": [python, "-m", "torch.utils.collect_env"],
            "ceteris capture": [str(tools / "ceteris"), "capture"],
        },
        folder,
    )
    ours = medians["envlock capture --offline"]
    return [
        *ratio("capture / collect_env", ours / medians["collect_env"], 0.15),
        *ratio("capture / ceteris capture", ours / medians["ceteris capture"], 3.0),
    ]


def _diff(python: str, tools: Path, folder: Path) -> list[str]:
    left, right = str(folder / "left.lock"), str(folder / "right.lock")
    for path, interpreter in ((left, python), (right, sys.executable)):
        check([ENVLOCK, "capture", "--offline", "--python", interpreter, "-o", path])
    for path, interpreter in (("one.json", python), ("two.json", sys.executable)):
        freeze = subprocess.run(
            [UV, "pip", "freeze", "--python", interpreter], check=True, capture_output=True
        ).stdout
        (folder / "freeze.txt").write_bytes(freeze)
        source = ["--from-freeze", str(folder / "freeze.txt"), "-o", str(folder / path)]
        check([str(tools / "envfixer"), "capture", *source])
    fingerprints = [str(folder / "one.json"), str(folder / "two.json")]
    medians = in_turn(
        {
            "envlock diff": [ENVLOCK, "diff", left, right],
            "envfixer diff": [str(tools / "envfixer"), "diff", *fingerprints],
        },
        folder,
    )
    return ratio("diff / envfixer diff", medians["envlock diff"] / medians["envfixer diff"], 5.0)


def in_turn(commands: Mapping[str, Command], folder: Path) -> dict[str, float]:
    """Median wall seconds of each command, after one run that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(RUNS + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, cwd=folder, check=False, capture_output=True)
            if turn:
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        low, high = min(seconds[name]), max(seconds[name])
        print(f"{name:28} {median:6.3f} s  (from {low:.3f} to {high:.3f})")
    return medians


def ratio(name: str, value: float, limit: float) -> list[str]:
    """Print a ratio; returns the line again when it is over its limit."""
    line = f"{name:28} {value:6.3f}x  (at most {limit:g}x)"
    print(line)
    return [line] if value > limit else []


def _others() -> Path:
    folder = BUILD / "bench"
    if not (folder / "ready").exists():
        check([UV, "venv", "--quiet", "--clear", "--python", sys.executable, folder])
        check([UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python", *OTHERS])
        (folder / "ready").touch()
    return folder / "bin"


if __name__ == "__main__":
    sys.exit(main())
