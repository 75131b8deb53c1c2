"""How long ``envlock diff`` of two full locks takes, against ``envfixer diff`` of the same packages.

    python -m benchmarks.diff_speed --envfixer PATH

Both are started as a person starts them, in turn, so that other load hits both. Prints the medians
in seconds and their ratio as JSON. Exits 1 where the ratio is above ``LIMIT``, 2 without envfixer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from envlock.lock.io import render_lock, with_end
from tests.unit.envs import env, torch
from tests.unit.healthy import CUDA_TORCH, installed
from tests.unit.locks import lock, packages, wheel

LIMIT = 4.0
PACKAGES = 200
FOUND = (0, 1)
"""Exit codes of both programs that mean: compared."""


def versions(torch_version: str) -> dict[str, str]:
    """The distributions of a real environment, and as many others as make ``PACKAGES``."""
    named = {name: entry["version"] for name, entry in CUDA_TORCH["packages"].items()}
    more = {f"package-{i:03}": f"1.{i}.0" for i in range(PACKAGES - len(named))}
    return {**named, **more, "torch": torch_version.partition("+")[0]}


def full_lock(torch_version: str, cuda: str) -> str:
    pins = versions(torch_version)
    facts = {**CUDA_TORCH, **torch(torch_version, cuda), "packages": installed(pins)}
    entries = packages(
        [{"name": n, "version": v, "wheels": [wheel(n, v)]} for n, v in sorted(pins.items())]
    )
    made = lock(env(facts))
    return render_lock(replace(made, packages=entries, table=with_end(made.table, entries)))


def fingerprint(torch_version: str) -> str:
    """What envfixer compares, in the form that its ``capture`` writes."""
    data: dict[str, Any] = {
        "schema_version": 2,
        "source": "capture",
        "captured_at": "2026-01-01T00:00:00+00:00",
        "env_var_names": ["HOME", "LANG", "PATH"],
        "libc": "glibc 2.35",
        "locale_encoding": "UTF-8",
        "packages": {**versions(torch_version), "torch": torch_version},
        "platform_machine": "x86_64",
        "platform_release": "6.5.0",
        "platform_system": "Linux",
        "python_implementation": "CPython",
        "python_version": "3.11.9",
        "timezone": "UTC+00:00",
    }
    return json.dumps(data)


def timed(command: Sequence[str | Path]) -> float:
    # Installed programs have their byte code beside them; a checkout has it after the first run.
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False, env=variables)
    taken = time.perf_counter() - begin
    if done.returncode not in FOUND:
        raise RuntimeError(f"{command[0]} exits {done.returncode}: {done.stderr.decode()[-500:]}")
    return taken


def measure(envfixer: str, rounds: int) -> dict[str, float | int]:
    envlock = Path(sys.executable).parent / "envlock"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sides = (("left", "2.3.0+cu121", "12.1"), ("right", "2.4.0+cu118", "11.8"))
        for side, version, cuda in sides:
            (place / f"{side}.lock").write_text(full_lock(version, cuda))
            (place / f"{side}.json").write_text(fingerprint(version))
        ours = (envlock, "diff", place / "left.lock", place / "right.lock")
        theirs = (envfixer, "diff", place / "left.json", place / "right.json")
        timed(ours), timed(theirs)  # files and byte code are warm from here on
        pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "packages": PACKAGES,
        "rounds": rounds,
        "envlock_s": round(mine, 3),
        "envfixer_s": round(other, 3),
        "ratio": round(mine / other, 2),
        "limit": LIMIT,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--envfixer", default=shutil.which("envfixer"), help="else from the PATH")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args(arguments)
    if options.envfixer is None:
        print("envfixer is not on the PATH: pip install envfixer, or --envfixer", file=sys.stderr)
        return 2
    result = measure(options.envfixer, options.rounds)
    print(json.dumps(result))
    return 1 if result["ratio"] > LIMIT else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
