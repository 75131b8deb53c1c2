"""What a person names on the command line, as an observation: REF of every command.

A lock file of any name, ``-`` for standard input, ``env``, ``python:PATH``, ``image:NAME``, an
observation as JSON, or a text that somebody pasted. Files are told apart by content.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from envlock.errors import InputError
from envlock.lock.files import MAX_BYTES, read_bounded
from envlock.lock.io import lock_from_tree
from envlock.lock.model import Lock
from envlock.lock.observation import OBSERVATION_SCHEMA, Observation
from envlock.lock.strict import decode, first_fault, parse_json, parse_toml, shown
from envlock.targets.base import Target
from envlock.targets.container import ContainerOptions

_TABLE = b"[tool.envlock"
_START = 4096
"""Characters in which an observation says that it is one."""


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
    container: ContainerOptions = field(default_factory=ContainerOptions)
    progress: Callable[[int, int], None] | None = None


def read_reference(reference: str, reading: Reading) -> Subject:
    """Raises InputError for a bad file, TargetError for a target that cannot be read."""
    if reference == "-":
        return read_document(_standard_input(), "standard input")
    if is_live(reference):
        with open_target(reference, reading) as target:
            return Subject(label=target.describe(), observation=observe_in(target, reading))
    path = Path(reference)
    return read_document(read_bounded(path), path.name)


def is_live(reference: str) -> bool:
    """Whether a reference names an environment that runs, not a file."""
    return reference == "env" or reference.startswith(("python:", "image:"))


@contextlib.contextmanager
def open_target(reference: str, reading: Reading) -> Iterator[Target]:
    """The interpreter or image that a live reference names; a container lives as long as this.

    Raises TargetError.
    """
    if reference.startswith("image:"):
        from envlock.targets.container import ImageTarget  # noqa: PLC0415
        from envlock.targets.engine import Engine  # noqa: PLC0415

        engine = Engine.connect()
        image = engine.resolve(reference.removeprefix("image:"))
        reading.say(f"looking at {reference} ({image.image_id})")
        with ImageTarget(engine=engine, image=image, options=reading.container) as container:
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
        target, deep=reading.deep, check_files=reading.check_files, progress=reading.progress
    )


def read_document(data: bytes, name: str) -> Subject:
    """A lock, an observation or a pasted text, told apart by content."""
    if _TABLE in data or b'created-by = "envlock"' in data:
        text = decode(data, name)
        lock = lock_from_tree(parse_toml(text, name), name, complete=text.endswith("\n"))
        return Subject(label=name, observation=lock.observed, lock=lock)
    from envlock.targets import texts  # noqa: PLC0415

    text = texts.decode(data)
    if OBSERVATION_SCHEMA in text[:_START]:
        return Subject(label=name, observation=_observation(decode(data, name), name))
    if texts.detect(text) is not None:
        return Subject(label=name, observation=texts.parse_text(text))
    raise _not_known(data, name)


def _not_known(data: bytes, name: str) -> InputError:
    """Say what is wrong with a file that is none of them; where it stops being JSON or TOML."""
    text = decode(data, name)
    if text.lstrip().startswith(("{", "[")) and not text.lstrip().startswith("[["):
        parse_json(text, name)
    elif text.strip():
        parse_toml(text, name)
    return InputError(
        f"{name}: not an envlock lock, an observation, or a report that envlock knows",
        hint="give a lock, or the text of: python -m torch.utils.collect_env, pip freeze, "
        "pip list, conda list",
    )


def _observation(text: str, name: str) -> Observation:
    tree = parse_json(text, name)
    if not isinstance(tree, dict):
        raise InputError(f"{name}: an object is needed, got {shown(tree)}; not an observation")
    schema = tree.pop("schema", None)
    if schema != OBSERVATION_SCHEMA:
        raise InputError(
            f"{name}: schema: {shown(schema)} is not {OBSERVATION_SCHEMA!r}",
            hint="give an envlock lock, an observation, or the text of a report",
        )
    try:
        return Observation.model_validate(tree)
    except ValidationError as error:
        raise first_fault(error, name) from error


def _standard_input() -> bytes:
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"standard input: too large (at most {MAX_BYTES} bytes)")
    return data
