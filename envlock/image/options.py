"""What the person asked for when they asked for an image, and what every way of building is given."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envlock.image.base import BaseChoice
from envlock.image.choices import EngineChoice, Flavour
from envlock.image.fetch import Shelves
from envlock.image.output import Output
from envlock.lock.model import Lock

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    base: BaseChoice
    shelves: Shelves
    output: Output | None = None
    """None: where the engine keeps its images."""
    engine: EngineChoice = EngineChoice.AUTO
    flavour: Flavour = Flavour.AUTO
    push: str | None = None
    tag: str | None = None
    os_packages: Sequence[str] = ()
    allow_source: bool = False
    """Build what has no wheel from its source archive: what its authors wrote is run then."""
    ca_bundle: Path | None = None
    no_cache: bool = False
    check_reproducible: bool = False
    project: Path | None = None
    """The user's own folder, to go on top."""
    verify: Callable[[str, Lock], bool] | None = None
    """Whether the image of that id, in an engine, is what the lock says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Seconds by step."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 2)
