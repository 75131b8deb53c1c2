"""Hostile inputs that are no document: paths, saves, and what a capture sees."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile_capture import captured_lines
from tests.hostile_images import base_with_onbuild, wheel_archives
from tests.hostile_inputs import Input
from tests.hostile_places import GOOD
from tests.hostile_routes import Bench, Line, call, check
from tests.hostile_sample import Sample
from tests.hostile_targets import (
    environment_lines,
    folder_lines,
    image_lines,
    interpreter_lines,
    noise_lines,
)

Live = Callable[[Input, Path], Iterator[Line]]


def live_lines(item: Input, folder: Path, *, pure: bool) -> Iterator[Line] | None:
    """None: the field is not mapped. ``pure``: nothing that starts a process."""
    for pattern, live, starts in _PLACES:
        if re.fullmatch(pattern, item.field):
            return iter(()) if pure and starts else live(item, folder)
    return None


def _special_paths(item: Input, folder: Path) -> Iterator[Line]:
    pipe, place = folder / "pipe.lock", folder / "folder.lock"
    os.mkfifo(pipe)
    place.mkdir()
    with Bench(folder).ready():
        for path in (pipe, place, Path("/dev/zero")):
            sample = Sample(label=path.name, data=b"", refused=True, words=tuple(item.words))
            for command in ("show", "diff", "doctor", "render", "build"):
                yield Line(
                    input=item.id,
                    route=f"{path.name}: {command}",
                    faults=list(check(item, sample, call([command, str(path)]))),
                )


def _giant(item: Input, folder: Path) -> Iterator[Line]:
    path = folder / "giant.lock"
    with path.open("wb") as file:
        file.truncate(10 << 30)
    sample = Sample(label="giant", data=b"", refused=True, words=tuple(item.words))
    for command in ("show", "diff", "doctor", "render", "build"):
        yield Line(
            input=item.id,
            route=f"sparse file: {command}",
            faults=list(check(item, sample, call([command, str(path)]))),
        )


def _saved_over(item: Input, folder: Path) -> Iterator[Line]:
    """A link in the place of the output, or of a guessable temporary file: not written through."""
    output, victim = folder / "env.lock", folder / "victim"
    victim.write_text("mine")
    link = output if "env.lock ->" in (item.sentence or "") else folder / "env.lock.tmp"
    link.symlink_to(victim.name)
    good = folder / "good.lock"
    good.write_bytes(GOOD)
    outcome = call(["diff", str(good), str(good), "-f", "json", "-o", str(output)])
    faults = []
    if outcome.code != 0 or output.is_symlink() or not output.read_text().startswith("{"):
        faults.append(f"not saved: {outcome.code} {outcome.error[:100]}")
    if victim.read_text() != "mine":
        faults.append("the link's target was written")
    yield Line(input=item.id, route="save", faults=faults)


def _argument(item: Input, folder: Path) -> Iterator[Line]:
    good = folder / "good.lock"
    good.write_bytes(GOOD)
    for value in item.values:
        sample = Sample(label="argument", data=b"", refused=True, words=tuple(item.words))
        for route, argv in (
            ("verify", ["verify", "--", str(value)]),
            ("diff", ["diff", str(good), f"image:{value}"]),
            ("doctor", ["doctor", f"image:{value}"]),
            ("capture", ["capture", f"--image={value}", "-o", str(folder / "out.lock")]),
        ):
            faults = list(check(item, sample, call(argv)))
            yield Line(input=item.id, route=f"argument: {route}", faults=faults)


def _build_option(item: Input, folder: Path) -> Iterator[Line]:
    """There is no such option: the call is refused, and the value not repeated."""
    for value in item.values:
        outcome = call(["build", *str(value).split(" ")])
        faults = [] if outcome.code == 2 else [f"exit code {outcome.code}, not 2"]
        faults += [f"shows {s}" for s in item.secrets if s in outcome.text]
        yield Line(input=item.id, route="build", faults=faults)


_CAPTURED = (
    r"environment|pip configuration.*|pip\.conf|direct_url\.json|channel URL|editable .*"
    r"|platform, .*|nvidia-smi|error output"
)
_PLACES: tuple[tuple[str, Live, bool], ...] = (
    (r"path given as LOCK", _special_paths, False),
    (r"<document>", _giant, False),
    (r"path given to .*output|temporary file of a save", _saved_over, False),
    (r"image \(argument.*\)", _argument, False),
    (r"build", _build_option, False),
    (r"wheel archive .*", wheel_archives, False),
    (r"image\.base", base_with_onbuild, False),
    (_CAPTURED, captured_lines, True),
    (r"probe (?:stdout|output)", noise_lines, True),
    (r"interpreter", interpreter_lines, True),
    (r"interpreter of somebody else", environment_lines, True),
    (r"working folder", folder_lines, True),
    (r"image|os\.release\.\w+", image_lines, True),
)
