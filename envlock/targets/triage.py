"""Look at a live machine's memory without disturbing what runs there."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from envlock.errors import TargetError
from envlock.targets.base import ProbeCall
from envlock.targets.local import LocalInterpreter

WATCH_S = 8.0


def look_at_memory(python: Path, pid: int, *, watch_s: float = WATCH_S) -> dict[str, Any]:
    """The raw figures; ``pid`` 0 names no job.

    Raises TargetError where there is no such process, and on systems without /proc.
    """
    if platform.system() != "Linux":
        raise TargetError(
            "memory of a live job is read from /proc, which only Linux has",
            hint="envlock smoke measures a training loop on any system",
        )
    call = ProbeCall(
        probe="triage_memory", arguments=[str(pid), str(watch_s)], timeout_s=watch_s + 60.0
    )
    return LocalInterpreter(python).run_probe(call)
