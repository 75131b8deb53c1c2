"""The validated CPU image, built from its committed lock and compared with what is expected of it."""

from __future__ import annotations

import subprocess
import sys

from scripts.environments import ROOT


def test_the_committed_lock_gives_the_expected_image() -> None:
    name = "torch-2.13.0-cpu"
    command = [sys.executable, "-m", "scripts.images", name]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    judged, verdict = done.stdout.split("\n")[-2].split(maxsplit=1)
    assert judged == name, done.stderr
    assert verdict == "as expected", done.stdout
