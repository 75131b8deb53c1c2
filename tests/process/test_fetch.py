"""Files of a lock in wheelhouse form, found by name and hash in an index that is there."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from envlock.errors import BuildError
from envlock.image.fetch import Shelves, gather
from envlock.image.plan import Artifact
from envlock.lock.io import load_lock
from tests.unit.wheels import make_wheel

BIN = Path(sys.executable).parent
NAME = "fetched"


@dataclass(frozen=True, kw_only=True)
class Index:
    folder: Path
    url: str

    def offer(self, wheel: Artifact, wheels: Path) -> None:
        """The simple page of a package, and its file beside it."""
        page = self.folder / "simple" / wheel.name
        page.mkdir(parents=True, exist_ok=True)
        data = (wheels / wheel.wheel.filename).read_bytes()
        (page / wheel.wheel.filename).write_bytes(data)
        link = f"{wheel.wheel.filename}#sha256={hashlib.sha256(data).hexdigest()}"
        (page / "index.html").write_text(f'<a href="{link}">{wheel.wheel.filename}</a>')

    def fetch(self, lock: Path, *options: str | Path, expect: int = 0) -> str:
        env = {**os.environ, "PIP_INDEX_URL": self.url, "PIP_TRUSTED_HOST": "127.0.0.1"}
        env["XDG_CACHE_HOME"] = str(self.folder / "cache")
        command = [BIN / "envlock", "fetch", lock, *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
        assert done.returncode == expect, done.stderr
        return done.stderr


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Index(folder=tmp_path, url=f"http://127.0.0.1:{server.server_port}/simple")
        server.shutdown()


@pytest.fixture
def wheel(tmp_path: Path) -> Artifact:
    return make_wheel(tmp_path / "wheels", {"demo/__init__.py": b"x = 1\n"}, name=NAME)


@pytest.fixture
def lock(tmp_path: Path, wheel: Artifact) -> Path:
    """Of an environment that its wheelhouse was given for: by file names."""
    python, path = tmp_path / "venv" / "bin" / "python", tmp_path / "a.lock"
    wheels = tmp_path / "wheels"
    for command in (
        [BIN / "uv", "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"],
        [BIN / "uv", "pip", "install", "-q", "--python", python, wheels / wheel.wheel.filename],
        [BIN / "envlock", "capture", "--python", python, "--wheelhouse", wheels, "-o", path],
    ):
        subprocess.run(list(map(str, command)), check=True)
    return path


def test_the_very_file_is_found_in_an_index(
    index: Index, wheel: Artifact, lock: Path, tmp_path: Path
) -> None:
    index.offer(wheel, tmp_path / "wheels")
    committed = tmp_path / "committed.lock"
    index.fetch(lock, "-d", tmp_path / "out", "-o", committed)
    name = wheel.wheel.filename
    assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "wheels" / name).read_bytes()
    assert load_lock(committed).table.id == load_lock(lock).table.id
    assert "://" not in committed.read_text()
    index.fetch(committed, "--offline", "-d", tmp_path / "again")  # downloaded before
    assert (tmp_path / "again" / name).exists()


def test_another_file_of_that_name_is_no_answer(index: Index, lock: Path, tmp_path: Path) -> None:
    other = make_wheel(tmp_path / "other", {"demo/__init__.py": b"x = 2\n"}, name=NAME)
    index.offer(other, tmp_path / "other")
    said = index.fetch(lock, "-d", tmp_path / "out", expect=6)
    assert f"{NAME}: {other.wheel.filename} is in none of the given folders" in said
    assert not (tmp_path / "out").exists()


def test_offline_no_index_is_asked(
    index: Index, wheel: Artifact, lock: Path, tmp_path: Path
) -> None:
    index.offer(wheel, tmp_path / "wheels")
    said = index.fetch(lock, "-d", tmp_path / "out", "--offline", expect=6)
    assert "is in none of the given folders" in said
    assert "resolving" not in said


class Faulty(http.server.SimpleHTTPRequestHandler):
    """Sends each file in pieces: every answer ends after ``piece`` bytes, though more was announced."""

    piece = 1 << 20
    ranges: ClassVar[list[str | None]] = []
    knows_ranges = True

    def do_GET(self) -> None:
        if not self.path.endswith(".whl"):
            super().do_GET()
            return
        data = Path(self.translate_path(self.path)).read_bytes()
        asked = self.headers.get("Range")
        self.ranges.append(asked)
        start = int(asked[6:-1]) if asked and self.knows_ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.send(data[start:])

    def send(self, data: bytes) -> None:
        self.wfile.write(data[: self.piece])

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def faulty(folder: Path, **settings: Any) -> Iterator[tuple[Index, Any]]:
    handler: Any = type("Handler", (Faulty,), {"ranges": [], **settings})
    serving = functools.partial(handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Index(folder=folder, url=f"http://127.0.0.1:{server.server_port}/simple"), handler
        server.shutdown()


@pytest.fixture
def large(tmp_path: Path) -> Artifact:
    content = random.Random(1).randbytes(3 << 20)
    return make_wheel(tmp_path / "large", {"demo/data.bin": content}, name=NAME)


def parts(index: Index) -> list[int]:
    """Sizes of what is kept of files that are not whole."""
    kept = (index.folder / "cache" / "envlock" / "wheels").rglob("*.part*")
    return [path.stat().st_size for path in kept]


def artifact_at(index: Index, wheel: Artifact, wheels: Path) -> Artifact:
    index.offer(wheel, wheels)
    url = f"{index.url}/{wheel.name}/{wheel.wheel.filename}"
    return replace(wheel, wheel=replace(wheel.wheel, url=url))


def gathered(index: Index, wanted: Artifact) -> Path:
    cache = index.folder / "cache" / "envlock" / "wheels"
    return gather([wanted], Shelves(folders=[], cache=cache), lambda _: None)[wanted.name]


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_download_that_is_cut_off_goes_on(
    large: Artifact, tmp_path: Path, *, knows_ranges: bool
) -> None:
    with faulty(tmp_path, knows_ranges=knows_ranges) as (index, server):
        wanted = artifact_at(index, large, tmp_path / "large")
        if not knows_ranges:
            with pytest.raises(BuildError, match="did not send a file"):
                gathered(index, wanted)
            server.piece = 1 << 30
        found = gathered(index, wanted)
        assert found.read_bytes() == (tmp_path / "large" / large.wheel.filename).read_bytes()
        assert server.ranges[:2] == [None, f"bytes={1 << 20}-"]
        assert parts(index) == []


def test_what_was_kept_of_another_file_is_not_gone_on_with(large: Artifact, tmp_path: Path) -> None:
    with faulty(tmp_path, piece=1 << 30) as (index, server):
        wanted = artifact_at(index, large, tmp_path / "large")
        place = index.folder / "cache" / "envlock" / "wheels" / large.wheel.hashes["sha256"]
        place.mkdir(parents=True)
        (place / f"{large.wheel.filename}.part").write_bytes(b"x" * 1000)
        found = gathered(index, wanted)
        assert found.read_bytes() == (tmp_path / "large" / large.wheel.filename).read_bytes()
        assert server.ranges == ["bytes=1000-", None]
        (tmp_path / "simple" / large.name / large.wheel.filename).write_bytes(b"other")
        found.unlink()
        with pytest.raises(BuildError, match="its hash differs"):
            gathered(index, wanted)
        assert parts(index) == []


def test_a_server_that_sends_nothing_more_is_given_up(large: Artifact, tmp_path: Path) -> None:
    with faulty(tmp_path, piece=0) as (index, server):
        wanted = artifact_at(index, large, tmp_path / "large")
        with pytest.raises(BuildError, match=r"127\.0\.0\.1 did not send a file") as caught:
            gathered(index, wanted)
        assert caught.value.hint
        assert len(server.ranges) == 1
        assert parts(index) == []


def test_an_interrupted_fetch_ends_soon_and_goes_on_the_next_time(
    large: Artifact, tmp_path: Path
) -> None:
    half = threading.Event()

    def slowly(handler: Any, data: bytes) -> None:
        handler.wfile.write(data[: len(data) // 2])
        half.set()
        for byte in data[len(data) // 2 :]:
            with contextlib.suppress(OSError):
                handler.wfile.write(bytes([byte]) * 4096)
            time.sleep(0.05)

    with faulty(tmp_path, send=slowly) as (index, server):
        wanted = artifact_at(index, large, tmp_path / "large")
        url, digest = wanted.wheel.url, wanted.wheel.hashes["sha256"]
        code = f"""
from packaging.pylock import PackageWheel
from pathlib import Path
from typing import Any, ClassVar
from envlock.image.fetch import Shelves, cache_folder, gather
from envlock.errors import BuildError
from envlock.image.fetch import Shelves, gather
from envlock.image.plan import Artifact
file = PackageWheel(url={url!r}, hashes={{"sha256": {digest!r}}})
wanted = Artifact(name={NAME!r}, version="1.0", wheel=file)
gather([wanted], Shelves(folders=[], cache=cache_folder() / "wheels"), print)
"""
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": "."}
        running = subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE)
        assert half.wait(30)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in running.communicate(timeout=20)[1]
        (kept,) = parts(index)
        assert kept > 1 << 20
        server.send, server.piece = Faulty.send, 1 << 30
        gathered(index, wanted)
        assert f"bytes={kept}-" in server.ranges
