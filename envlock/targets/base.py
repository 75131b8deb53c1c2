"""What every target offers: run a probe inside, and say who you are. Rules never ask which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from envlock.targets.bundle import bundle

PROBES = Path(__file__).resolve().parent.parent / "probe"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeCall:
    """One program to run inside the target."""

    probe: str
    """File name in ``envlock/probe`` without ``.py``."""
    arguments: Sequence[str] = field(default=())
    timeout_s: float = 60.0
    on_stderr: Callable[[bytes], None] | None = None
    """Sees what the probe writes to standard error as it comes: its progress."""
    meanwhile: Callable[[], None] | None = None
    """Work of the host's own that can be done while the probe runs."""

    whole_environment: bool = False
    """Give it every variable of the person: what it runs is the person's own program."""

    def source(self) -> bytes:
        """The probe with the sibling files that it imports, as one program."""
        return bundle(PROBES, self.probe)


class Target(Protocol):
    @property
    def set_by_envlock(self) -> Sequence[str]:
        """Dotted paths of facts that envlock's own way of running the target decides."""

    def describe(self) -> str:
        """How this target is named in reports: ``python:…``, ``image:…``."""

    def run_probe(self, call: ProbeCall) -> dict[str, Any]:
        """The probe's answer, with ``result`` ``"ok"``.

        Raises TargetError when the target cannot be run, when the answer is not one frame of the
        right schema, or when the probe reports an error.
        """


class ProgressLines:
    """Picks ``envlock-progress DONE TOTAL`` lines out of a probe's standard error."""

    def __init__(self, show: Callable[[int, int], None]) -> None:
        self._show = show
        self._rest = b""

    def __call__(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-200:]
        for line in lines:
            words = line.split()
            if len(words) == 3 and words[0] == b"envlock-progress":
                done, total = words[1], words[2]
                if done.isdigit() and total.isdigit():
                    self._show(int(done), int(total))
