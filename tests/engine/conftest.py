"""A real engine and the bootstrapped base image. Where no engine can be had, these tests fail."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envlock.image.oci import Layout, read_layout
from envlock.image.registry import LoopbackRegistry
from envlock.targets.engine import Engine, ImageInfo
from envlock.targets.engine_errors import EngineGoneError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def engine() -> Engine:
    try:
        return Engine.connect()
    except EngineGoneError as error:
        started = subprocess.run(
            [ROOT / "scripts" / "start-engine.sh"], capture_output=True, text=True, check=False
        )
        if started.returncode:
            pytest.fail(f"the engine tier needs a Docker Engine: {error}\n{started.stderr}")
        return Engine.connect()


@pytest.fixture(scope="session")
def base_layout() -> Layout:
    """Bootstrapped once per state of its recipe, and kept between sessions."""
    recipe = hashlib.sha256()
    for name in ("images/base/build.py", "envlock/image/oci.py"):
        recipe.update((ROOT / name).read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envlock" / "test"
    folder = cache / f"base-{recipe.hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with _only_one(cache / "lock"):
        if not folder.exists():
            for outdated in cache.glob("base-*"):
                shutil.rmtree(outdated)
            build_base(folder)
    return read_layout(folder)


def build_base(folder: Path) -> str:
    """Run the project's own script; returns what it prints."""
    done = subprocess.run(
        [sys.executable, ROOT / "images" / "base" / "build.py", folder],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"the base image could not be bootstrapped:\n{done.stderr}")
    return done.stdout


@pytest.fixture(scope="session")
def base_image(engine: Engine, base_layout: Layout) -> Iterator[ImageInfo]:
    """The base in the engine, pulled from the loopback registry, under a tag of this session."""
    tag = f"envlock-test-base:{secrets.token_hex(4)}"
    with LoopbackRegistry(base_layout) as registry:
        pulled = engine.resolve(registry.reference, pull=True)
        engine.tag(pulled.image_id, tag)
        engine.remove(registry.reference)
    yield engine.resolve(tag)
    engine.remove(tag)


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Parallel test processes wait for the one that bootstraps."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
