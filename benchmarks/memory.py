"""What ``envlock memory`` costs on a large snapshot, next to unpickling it.

    python -m benchmarks.memory [--events N] [--frames N] [SNAPSHOT]

Without a snapshot one is made: a recording of a real GPU over and over, in the layout that torch
writes. Each round times, in processes of their own and in turns, a bare ``pickle.load`` and the
whole command, from the start of Python to the end. Exit code 1 where the command takes more than
``LIMIT`` times as long.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from tests.unit.test_allocator_snapshot import from_recording

LIMIT = 3.0
ROUNDS = 3
_UNPICKLE = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
_COMMAND = "import sys; from envlock.cli import run; sys.exit(run(sys.argv[1:]))"


def write_snapshot(path: Path, events: int, frames: int) -> None:
    """Every event has dictionaries and frames of its own, as an unpickled one of torch's has."""
    data = from_recording("trace-03")
    (trace, _) = data["device_traces"]
    stack = [
        {"filename": f"/src/model/layer_{n}.py", "name": f"forward_{n}", "line": n}
        for n in range(frames)
    ]
    data["device_traces"] = [
        [
            {**event, "frames": [dict(frame) for frame in stack]}
            for _ in range(max(1, events // len(trace)))
            for event in trace
        ],
        [],
    ]
    path.write_bytes(pickle.dumps(data, protocol=4))


def seconds(program: str, *arguments: str) -> float:
    began = perf_counter()
    subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.DEVNULL
    )
    return perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("snapshot", type=Path, nargs="?")
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--frames", type=int, default=4)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.snapshot or Path(folder) / "snapshot.pickle"
        if not chosen.snapshot:
            write_snapshot(path, chosen.events, chosen.frames)
        times = [
            (seconds(_UNPICKLE, str(path)), seconds(_COMMAND, "memory", str(path), "-f", "json"))
            for _ in range(ROUNDS)
        ]
        size = path.stat().st_size
    unpickling, command = (min(column) for column in zip(*times, strict=True))
    ratio = command / unpickling
    print(
        f"snapshot of {size / 1e6:.0f} MB: pickle.load {unpickling:.2f} s, envlock memory "
        f"{command:.2f} s: {ratio:.2f} times (limit {LIMIT:g})"
    )
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
