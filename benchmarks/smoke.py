"""What the smoke test costs, next to a bare ``import torch``, and what it sees between releases.

    python -m benchmarks.smoke PYTHON [PYTHON ...] [--repeat N]

Each interpreter has a torch. Prints for each the time of the battery, controls included, as a
multiple of ``import torch`` taken in turns with it; then the peaks and losses of every release next
to those of the first. Ends with 1 where the battery takes more than ``LIMIT`` times the import, or
where repeated runs of one interpreter differ in a figure that has to be equal.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from envlock.lock.behaviour import (
    AllocatorPeak,
    BehaviourRecord,
    Fp16Range,
    Leak,
    Numerics,
    Rng,
    TensorPeak,
)
from envlock.lock.observation import value_of
from envlock.targets.local import LocalInterpreter
from envlock.targets.smoke import measure

LIMIT = 25.0
"""Times a bare ``import torch``."""
IMPORTS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    name: str
    records: tuple[BehaviourRecord, ...]
    import_s: float
    """The median: the machine is shared, and the battery meets the same disturbance."""
    battery_s: float
    """The fastest run."""

    @property
    def ratio(self) -> float:
        return self.battery_s / self.import_s


def seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def import_torch(python: Path) -> float:
    return seconds(lambda: subprocess.run([python, "-c", "import torch"], check=True))


def run(python: Path, repeat: int) -> Run:
    target = LocalInterpreter(python)
    import_torch(python)  # once, so that its files are in memory for all that follows
    records, batteries, imports = [], [], []
    for _ in range(repeat):
        imports += [import_torch(python) for _ in range(IMPORTS)]
        batteries.append(seconds(lambda: records.append(measure(target))))
    return Run(
        name=str(value_of(records[0].env.torch)),
        records=tuple(records),
        import_s=sorted(imports)[len(imports) // 2],
        battery_s=min(batteries),
    )


def repeated_equal(found: Run) -> bool:
    """Everything but times, /dev/shm and the malloc slope, which is bounded instead."""

    def figures(record: BehaviourRecord) -> object:
        probes = record.probes.changed(limits=None, shm=None).plain()
        if leak := probes.get("leak"):
            leak.pop("control", None)
            leak.get("values", {}).pop("malloc", None)
        return {name: {**probe, "seconds": 0} for name, probe in probes.items() if probe}

    first, *others = found.records
    return all(figures(first) == figures(other) for other in others)


def peaks(record: BehaviourRecord, kind: type[TensorPeak | AllocatorPeak]) -> dict[str, int]:
    probe = record.probes.tensor_peak if kind is TensorPeak else record.probes.alloc_peak
    return {n: f.peak for n, f in probe.values.items()} if isinstance(probe, kind) else {}


def losses(record: BehaviourRecord) -> dict[str, list[float]]:
    probe = record.probes.numerics
    if not isinstance(probe, Numerics):
        return {}
    return {n: [float.fromhex(text) for text in f.loss] for n, f in probe.values.items()}


def largest_difference(one: list[float], other: list[float]) -> float:
    return max(abs(b - a) / abs(a) for a, b in zip(one, other, strict=True))


def print_row(title: str, cells: Iterable[str]) -> None:
    print(f"{title:<16}" + "".join(f"{cell:>22}" for cell in cells))


def print_peaks(title: str, runs: list[Run], kind: type[TensorPeak | AllocatorPeak]) -> None:
    print_row(f"\n{title}", ())
    tables = [peaks(found.records[0], kind) for found in runs]
    for name in tables[0]:
        first = tables[0][name]
        cells = [
            f"{table[name]:,} ({100 * (table[name] - first) / first:+.1f} %)"
            if name in table
            else "-"
            for table in tables
        ]
        print_row(name, cells)


def print_losses(runs: list[Run]) -> None:
    print_row("\nlosses, largest relative difference over ten steps", ())
    tables = [losses(found.records[0]) for found in runs]
    for name, first in tables[0].items():
        cells = [
            f"{largest_difference(first, table[name]):.1e}" if name in table else "-"
            for table in tables
        ]
        print_row(name, cells)


def print_single_figures(runs: list[Run]) -> None:
    first_rng = runs[0].records[0].probes.rng
    for found in runs:
        probes = found.records[0].probes
        print(f"\n{found.name}")
        if isinstance(probes.leak, Leak):
            print(
                f"  leak: {probes.leak.values.malloc} B/step, planted "
                f"{probes.leak.control.malloc} B/step"
            )
        if isinstance(probes.fp16_range, Fp16Range):
            print(f"  largest finite fp16 input: {probes.fp16_range.values.get('float16')}")
        if isinstance(probes.rng, Rng) and isinstance(first_rng, Rng):
            other = sorted(n for n, v in probes.rng.values.items() if v != first_rng.values.get(n))
            print(f"  random streams unlike the first: {', '.join(other) or 'none'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("python", type=Path, nargs="+")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each interpreter")
    options = parser.parse_args()
    runs = [run(python, options.repeat) for python in options.python]
    print_row("", [found.name for found in runs])
    print_row("import torch", [f"{found.import_s:.2f} s" for found in runs])
    print_row("battery", [f"{found.battery_s:.1f} s" for found in runs])
    print_row("ratio", [f"{found.ratio:.1f} (limit {LIMIT:g})" for found in runs])
    unequal = [found.name for found in runs if not repeated_equal(found)]
    if options.repeat > 1:
        print_row("repeated", ["differs" if f.name in unequal else "bit-equal" for f in runs])
    print_peaks("tensor peak", runs, TensorPeak)
    print_peaks("allocator peak", runs, AllocatorPeak)
    print_losses(runs)
    print_single_figures(runs)
    return int(bool(unequal) or any(found.ratio > LIMIT for found in runs))


if __name__ == "__main__":
    sys.exit(main())
