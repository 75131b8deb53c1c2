"""What a person names on the command line, as an observation: REF of every command.

A lock file of any name, ``-`` for standard input, ``env``, ``python:PATH``, ``image:NAME``, an
observation as JSON, or a text that somebody pasted. Files are told apart by content.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envlock.lock.files import read_bounded, read_stream
from envlock.targets.base import Target

if TYPE_CHECKING:  # a live target is started first, and the models are loaded while it answers
    from envlock.lock.model import Lock
    from envlock.lock.observation import Observation
    from envlock.targets.container import ContainerOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One side of a comparison."""

    label: str
    observation: Observation
    lock: Lock | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How a live environment is read."""

    say: Callable[[str], None]
    python: str | None = None
    deep: bool = False
    check_files: bool = False
    preflight: bool = False
    container: ContainerOptions | None = None
    """How an image is run; None: as ``ContainerOptions`` has it."""
    progress: Callable[[int, int], None] | None = None


def read_reference(reference: str, reading: Reading) -> Subject:
    """Raises InputError for a bad file, TargetError for a target that cannot be read."""
    if reference == "-":
        return _told(
            read_document(read_stream(sys.stdin.buffer, "standard input"), "standard input"),
            reading,
        )
    if is_live(reference):
        with open_target(reference, reading) as target:
            return Subject(label=target.describe(), observation=observe_in(target, reading))
    path = Path(reference)
    return _told(read_document(read_bounded(path), path.name), reading)


def told_apart(one: str, other: str) -> tuple[str, str] | None:
    """Names for two files that have the same: the shortest ends of their paths that differ.

    None where they are one path, or one of them is no file.
    """
    if any(reference == "-" or is_live(reference) for reference in (one, other)):
        return None
    left, right = Path(one).parts, Path(other).parts
    for count in range(1, max(len(left), len(right)) + 1):
        if left[-count:] != right[-count:]:
            return str(Path(*left[-count:])), str(Path(*right[-count:]))
    return None


def _told(subject: Subject, reading: Reading) -> Subject:
    """A lock whose id does not fit can be compared; the person should know that it was edited."""
    if subject.lock is not None:
        from envlock.lock.io import is_sealed  # noqa: PLC0415

        if not is_sealed(subject.lock):
            reading.say(f"note: {subject.label} was edited after its capture: its id does not fit")
    return subject


def is_live(reference: str) -> bool:
    """Whether a reference names an environment that runs, not a file."""
    return reference == "env" or reference.startswith(("python:", "image:"))


@contextlib.contextmanager
def open_target(reference: str, reading: Reading) -> Iterator[Target]:
    """The interpreter or image that a live reference names; a container lives as long as this.

    Raises TargetError.
    """
    if reference.startswith("image:"):
        from envlock.targets.container import ContainerOptions, ImageTarget  # noqa: PLC0415
        from envlock.targets.engine import Engine, check_reference  # noqa: PLC0415

        name = reference.removeprefix("image:")
        check_reference(name)
        engine = Engine.connect()
        image = engine.resolve(name)
        reading.say(f"looking at {reference} ({image.image_id})")
        with ImageTarget(
            engine=engine, image=image, options=reading.container or ContainerOptions()
        ) as container:
            yield container
        return
    from envlock.targets.local import LocalInterpreter, find_interpreter  # noqa: PLC0415

    path, why = find_interpreter(reference.partition(":")[2] or reading.python)
    target = LocalInterpreter(path)
    reading.say(f"looking at {target.describe()}: {why}")
    yield target


def observe_in(target: Target, reading: Reading) -> Observation:
    from envlock.targets.observe import observe  # noqa: PLC0415

    return observe(
        target,
        deep=reading.deep,
        check_files=reading.check_files,
        preflight=reading.preflight,
        progress=reading.progress,
        say=reading.say,
    )


def read_document(data: bytes, name: str) -> Subject:
    """A lock, an observation or a pasted text, told apart by content."""
    from envlock.targets.documents import read  # noqa: PLC0415

    found = read(data, name)
    return Subject(label=name, observation=found.observation, lock=found.lock)
