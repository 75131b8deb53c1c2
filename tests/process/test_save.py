"""Saving a lock: killed at any moment, and by many at once, there is always one whole lock."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envlock.lock.io import parse_lock, render_lock
from tests.process.test_cli import ENVLOCK
from tests.unit.locks import lock

SEED = 20260303
KILLS = int(os.environ.get("ENVLOCK_TEST_KILLS", "20"))
AT_ONCE = 20
TEXTS = tuple(render_lock(lock(env={"OMP_NUM_THREADS": str(n)})) for n in (1, 2))
"""Two locks that are told apart by every reader, and padded so that writing takes a while."""
PADDING = "".join(f"# {number:070}\n" for number in range(20_000))
SAVER = """
import sys
from pathlib import Path
from envlock.lock.files import save
path, *texts = map(Path, sys.argv[1:])
texts = [text.read_text() for text in texts]
print("ready", flush=True)
while True:
    for text in texts:
        save(path, text)
"""


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    (tmp_path / "texts").mkdir()
    files = [tmp_path / "texts" / f"{number}" for number in range(len(TEXTS))]
    for file, text in zip(files, TEXTS, strict=True):
        file.write_text(text + PADDING)
    return files


def saver(path: Path, texts: list[Path], program: str = SAVER) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", program, str(path), *map(str, texts)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    return process


def test_killed_at_any_moment_the_lock_is_whole(tmp_path: Path, texts: list[Path]) -> None:
    path = tmp_path / "saved" / "a.lock"
    path.parent.mkdir()
    path.write_text(TEXTS[0] + PADDING)
    random_ = random.Random(SEED)
    found = set()
    for _ in range(KILLS):
        process = saver(path, texts)
        time.sleep(random_.uniform(0, 0.03))
        process.kill()
        process.communicate()
        text = path.read_text()
        assert text in {one + PADDING for one in TEXTS}
        found.add(text)
    assert len(found) == len(TEXTS), "saves did happen"
    strays = [one for one in path.parent.iterdir() if one != path]
    for stray in strays:  # no running save can own them by then
        os.utime(stray, (time.time() - 4000,) * 2)
    done = subprocess.run(
        [ENVLOCK, "diff", texts[0], texts[0], "-f", "json", "-o", path], check=False
    )
    assert done.returncode == 0
    assert list(path.parent.iterdir()) == [path]


def test_a_careless_save_would_be_seen(tmp_path: Path, texts: list[Path]) -> None:
    """The positive control: written in place, a lock is torn by the same kills."""
    path = tmp_path / "a.lock"
    careless = SAVER.replace("save(path, text)", "path.write_text(text)")
    random_ = random.Random(SEED)
    for _ in range(100):
        process = saver(path, texts, careless)
        time.sleep(random_.uniform(0, 0.03))
        process.kill()
        process.communicate()
        if path.read_text() not in {one + PADDING for one in TEXTS}:
            return
    pytest.fail("no kill in a hundred tore the file")


def test_twenty_captures_at_once_leave_one_whole_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    command: list[str | Path] = [
        ENVLOCK,
        "capture",
        "--offline",
        "--python",
        "/usr/bin/python3",
        "-o",
        path,
    ]
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(AT_ONCE)
    ]
    seen = 0
    while any(process.poll() is None for process in running):
        if path.exists():
            parse_lock(path.read_bytes(), "while others write")
            seen += 1
        time.sleep(0.01)
    for process in running:
        _, said = process.communicate()
        assert process.returncode == 0, said.decode()
    assert seen
    parse_lock(path.read_bytes(), "in the end")
    assert list(tmp_path.iterdir()) == [path]
