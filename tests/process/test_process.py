"""Programs end within their limits, with all their children, whatever they do."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from envlock.errors import TargetError
from envlock.targets.process import (
    Limits,
    ProgramFloodError,
    ProgramTimeoutError,
    find_program,
    run,
    stream,
)

SOON = Limits(timeout_s=2)


def test_code_and_both_streams() -> None:
    done = run(["sh", "-c", "echo out; echo err >&2; exit 3"], limits=SOON)
    assert (done.code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_standard_input_is_fed_whole_and_closed() -> None:
    data = bytes(range(256)) * 20_000
    assert run(["cat"], limits=SOON, stdin=data).stdout == data
    assert run(["cat"], limits=SOON).stdout == b""


def test_a_program_that_does_not_read_its_input_is_no_fault() -> None:
    assert run(["true"], limits=SOON, stdin=b"x" * 10_000_000).code == 0


def test_a_signal_is_told_as_the_shell_does() -> None:
    assert run(["sh", "-c", "kill -9 $$"], limits=SOON).code == 137


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60",
        "exec >&- 2>&-; sleep 60",
        "trap '' INT TERM; sleep 60",
        "while true; do echo x >&2; sleep 0.01; done",
    ],
)
def test_the_time_limit_holds(script: str) -> None:
    started = time.monotonic()
    with pytest.raises(ProgramTimeoutError):
        run(["sh", "-c", script], limits=Limits(timeout_s=0.5))
    assert time.monotonic() - started < 4


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_the_answer() -> None:
    started = time.monotonic()
    assert run(["sh", "-c", "sleep 61.5 & echo done"], limits=SOON).stdout == b"done\n"
    assert time.monotonic() - started < 1.5
    assert not _alive("sleep 61.5")


def test_a_flood_is_stopped_and_standard_error_is_cut() -> None:
    with pytest.raises(ProgramFloodError):
        run(["yes"], limits=Limits(timeout_s=20, stdout_bytes=1 << 20))
    noisy = [sys.executable, "-c", "import sys; sys.stderr.write('x' * 5_000_000 + 'end')"]
    done = run(noisy, limits=Limits(timeout_s=20, stderr_bytes=1000))
    assert len(done.stderr) == 1000
    assert done.stderr.endswith(b"end")


def test_what_cannot_be_started_is_said_by_name() -> None:
    with pytest.raises(TargetError, match="/no/such/program could not be started"):
        run(["/no/such/program"], limits=SOON)
    with pytest.raises(TargetError, match="no-such-program was not found on PATH"):
        find_program("no-such-program", hint="")


def test_streams_are_handed_over_as_they_come() -> None:
    chunks: list[bytes] = []
    assert stream(["sh", "-c", "echo a; echo b >&2"], limits=SOON, on_output=chunks.append) == 0
    assert sorted(b"".join(chunks).split()) == [b"a", b"b"]


def test_an_interrupt_ends_the_children_too() -> None:
    code = (
        "from envlock.targets.process import *\n"
        "run(['sh', '-c', 'sleep 62.5 & sleep 62.5'], limits=Limits(timeout_s=60))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        for _ in range(100):
            if _alive("sleep 62.5"):
                break
            time.sleep(0.05)
        process.send_signal(2)
        process.wait(10)
    assert not _alive("sleep 62.5")


def _alive(command: str) -> bool:
    return (
        subprocess.run(["pgrep", "-f", f"^{command}$"], check=False, capture_output=True).returncode
        == 0
    )
