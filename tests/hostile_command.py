"""The installed program in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.hostile_routes import Outcome, without_time

ENVLOCK = Path(sys.executable).parent / "envlock"


def command(
    arguments: list[str], folder: Path, environ: Mapping[str, str] | None = None
) -> Outcome:
    started = time.monotonic()
    done = subprocess.run(
        [ENVLOCK, *arguments],
        cwd=folder,
        env={**(os.environ if environ is None else environ), "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return without_time(
        Outcome(
            code=done.returncode,
            stdout=done.stdout,
            stderr=done.stderr,
            seconds=time.monotonic() - started,
        )
    )
