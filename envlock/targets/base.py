"""What every target offers: run a probe inside, and say who you are. Rules never ask which."""

from __future__ import annotations

from collections.abc import Sequence
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

    def source(self) -> bytes:
        """The probe with the sibling files that it imports, as one program."""
        return bundle(PROBES, self.probe)


class Target(Protocol):
    def describe(self) -> str:
        """How this target is named in reports: ``python:…``, ``image:…``."""

    def run_probe(self, call: ProbeCall) -> dict[str, Any]:
        """The probe's answer, with ``result`` ``"ok"``.

        Raises TargetError when the target cannot be run, when the answer is not one frame of the
        right schema, or when the probe reports an error.
        """
