"""How fast installed files are read, against programs that only read them. Ratios of one run.

    python -m benchmarks.files [--python CUDA_TORCH_PYTHON] [--rounds 5]

1. ``capture --check-files``, the whole command, against ``sha256sum`` of the same files on all
   cores: at least 0.8 of its throughput, on an environment of gigabytes.
2. Who owns which of 25,000 files, digests included, against reading the same RECORD files with
   the module csv, as every other tool does: at most 3 times as long.
3. ``diff`` of 1,000 locks against one, against loading the 1,000: at most twice as long.

The two sides of a comparison take turns, so that other load hits both. Prints one JSON object; exits
1 where a limit is missed. Files come from the page cache where memory suffices, for both sides.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.diff_speed import full_lock
from envlock.diff.judge import judge_pair
from envlock.lock.io import load_lock
from scripts.environments import CUDA_TORCH, ensure_environment
from tests.unit.probes import probe_module

CHECK_AT_LEAST, SCAN_AT_MOST, DIFF_AT_MOST = 0.8, 3.0, 2.0
RECORD_LINES, LOCKS = 25_000, 1_000
ENVLOCK = Path(sys.executable).parent / "envlock"


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turn(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> list[float]:
    """Median seconds of both, after one turn that is not counted."""
    pairs = [(seconds(theirs), seconds(ours)) for _ in range(rounds + 1)][1:]
    return [statistics.median(column) for column in reversed(list(zip(*pairs, strict=True)))]


# --- 1: hashing -------------------------------------------------------------------------------

_LIST = """\
import sys
sys.path.insert(0, sys.argv[1])
import observe, observe_packages, os
scanned = observe_packages.scan(observe.site_folders())
paths = {os.path.normpath(os.path.join(dist.site.folder, path)) for dist in scanned.dists.values()
         for path, (digest, _) in dist.files.items() if digest and not path.endswith(".pyc")}
sys.stdout.write("\\0".join(path for path in sorted(paths) if os.path.isfile(path)))
"""


def check_files(python: str, rounds: int) -> dict[str, Any]:
    probes = Path(probe_module("observe").__file__).parent
    listed = subprocess.run(
        [python, "-B", "-c", _LIST, probes], check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        ours: list[str | Path] = [
            ENVLOCK,
            "capture",
            "--offline",
            "--check-files",
            "--python",
            python,
        ]
        ours += ["-o", Path(folder) / "a.lock"]
        # Large files first and a few at a time, so that no core of the other side is idle.
        paths = sorted(listed.split(b"\0"), key=lambda path: -_size(path))
        order = b"\0".join(paths)
        theirs = ["xargs", "-0", "-n", "16", "-P", str(os.cpu_count()), "sha256sum"]
        mine, other = in_turn(
            lambda: subprocess.run(ours, check=True, capture_output=True),
            lambda: subprocess.run(theirs, input=order, check=True, stdout=subprocess.DEVNULL),
            rounds,
        )
    return {
        "what": "capture --check-files / sha256sum on all cores",
        "bytes": sum(map(_size, paths)),
        "files": len(paths),
        "envlock_s": round(mine, 2),
        "other_s": round(other, 2),
        "ratio": round(other / mine, 2),
        "at_least": CHECK_AT_LEAST,
    }


def _size(path: bytes) -> int:
    return Path(os.fsdecode(path)).stat().st_size


# --- 2: ownership -----------------------------------------------------------------------------


def site_with_records(folder: Path) -> list[Path]:
    """25,000 files of 50 distributions, each named in a RECORD; a library that two claim."""
    made = []
    for number in range(50):
        name = f"package_{number:02}"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\n")
        lines = [
            f"{name}/part_{i % 20}/module_{i}.py,sha256={i:043},{i * 7}"
            for i in range(RECORD_LINES // 50 - 1)
        ]
        lines.append(f"shared/lib/libshared.so.1,sha256={number // 2:043},1000")
        (info / "RECORD").write_text("\n".join(lines) + "\n")
        made.append(info / "RECORD")
    return made


def ownership(rounds: int) -> dict[str, Any]:
    packages = probe_module("observe_packages")
    with tempfile.TemporaryDirectory() as folder:
        records = site_with_records(Path(folder))
        scanned = packages.scan([(folder, "wheel")])
        if len(scanned.contested) != 1 or len(scanned.sites[0].owner) < RECORD_LINES - 50:
            raise RuntimeError("the scan did not find what was put there")

        def read() -> None:
            for path in records:
                with path.open(newline="", encoding="utf-8") as file:
                    list(csv.reader(file))

        scan = lambda: packages.scan([(folder, "wheel")])  # noqa: E731
        mine, other = in_turn(scan, read, max(rounds * 5, 15))
    return {
        "what": "ownership of 25,000 files / reading the same RECORD files",
        "files": RECORD_LINES,
        "envlock_s": round(mine, 4),
        "other_s": round(other, 4),
        "ratio": round(mine / other, 2),
        "at_most": SCAN_AT_MOST,
    }


# --- 3: many locks ----------------------------------------------------------------------------


def many_locks(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference = folder / "reference.lock"
        reference.write_text(full_lock("2.3.0+cu121", "12.1"))
        texts = [full_lock("2.4.0+cu118", "11.8"), full_lock("2.3.0+cu121", "12.1")]
        paths = [folder / f"{i}.lock" for i in range(LOCKS)]
        for index, path in enumerate(paths):
            path.write_text(texts[index % 2])

        def load() -> None:
            for path in paths:
                load_lock(path)

        def compare() -> None:
            left = load_lock(reference).table.observed
            for path in paths:
                judge_pair(left, load_lock(path).table.observed)

        mine, other = in_turn(compare, load, rounds)
    return {
        "what": "diff of 1,000 locks against one / loading them",
        "locks": LOCKS,
        "envlock_s": round(mine, 2),
        "other_s": round(other, 2),
        "ratio": round(mine / other, 2),
        "at_most": DIFF_AT_MOST,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=os.environ.get("ENVLOCK_TEST_CUDA_TORCH_PYTHON"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["check", "ownership", "locks"])
    options = parser.parse_args(arguments)
    results = []
    if options.only in {None, "check"}:
        python = options.python or str(ensure_environment(CUDA_TORCH))
        results.append(check_files(python, options.rounds))
    if options.only in {None, "ownership"}:
        results.append(ownership(options.rounds))
    if options.only in {None, "locks"}:
        results.append(many_locks(1))
    print(json.dumps(results, indent=1))
    missed = [
        result
        for result in results
        if result["ratio"] < result.get("at_least", 0)
        or result["ratio"] > result.get("at_most", float("inf"))
    ]
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
