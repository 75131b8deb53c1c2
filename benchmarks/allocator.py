"""Replay recordings of the real allocator in the model, and measure both.

    python -m benchmarks.allocator DIR [--predict FILE]

Prints a JSON list, one object a recording, on standard output and the speed, next to that of a
bare loop over the same events, on standard error. ``docs/allocator.md`` explains the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import insort
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from envlock.allocator.history import History
from envlock.allocator.recording import read_recording
from envlock.allocator.replay import Replay, replay, score
from envlock.allocator.rules import Rules
from envlock.errors import EnvlockError

ROUNDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Seconds for one pass over a history; each the fastest of several."""

    model: float
    loop: float
    """One ``bisect.insort`` and one pop an event, on the sizes of what is in use at the start."""
    empty: float
    """The same on a list that is empty between events: the least that any loop could do."""


def bare_loop(history: History, ordered: list[tuple[int, int]]) -> float:
    began = perf_counter()
    for block, size in history.operations:
        insort(ordered, (size, block))
        ordered.pop()
    return perf_counter() - began


def measure(history: History) -> tuple[Replay, Speed]:
    """Time the model and the bare loops in turns: others disturb a run, but never help it."""
    rules = Rules()
    held = sorted((one.requested, one.block) for one in history.start_requests)
    replays, loops, empties = [], [], []
    for _ in range(ROUNDS):
        replays.append(replay(history, rules))
        loops.append(bare_loop(history, list(held)))
        empties.append(bare_loop(history, []))
    fastest = min(replays, key=lambda one: one.seconds)
    return fastest, Speed(model=fastest.seconds, loop=min(loops), empty=min(empties))


def summary(history: History, found: Replay) -> dict[str, Any]:
    result = score(history, found)
    return {
        "file": history.source,
        "allocations": result.allocations,
        "decisions_right": result.decisions_right,
        "placements_right": result.placements_right,
        "peak_reserved": found.peak_reserved,
        "expected_peak_reserved": history.decisions.peak_reserved,
        "final_reserved": found.final_reserved,
        "expected_final_reserved": history.decisions.final_reserved,
        "allocations_per_second": round(result.allocations / max(found.seconds, 1e-9)),
    }


def prediction(history: History) -> dict[str, Any]:
    """What the model decides by itself; only the last list has seen the driver's addresses."""
    alone = replay(history, Rules(), follow_driver=False)
    informed = replay(history, Rules(), follow_driver=True)
    return {
        "file": history.source,
        "blocks": alone.blocks,
        "new_segments": alone.grown,
        "placements": alone.places,
        "placements_at_recorded_addresses": informed.places,
        "peak_reserved": alone.peak_reserved,
        "final_reserved": alone.final_reserved,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocator", description=__doc__)
    parser.add_argument("directory", type=Path, help="holds alloc-trace/1 files, *.json.gz")
    parser.add_argument(
        "--predict", type=Path, metavar="FILE", help="write the model's own answers"
    )
    chosen = parser.parse_args(arguments)
    try:
        recordings = [read_recording(path) for path in sorted(chosen.directory.glob("*.json.gz"))]
    except EnvlockError as error:
        print(error.message, file=sys.stderr)
        return error.code
    if not recordings:
        print(f"no recording (*.json.gz) in {chosen.directory}", file=sys.stderr)
        return 3
    results = []
    speeds = []
    for recording in recordings:
        found, speed = measure(recording)
        results.append(summary(recording, found))
        speeds.append(speed)
        _say_speed(recording.source, len(recording.operations), speed)
    total = Speed(
        model=sum(one.model for one in speeds),
        loop=sum(one.loop for one in speeds),
        empty=sum(one.empty for one in speeds),
    )
    _say_speed("all", sum(len(one.operations) for one in recordings), total)
    if chosen.predict:
        text = json.dumps([prediction(one) for one in recordings], separators=(",", ":"))
        chosen.predict.write_text(text + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))
    return 0


def _say_speed(name: str, events: int, speed: Speed) -> None:
    each = 1e6 / max(events, 1)
    print(
        f"{name}: {events} events; microseconds an event: model {speed.model * each:.2f}, "
        f"bare loop {speed.loop * each:.2f} ({speed.empty * each:.2f} on an empty list); "
        f"speed of the model over that of the loop {speed.loop / speed.model:.3f} "
        f"({speed.empty / speed.model:.3f}), wanted 0.125",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
