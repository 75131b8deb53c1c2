"""``scripts/start-engine.sh`` with an engine of its own, so that the running one is left alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.conftest import ROOT

SCRIPT = ROOT / "scripts" / "start-engine.sh"


@dataclass(frozen=True)
class Second:
    """A second engine on this machine: nothing of it is shared with the first."""

    folder: Path

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    @property
    def containerd(self) -> int:
        return int((self.folder / "exec" / "containerd" / "containerd.pid").read_text())

    def start(self, **variables: str) -> subprocess.CompletedProcess[str]:
        folder = self.folder
        env = {
            **os.environ,
            "ENGINE_SOCKET": str(folder / "sock"),
            "ENGINE_DATA": str(folder / "data"),
            "ENGINE_EXEC": str(folder / "exec"),
            "ENGINE_PIDFILE": str(folder / "pid"),
            "ENGINE_LOG": str(folder / "log"),
            "ENGINE_FLAGS": "--bridge=none --iptables=false --ip6tables=false",
            "ENGINE_WAIT_S": "30",
            **variables,
        }
        return subprocess.run([SCRIPT], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Second]:
    if os.geteuid() != 0:
        pytest.fail("starting an engine needs root")
    one = Second(tmp_path)
    yield one
    with contextlib.suppress(OSError, ValueError):
        pid = one.pid
        os.kill(pid, signal.SIGTERM)
        for _ in range(100):
            if not alive(pid):
                break
            time.sleep(0.1)
    deadline = time.monotonic() + 10  # its containerd ends later and keeps the folder busy
    while left := mounts_below(tmp_path / "data"):  # each killed engine left some
        busy = subprocess.run(["umount", left[-1]], capture_output=True, check=False)
        assert busy.returncode == 0 or time.monotonic() < deadline, busy.stderr
        time.sleep(0 if busy.returncode == 0 else 0.1)


def mounts_below(folder: Path) -> list[str]:
    """As they were made. ``os.path.ismount`` does not see a folder that is mounted over itself."""
    rows = Path("/proc/self/mountinfo").read_text().splitlines()
    return [place for row in rows if Path(place := row.split()[4]).is_relative_to(folder)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink() != Path()
    except OSError:
        return False


def test_it_starts_an_engine_once(second: Second) -> None:
    first = second.start()
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("\n") == 1
    pid = second.pid
    again = second.start()
    assert again.returncode == 0
    assert "already answers" in again.stderr
    assert second.pid == pid


def test_it_clears_what_a_killed_engine_leaves(second: Second) -> None:
    assert second.start().returncode == 0
    assert str(second.folder / "data") in mounts_below(second.folder)
    old, containerd = second.pid, second.containerd
    os.kill(old, signal.SIGKILL)
    time.sleep(0.5)
    again = second.start()
    assert again.returncode == 0, again.stderr
    assert second.pid != old
    assert not alive(containerd)


def test_a_pid_file_that_names_another_process_is_stale(second: Second) -> None:
    assert second.start().returncode == 0
    for pid in (second.pid, second.containerd):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    bystander = subprocess.Popen(["sleep", "100"])
    try:
        (second.folder / "pid").write_text(str(bystander.pid))
        (second.folder / "exec" / "containerd" / "containerd.pid").write_text(str(bystander.pid))
        again = second.start()
        assert again.returncode == 0, again.stderr
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_an_engine_that_hangs_is_waited_for_and_not_started_twice(second: Second) -> None:
    assert second.start().returncode == 0
    pid = second.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        hung = second.start(ENGINE_WAIT_S="1")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert hung.returncode == 1
    assert "no answer from dockerd" in hung.stderr
    assert second.pid == pid


def test_an_engine_that_cannot_start_says_why(second: Second) -> None:
    failed = second.start(ENGINE_FLAGS="--no-such-flag")
    assert failed.returncode == 1
    assert "unknown flag: --no-such-flag" in failed.stderr
    assert "ended at once" in failed.stderr
