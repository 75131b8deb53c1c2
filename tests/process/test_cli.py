"""The real command on bad input: the documented exit code, one clear line, nothing left behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from envlock.lock.io import render_lock
from tests.unit.locks import lock

ENVLOCK = Path(sys.executable).parent / "envlock"
GOOD = render_lock(lock())

Limit = Callable[[], None]


def envlock(
    *arguments: str, cwd: Path, limit: Limit | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ENVLOCK, *arguments],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=limit,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
    )


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    error = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    for word in words:
        assert word in error


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.lock").write_text(GOOD)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


READERS = [["diff"], ["doctor"], ["show"], ["render"], ["build"], ["fetch", "-d", "wheels"]]


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.lock", None, ["cannot be read"]),
        ("cut.lock", GOOD[: len(GOOD) // 2].encode(), []),
        ("empty.lock", b"", []),
        ("junk.lock", bytes(range(256)) * 40, []),
        ("newer.lock", GOOD.replace("envlock-lock/1", "envlock-lock/2").encode(), ["schema"]),
        ("type.lock", GOOD.replace("resolved = true", "resolved = 1").encode(), ["resolved"]),
        ("list.lock", b"[1, 2]\n", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_locks(
    folder: Path, command: list[str], name: str, content: bytes | None, words: list[str]
) -> None:
    if content is not None:
        (folder / name).write_bytes(content)
    before = names(folder)
    refused(envlock(*command, name, cwd=folder), 4, *words)
    assert names(folder) == before


def test_a_folder_and_a_pipe_are_not_read(folder: Path) -> None:
    (folder / "dir.lock").mkdir()
    os.mkfifo(folder / "pipe.lock")
    for name in ("dir.lock", "pipe.lock", "/dev/zero"):
        refused(envlock("show", name, cwd=folder), 4, "not a regular file")


def test_a_sparse_giant_is_not_read(folder: Path) -> None:
    with (folder / "big.lock").open("wb") as file:
        file.truncate(10 << 30)
    refused(envlock("show", "big.lock", cwd=folder), 4, "too large")


def test_usage(folder: Path) -> None:
    for arguments in (
        ["diff"],
        ["nope"],
        ["diff", "--format", "yaml", "good.lock"],
        ["explain", "EL0"],
    ):
        done = envlock(*arguments, cwd=folder)
        assert done.returncode == 2
        assert "error: " in done.stderr
        assert "hint: " in done.stderr


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/no/such/python", "does not exist"),
        ("/etc/passwd", "may not be executed"),
        ("/bin/true", ""),
    ],
)
def test_an_interpreter_that_is_none(folder: Path, python: str, words: str) -> None:
    done = envlock("capture", "--offline", "--python", python, "-o", "x.lock", cwd=folder)
    refused(done, 5, words)
    assert not (folder / "x.lock").exists()


def test_a_target_that_hangs_or_floods(folder: Path) -> None:
    flood = folder / "flood"
    flood.write_text("#!/bin/sh\nexec yes\n")
    flood.chmod(0o755)
    refused(envlock("capture", "--offline", "--python", str(flood), cwd=folder), 5, "MiB")


def test_an_image_reference_is_checked_before_any_engine_is_asked(folder: Path) -> None:
    env = {"DOCKER_HOST": f"unix://{folder}/none.sock"}
    for command in (["verify", "--", "--privileged"], ["diff", "image:a b", "good.lock"]):
        refused(envlock(*command, cwd=folder, env=env), 2, "image reference")


def test_an_engine_that_is_down(folder: Path) -> None:
    env = {"DOCKER_HOST": f"unix://{folder}/none.sock"}
    for command in (
        ["verify", "some:image"],
        ["capture", "--image", "some:image"],
        ["build", "good.lock"],
    ):
        refused(envlock(*command, cwd=folder, env=env), 5)


def test_a_folder_that_may_not_be_written(folder: Path) -> None:
    argv = ("capture", "--offline", "--python", "/usr/bin/python3", "-o")
    for place in ("/sys", "/no/such/folder"):  # not even root may write there
        refused(envlock(*argv, f"{place}/x.lock", cwd=folder), 4, "x.lock: cannot be written")
    refused(
        envlock("render", "good.lock", "-o", "/sys/context", cwd=folder), 4, "cannot be written"
    )


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_a_full_disk_leaves_the_old_lock(folder: Path) -> None:
    (folder / "old.lock").write_text("precious\n")
    argv = ("capture", "--offline", "--python", "/usr/bin/python3", "-o", "old.lock")
    refused(envlock(*argv, cwd=folder, limit=_small_files), 4, "old.lock: cannot be written")
    assert (folder / "old.lock").read_text() == "precious\n"
    assert names(folder) == ["good.lock", "old.lock"]


def test_standard_output_that_is_full_or_closed(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [ENVLOCK, "show", "good.lock"],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 4
    assert b"Traceback" not in done.stderr
    closed = subprocess.run(
        ["bash", "-c", f"{ENVLOCK} explain | sleep 0; echo ${{PIPESTATUS[0]}}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert closed.stdout.strip() == "141"
    assert closed.stderr == ""


def test_one_step_saves_with_the_mode_of_the_umask(folder: Path) -> None:
    argv = ("capture", "--offline", "--python", "/usr/bin/python3", "-o", "new.lock")
    assert envlock(*argv, cwd=folder).returncode == 0
    mask = os.umask(0)
    os.umask(mask)
    assert (folder / "new.lock").stat().st_mode & 0o777 == 0o666 & ~mask
    (folder / "victim").write_text("victim\n")
    (folder / "link.lock").symlink_to("victim")
    assert envlock(*argv[:-1], "link.lock", cwd=folder).returncode == 0
    assert (folder / "victim").read_text() == "victim\n"
    assert not (folder / "link.lock").is_symlink()
