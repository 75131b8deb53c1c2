"""Real builds: secrets stay out, failures are told apart, and nothing is left of them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from envlock.errors import BuildError, TargetError
from envlock.image import buildkit
from envlock.image.oci import Layout
from envlock.image.registry import LoopbackRegistry
from envlock.targets.engine import Engine
from envlock.targets.engine_errors import NoImageError
from tests.engine.cutting_proxy import CuttingProxy

TAG = f"envlock-test-built:{secrets.token_hex(4)}"
Build = Callable[..., str]


@pytest.fixture(scope="module")
def base(engine: Engine, base_layout: Layout) -> Iterator[str]:
    with LoopbackRegistry(base_layout) as registry:
        yield registry.reference


@pytest.fixture
def build(engine: Engine, base: str, tmp_path: Path) -> Iterator[Build]:
    """Builds the instructions that follow FROM; ``lines`` collects the progress."""

    def run(instructions: str, **changes: Any) -> str:
        (tmp_path / "Dockerfile").write_text(f"FROM {base}\n{instructions}\n")
        options: dict[str, Any] = {
            "tag": TAG,
            "secrets": {},
            "network": "none",
            "no_cache": True,
            "on_progress": lambda _: None,
        }
        return buildkit.build(tmp_path, **{**options, **changes})

    yield run
    engine.remove(TAG)


def test_a_build_is_tagged_when_it_is_done(engine: Engine, build: Build) -> None:
    lines: list[str] = []
    image_id = build("RUN echo hello", on_progress=lines.append)
    assert engine.resolve(TAG).image_id == image_id
    assert image_id.startswith("sha256:")
    assert any("hello" in line for line in lines)


def test_a_secret_is_there_during_the_build_only(
    engine: Engine, build: Build, tmp_path: Path
) -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    secret = tmp_path / "ca.pem"
    secret.write_text(canary)
    (tmp_path / ".dockerignore").write_text("ca.pem\n")
    lines: list[str] = []
    build(
        "RUN --mount=type=secret,id=ca wc -c < /run/secrets/ca",
        secrets={"ca": secret},
        on_progress=lines.append,
    )
    assert any(line.endswith(f" {len(canary)}") for line in lines)
    for arguments in (["save", TAG], ["history", "--no-trunc", TAG], ["inspect", TAG]):
        said = subprocess.run(["docker", *arguments], capture_output=True, check=True).stdout
        assert canary.encode() not in said


def test_a_failing_step_says_what_it_said(engine: Engine, build: Build) -> None:
    with pytest.raises(BuildError) as caught:
        build("RUN echo fine\nRUN echo the reason >&2; exit 3")
    assert "the reason" in caught.value.message
    assert "exit code: 3" in caught.value.message
    assert "fine" not in caught.value.message
    assert caught.value.code == 6
    with pytest.raises(NoImageError):
        engine.resolve(TAG)


def test_an_instruction_that_does_not_exist(build: Build) -> None:
    with pytest.raises(BuildError, match="unknown instruction: RUNN"):
        build("RUNN echo")


def test_an_engine_that_goes_away_is_no_failing_step(
    engine: Engine, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CuttingProxy(tmp_path / "proxy.sock") as proxy:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
        with pytest.raises(TargetError, match="the engine was lost during the build") as caught:
            build(
                "RUN sleep 20",
                on_progress=lambda line: proxy.close() if "RUN sleep" in line else None,
            )
    assert caught.value.code == 5
    with pytest.raises(NoImageError):
        engine.resolve(TAG)


def test_a_cut_connection_is_no_failing_step(
    engine: Engine, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CuttingProxy(tmp_path / "proxy.sock") as proxy:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
        with pytest.raises(TargetError, match="connection to the engine was lost") as caught:
            build(
                "RUN sleep 20",
                on_progress=lambda line: proxy.cut() if "RUN sleep" in line else None,
            )
        assert caught.value.code == 5
        again = build("RUN true")
    assert engine.resolve(TAG).image_id == again


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_image(
    engine: Engine, base: str, tmp_path: Path, number: signal.Signals
) -> None:
    tag = f"envlock-test-interrupted:{secrets.token_hex(4)}"
    (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN sleep 3; echo {secrets.token_hex(4)}\n")
    code = f"""
import signal
from pathlib import Path
from envlock.image import buildkit
def stop(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
buildkit.build(Path({str(tmp_path)!r}), tag={tag!r}, secrets={{}}, network="none", no_cache=True,
    on_progress=lambda line: print(line, flush=True))
"""
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": "."},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout
    for line in running.stdout:
        if b"RUN sleep" in line:
            break
    running.send_signal(number)
    running.communicate(timeout=10)
    time.sleep(4)
    with pytest.raises(NoImageError):
        engine.resolve(tag)


def test_no_client_that_can_build(
    engine: Engine, build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text("#!/bin/sh\nexit 1\n")
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(TargetError, match="no docker client here can build with BuildKit"):
        build("RUN true")


def test_a_client_that_cannot_is_passed_over(
    engine: Engine, build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "docker").write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert build("RUN true").startswith("sha256:")
