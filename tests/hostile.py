"""Run hostile inputs through every route: ``python -m tests.hostile DIR``.

DIR holds JSON files of inputs, as ``tests/unit/data/hostile`` does. One line an input and route is
printed, then ``N passed, M failed``; the exit code is 0 only when M is 0 and N is not. An input
whose field is not mapped fails, and so does a route that could not be run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.hostile_command import command
from tests.hostile_inputs import Input, read_inputs
from tests.hostile_live import live_lines
from tests.hostile_places import samples_of
from tests.hostile_routes import Bench, Line, check, document_lines
from tests.hostile_sample import Sample


def main() -> int:
    if len(sys.argv) < 2:
        sys.stdout.write(__doc__ or "")
        return 2
    passed = failed = 0
    wanted = sys.argv[2:]
    for item in read_inputs(Path(sys.argv[1])):
        if wanted and item.id not in wanted:
            continue
        for line in lines_of(item):
            good = not line.faults
            passed, failed = passed + good, failed + (not good)
            what = "" if good else f": {'; '.join(line.faults)}"
            say(f"{'ok  ' if good else 'FAIL'} {line.input}  {line.route}{what}")
    say(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


def say(line: str) -> None:
    """Whatever a fault quotes stays one printable line."""
    sys.stdout.write("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) + "\n")
    sys.stdout.flush()


def lines_of(item: Input, *, pure: bool = False) -> Iterator[Line]:
    """``pure``: only what starts no process; other routes are left out, not passed."""
    samples = samples_of(item)
    with tempfile.TemporaryDirectory(prefix="envlock-hostile-") as folder:
        if samples is not None:
            with Bench(Path(folder)).ready() as bench:
                for sample in samples:
                    yield from document_lines(item, sample, bench)
                    if not pure:
                        yield _command(item, sample, Path(folder))
            return
        live = live_lines(item, Path(folder), pure=pure)
        if live is None:
            yield Line(input=item.id, route="-", faults=[f"no place for field {item.field!r}"])
            return
        yield from live


def _command(item: Input, sample: Sample, folder: Path) -> Line:
    """Once more as a user has it: the installed program in a process of its own."""
    if sample.base is not None:
        arguments = ["build", "--dry-run", f"--base={sample.base}"]
    else:
        arguments = ["show"] if sample.form == "lock" else ["doctor", "--fail-on", "never"]
    name = "sample.json" if sample.form == "facts" else "sample.lock"
    return Line(
        input=item.id,
        route=f"{sample.label}: the command {arguments[0]}",
        faults=list(check(item, sample, command([*arguments, name], folder))),
    )


if __name__ == "__main__":
    sys.exit(main())
