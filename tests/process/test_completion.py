"""What a shell is told when a person presses tab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVLOCK = str(Path(sys.executable).parent / "envlock")


def offered(line: str, folder: Path) -> list[str]:
    told = folder / "told"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(told),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([ENVLOCK], env={**os.environ, **asked}, cwd=folder, check=True, timeout=60)
    return told.read_text().split()


def test_commands_options_and_values(tmp_path: Path) -> None:
    (tmp_path / "colleague.lock").touch()
    assert offered("envlock di", tmp_path) == ["diff"]
    assert "--check-files" in offered("envlock diff --", tmp_path)
    assert offered("envlock diff --format ma", tmp_path) == ["markdown"]
    assert "colleague.lock" in offered("envlock show coll", tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_own_words(shell: str) -> None:
    done = subprocess.run(
        [ENVLOCK, "completion", shell], check=True, capture_output=True, text=True, timeout=60
    )
    assert "envlock" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
