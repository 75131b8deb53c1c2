"""The program that reads recordings from anybody, in a process of its own with its own limits."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_allocator_snapshot import from_recording

LIMIT = 512 << 20


def ask(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "envlock.allocator.child", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=120,
    )


def said(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert done.stderr == b""
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_snapshot_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(from_recording("trace-05")))
    from_file = ask("--memory-limit", str(LIMIT), "--torch", "2.6.0", str(path))
    from_stdin = ask("--torch", "2.6.0", "-", stdin=path.read_bytes())
    assert from_file.returncode == from_stdin.returncode == 0
    one, other = said(from_file)["cards"][0], said(from_stdin)["cards"][0]
    assert one.pop("source") == "snapshot.pickle"
    assert other.pop("source") == "standard input"
    assert one == other
    assert one["agreement"]["decisions_right"] == 937


def test_a_small_file_that_unpacks_to_more_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pickle"
    with path.open("wb") as file:
        file.write(b"\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces](")
        file.writelines(dictionaries(20))
        file.write(b"eu.")
    done = ask("--memory-limit", str(LIMIT), str(path))
    assert done.returncode == 4
    assert "more memory" in said(done)["error"]


def dictionaries(megabytes: int) -> Iterator[bytes]:
    """Each byte becomes an empty dictionary of 64."""
    for _ in range(megabytes):
        yield b"}" * (1 << 20)


def test_nothing_in_a_pickle_runs(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    attack = b"cos\nsystem\n(S'touch %s'\ntR." % str(mark).encode()
    done = ask("-", stdin=attack)
    assert done.returncode == 4
    assert "'os.system'" in said(done)["error"]
    assert not mark.exists()


def test_a_pickle_that_overflows_the_stack_ends_the_program_and_nothing_else() -> None:
    """Hashing a tuple goes as deep as the tuple does, in C, where nothing stops it."""
    done = ask("-", stdin=b"\x80\x02})" + b"\x85" * 3_000_000 + b"Ns.")
    assert done.returncode == 4 or done.returncode < 0
    assert b"cards" not in done.stdout


@pytest.mark.parametrize("arguments", [["--torch", "old", "-"], ["--alloc-conf", "x:1", "-"]])
def test_questions_that_cannot_be_asked(arguments: list[str]) -> None:
    done = ask(*arguments, stdin=pickle.dumps(from_recording("trace-05")))
    assert done.returncode == 4
    assert said(done)["error"]
