"""Builds that are interrupted, run out of disk or lose their engine: nothing left over, a rerun works.

And one whose network is off from the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from envlock.image.oci import Layout
from envlock.targets.engine import Engine
from envlock.targets.engine_errors import NoImageError
from tests.engine.test_assemble import BIN, Case, make_case, no_images_left
from tests.engine.test_engine_script import Second, second
from tests.unit.wheels import make_wheel

__all__ = ["no_images_left", "second"]

SEED = 20260401
MOMENTS = int(os.environ.get("ENVLOCK_TEST_MOMENTS", "5"))
"""At which a build is interrupted, of each kind."""
TAG = "envlock-test-faults:x"
BULK = 6 << 20


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Case:
    folder = tmp_path_factory.mktemp("faults")
    rng = random.Random(SEED)
    bulk = {f"demo/{number}.bin": rng.randbytes(BULK // 32) for number in range(32)}
    one = make_wheel(folder / "wheels", {**bulk, "demo/__init__.py": b"x = 1\n"})
    heavy = make_wheel(folder / "wheels", {"triton/x.py": b"x = 1\n"}, name="triton")
    return make_case(folder, base_layout, one, heavy)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one build may write, and nothing else does."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        cache, tmp = str(self.folder / "cache"), str(self.folder / "tmp")
        return {**os.environ, "XDG_CACHE_HOME": cache, "TMPDIR": tmp}

    def strays(self) -> list[str]:
        """Files that are neither a whole layer nor a whole base."""
        kept = self.folder / "cache" / "envlock"
        return sorted(map(str, [*(self.folder / "tmp").iterdir(), *kept.rglob(".*")]))


def command(case: Case, *options: str | Path) -> list[str]:
    given = [BIN / "envlock", "build", case.lock, "--wheelhouse", case.wheels, "--no-verify"]
    return [str(word) for word in (*given, "--base", case.base, *options)]


def run(case: Case, place: Place, *options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(case, *options), check=False, capture_output=True, text=True, env=place.env
    )


@pytest.mark.parametrize("engine", ["none", "docker"])
def test_interrupted_at_any_moment(engine: str, case: Case, tmp_path: Path) -> None:
    """From the first import to the last write: nothing is there, or the whole image is."""
    before = case.lock.read_text()
    output = ["-o", f"docker-archive:{tmp_path}/out.tar"] if engine == "none" else []
    into = ["--engine", engine, "--no-cache", "-t", TAG, *output]
    place = Place(folder=tmp_path / "place")
    started = time.monotonic()
    first = run(case, place, *into)
    takes = time.monotonic() - started
    assert first.returncode == 0, first.stderr
    whole, recorded = product(tmp_path), without_id(case.lock.read_text())
    forget(tmp_path)
    assert product(tmp_path) != whole
    rng = random.Random(SEED)
    codes = []
    for _ in range(MOMENTS):
        case.lock.write_text(before)
        moment = rng.uniform(0, takes)
        running = subprocess.Popen(
            command(case, *into), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=place.env
        )
        time.sleep(moment)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
        codes.append(running.returncode)
        where = f"after {moment:.3f} of {takes:.3f} s: {said.decode()[-2000:]}"
        # Python's own end, before it runs a line of ours.
        if running.returncode != -signal.SIGINT and b"Fatal Python error: init" not in said:
            assert running.returncode in (0, 130), where
            assert b"Traceback" not in said, where
        assert place.strays() == [], where
        if product(tmp_path) == whole:  # only the record of it in the lock may be missing
            assert without_id(case.lock.read_text()) in (without_id(before), recorded), where
        else:
            assert running.returncode, where
            assert product(tmp_path) == (None, None), where
            assert case.lock.read_text() == before, where
        forget(tmp_path)
    assert 130 in codes, codes
    again = run(case, place, *into)
    assert again.returncode == 0, again.stderr
    forget(tmp_path)


def product(folder: Path) -> tuple[str | None, Sequence[str] | None]:
    """Digest of the archive and layers of the tagged image, of those that are there.

    Not the image's id: BuildKit writes the time of the build into it.
    """
    archive, layers = folder / "out.tar", None
    with contextlib.suppress(NoImageError):
        layers = Engine.connect().resolve(TAG).layers
    return hashlib.sha256(archive.read_bytes()).hexdigest() if archive.exists() else None, layers


def without_id(lock: str) -> str:
    return re.sub(r'^id = "sha256:[0-9a-f]{64}"$', "", lock, flags=re.MULTILINE)


def forget(folder: Path) -> None:
    (folder / "out.tar").unlink(missing_ok=True)
    with contextlib.suppress(NoImageError):
        Engine.connect().remove(TAG)


def has(tag: str) -> bool:
    try:
        Engine.connect().resolve(tag)
    except NoImageError:
        return False
    return True


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Place]:
    """A disk of less than what a build writes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={BULK // 2}", "envlock-test", str(disk)]
    subprocess.run(mount, check=True)
    try:
        yield Place(folder=disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("engine", ["none", "docker", "buildah"])
def test_a_full_disk(engine: str, case: Case, small: Place, tmp_path: Path) -> None:
    into = ("--engine", engine, "-o", f"oci:{tmp_path}/out")
    done = run(case, small, *into)
    assert done.returncode in (4, 5, 6), done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr
    assert "hint:" in done.stderr
    assert small.strays() == []
    assert not (tmp_path / "out").exists()
    assert run(case, Place(folder=tmp_path / "large"), *into).returncode == 0


def test_a_full_disk_where_the_image_goes(case: Case, small: Place, tmp_path: Path) -> None:
    place = Place(folder=tmp_path / "large")
    for output in (f"oci:{small.folder}/out", f"docker-archive:{small.folder}/out.tar"):
        done = run(case, place, "--engine", "none", "-o", output)
        assert done.returncode == 4
        assert "No space left on device" in done.stderr
        assert list(small.folder.iterdir()) == []
    assert place.strays() == []


def test_an_engine_killed_during_a_build(case: Case, second: Second, tmp_path: Path) -> None:
    assert second.start().returncode == 0
    place = Place(folder=tmp_path / "place")
    env = {**place.env, "DOCKER_HOST": f"unix://{second.folder}/sock"}
    options = ("--engine", "docker", "-t", TAG)
    running = subprocess.Popen(
        command(case, *options), stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    assert running.stderr
    for line in running.stderr:
        if b"RUN --mount" in line:
            os.kill(second.pid, signal.SIGKILL)
            break
    _, said = running.communicate(timeout=60)
    assert running.returncode == 5, said.decode()
    assert b"lost during the build" in said
    assert b"Traceback" not in said
    assert place.strays() == []
    assert second.start().returncode == 0
    docker = ["docker", "--host", env["DOCKER_HOST"]]
    listed = subprocess.run([*docker, "images", "-q", TAG], check=True, capture_output=True)
    assert listed.stdout == b""
    again = subprocess.run(command(case, *options), check=False, capture_output=True, env=env)
    assert again.returncode == 0, again.stderr.decode()
    listed = subprocess.run([*docker, "images", "-q", TAG], check=True, capture_output=True)
    assert listed.stdout != b""


@pytest.mark.parametrize("engine", ["auto", "buildah"])
def test_with_the_network_off(engine: str, case: Case, tmp_path: Path) -> None:
    """In a network namespace without any interface; verified inside, where an engine has it."""
    out, file = tmp_path / "out", tmp_path / "build.json"
    options = ["--offline", "--engine", engine, "--metadata", str(file)]
    options += ["-t", TAG] if engine == "auto" else ["-o", f"oci:{out}"]
    line = [word for word in command(case, *options) if word != "--no-verify"]
    place = Place(folder=tmp_path / "place")
    off = ["unshare", "--net", *line]
    done = subprocess.run(off, check=False, capture_output=True, text=True, env=place.env)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text())["verified"] is (True if engine == "auto" else None)
    assert out.is_dir() or "PASS" in done.stderr
    forget(tmp_path)
