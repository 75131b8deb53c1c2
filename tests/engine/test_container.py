"""Images of all kinds as targets, hostile ones above all, on a real engine."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from envlock.errors import TargetError
from envlock.targets.base import ProbeCall
from envlock.targets.container import ContainerOptions, ImageTarget
from envlock.targets.engine import Engine, ImageInfo
from envlock.targets.engine_errors import NoProgramError
from envlock.targets.process import Limits, ProgramFloodError, ProgramTimeoutError
from tests.engine.hostile_images import IMAGES, hostile_image

PROGRAM = b"""
import json, os, sys
token = sys.argv[1]
print("envlock-begin " + token)
print(json.dumps({
    "schema": "envlock-probe/1", "probe": "inline", "result": "ok", "uid": os.getuid(),
    "env": dict(os.environ), "arguments": sys.argv[2:], "folder": os.getcwd(),
    "preloaded": [name for name in ("json",) if sys.modules[name].__file__.startswith("/evil")],
}))
print("envlock-end " + token)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class InlineCall(ProbeCall):
    """A probe that is not a file, so that these tests depend on no probe's contents."""

    probe: str = "inline"
    program: bytes = PROGRAM
    timeout_s: float = 30.0

    def source(self) -> bytes:
        return self.program


@pytest.fixture
def hostile(
    request: pytest.FixtureRequest, engine: Engine, base_image: ImageInfo
) -> Iterator[ImageInfo]:
    with hostile_image(request.param, base_image.reference) as tag:
        image = engine.resolve(tag)
        yield image
        assert containers_of(image) == []


def hostile_as(*names: str) -> pytest.MarkDecorator:
    assert set(names) <= IMAGES.keys()
    return pytest.mark.parametrize("hostile", names, indirect=True)


ENVIRONMENT = dict(os.environ)
"""The client's, whatever a test makes of DOCKER_HOST."""


def docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout


def containers_of(image: ImageInfo) -> list[str]:
    """Containers of exactly this image; the engine's own filter also gives those of its children."""
    listed = docker("ps", "-a", "--no-trunc", "--format", "{{.ID}}").split()
    return [one for one in listed if image_of(one) == image.image_id]


def image_of(container: str) -> str | None:
    """None when it has gone meanwhile: others use this engine too."""
    try:
        return docker("inspect", "--format", "{{.Image}}", container).strip()
    except subprocess.CalledProcessError:
        return None


def probe(engine: Engine, image: ImageInfo, **options: Any) -> dict[str, Any]:
    with ImageTarget(engine=engine, image=image, options=ContainerOptions(**options)) as target:
        return target.run_probe(InlineCall())


def test_one_start_serves_several_calls(engine: Engine, base_image: ImageInfo) -> None:
    with ImageTarget(engine=engine, image=base_image) as target:
        first = target.run_probe(InlineCall(arguments=("--flag", "two words")))
        second = target.run_probe(InlineCall())
        assert len(containers_of(base_image)) == 1
    assert first["arguments"] == ["--flag", "two words"]
    assert first["uid"] == 65534
    assert first["folder"] == "/tmp"
    assert second["env"] == first["env"]
    assert second["env"]["OMP_NUM_THREADS"] == "1"
    assert second["env"]["LANG"] == "C.UTF-8"  # the image's own
    assert "env.OMP_NUM_THREADS" in target.set_by_envlock
    assert containers_of(base_image) == []


def test_a_program_gets_its_input_and_keeps_its_streams_apart(
    engine: Engine, base_image: ImageInfo
) -> None:
    code = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[::-1]);"
    code += "sys.stderr.write('noise'); sys.exit(7)"
    data = secrets.token_bytes(3_000_000)
    with ImageTarget(engine=engine, image=base_image) as target:
        done = target.run([target.interpreter, "-c", code], stdin=data, limits=Limits(timeout_s=30))
    assert done.code == 7
    assert done.stdout == data[::-1]
    assert done.stderr == b"noise"


def test_the_container_has_nothing_to_give(engine: Engine, base_image: ImageInfo) -> None:
    with ImageTarget(engine=engine, image=base_image) as target:
        (name,) = containers_of(base_image)
        state = json.loads(docker("inspect", name))[0]

        def run(code: str) -> int:
            limits = Limits(timeout_s=30)
            return target.run([target.interpreter, "-c", code], limits=limits).code

        writes_root = run("open('/etc/x', 'w')")
        writes_tmp = run("open('/tmp/x', 'w')")
        sees_network = run("import socket; assert len(socket.if_nameindex()) > 1")
        has_rights = run(
            "s = open('/proc/self/status').read();"
            "assert 'CapEff:\\t0000000000000000' not in s or 'NoNewPrivs:\\t1' not in s"
        )
    assert (writes_root, writes_tmp, sees_network, has_rights) == (1, 0, 1, 1)
    assert state["Mounts"] == []
    assert state["HostConfig"]["Privileged"] is False
    assert state["HostConfig"]["PidsLimit"] == 4096


@hostile_as("entrypoint", "env", "user", "workdir", "threads", "garbage", "error-flood", "label")
def test_an_odd_image_is_read_all_the_same(engine: Engine, hostile: ImageInfo) -> None:
    answer = probe(engine, hostile)
    assert "who" not in answer
    assert answer["uid"] == 65534
    assert answer["preloaded"] == []
    for name, value in hostile.env.items():  # the image's ENV is what users get: it stays
        assert answer["env"][name] == value


@hostile_as("threads")
def test_an_image_keeps_its_own_number_of_threads(engine: Engine, hostile: ImageInfo) -> None:
    target = ImageTarget(engine=engine, image=hostile)
    with target:
        assert target.run_probe(InlineCall())["env"]["OMP_NUM_THREADS"] == "3"
    assert not any("OMP" in path for path in target.set_by_envlock)


@hostile_as("only-python")
def test_an_interpreter_is_found_under_its_other_name(engine: Engine, hostile: ImageInfo) -> None:
    with ImageTarget(engine=engine, image=hostile) as target:
        assert target.interpreter == "python"
        target.run_probe(InlineCall())


@hostile_as("healthcheck")
def test_a_health_check_never_runs(engine: Engine, hostile: ImageInfo) -> None:
    with ImageTarget(engine=engine, image=hostile):
        (name,) = containers_of(hostile)
        time.sleep(2.5)
        assert "Health" not in json.loads(docker("inspect", name))[0]["State"]


@hostile_as("volume")
def test_volumes_go_with_the_container(engine: Engine, hostile: ImageInfo) -> None:
    with ImageTarget(engine=engine, image=hostile) as target:
        (name,) = containers_of(hostile)
        mounts = json.loads(docker("inspect", name))[0]["Mounts"]
        target.run_probe(InlineCall())
    volumes = {mount["Name"] for mount in mounts}
    assert len(volumes) == 1  # /data; the one for /tmp loses to envlock's own
    assert not volumes & set(docker("volume", "ls", "-q").split())


@hostile_as("no-python")
def test_an_image_without_python(engine: Engine, hostile: ImageInfo) -> None:
    with pytest.raises(NoProgramError, match=r"python3 in .* no such program \(127\)") as caught:
        probe(engine, hostile)
    assert caught.value.code == 5
    assert "--python" in str(caught.value.hint)


@hostile_as("not-executable")
def test_a_python_that_is_no_program(engine: Engine, hostile: ImageInfo) -> None:
    with pytest.raises(NoProgramError, match=r"cannot be executed \(126\)"):
        probe(engine, hostile, python="/usr/bin/python3")
    with pytest.raises(NoProgramError, match=r"no such program"):  # a search on PATH passes it over
        probe(engine, hostile)


def test_an_interpreter_that_was_named_wrongly(engine: Engine, base_image: ImageInfo) -> None:
    with pytest.raises(NoProgramError, match="/nowhere/python in "):
        probe(engine, base_image, python="/nowhere/python")
    assert containers_of(base_image) == []


@hostile_as("no-program", "ends-at-once")
def test_an_interpreter_that_ends_at_once(engine: Engine, hostile: ImageInfo) -> None:
    with pytest.raises(TargetError, match=r"ended by itself with exit code \d+|cannot be executed"):
        probe(engine, hostile)


@hostile_as("floods")
def test_a_flood_is_cut(engine: Engine, hostile: ImageInfo) -> None:
    with ImageTarget(engine=engine, image=hostile) as target:
        with pytest.raises(ProgramFloodError, match="too much output"):
            target.run_probe(InlineCall())
        assert containers_of(hostile) == []
        with pytest.raises(TargetError, match="not running"):
            target.run_probe(InlineCall())


@hostile_as("hangs")
def test_a_hang_ends_at_the_time_limit(engine: Engine, hostile: ImageInfo) -> None:
    with ImageTarget(engine=engine, image=hostile) as target:
        started = time.monotonic()
        with pytest.raises(ProgramTimeoutError, match="timed out"):
            target.run_probe(InlineCall(timeout_s=3))
        assert time.monotonic() - started < 20
        assert containers_of(hostile) == []


@hostile_as("garbage-only")
def test_garbage_is_no_answer(engine: Engine, hostile: ImageInfo) -> None:
    with pytest.raises(TargetError, match="gave no answer"):
        probe(engine, hostile)


@hostile_as("grandchild")
def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_call(
    engine: Engine, hostile: ImageInfo
) -> None:
    with ImageTarget(engine=engine, image=hostile) as target:
        started = time.monotonic()
        assert target.run_probe(InlineCall(timeout_s=40))["uid"] == 65534
        assert time.monotonic() - started < 20


@hostile_as("memory")
def test_out_of_memory_is_said(engine: Engine, hostile: ImageInfo) -> None:
    with pytest.raises(TargetError, match=r"ran out of memory \(limit 64 MiB\)"):
        probe(engine, hostile, memory_bytes=64 << 20)


def test_an_ordinary_kill_is_not_called_out_of_memory(
    engine: Engine, base_image: ImageInfo
) -> None:
    suicide = InlineCall(program=b"import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with (
        ImageTarget(engine=engine, image=base_image) as target,
        pytest.raises(TargetError, match="exit code 137"),
    ):
        target.run_probe(suicide)


@hostile_as("proc-volume")
def test_a_container_that_cannot_be_made_leaves_nothing(engine: Engine, hostile: ImageInfo) -> None:
    with pytest.raises(TargetError, match="could not start"):
        probe(engine, hostile)


@hostile_as("onbuild")
def test_triggers_are_visible(hostile: ImageInfo) -> None:
    assert hostile.onbuild == ("RUN touch /onbuild",)


def test_a_container_removed_from_outside(engine: Engine, base_image: ImageInfo) -> None:
    with ImageTarget(engine=engine, image=base_image) as target:
        (name,) = containers_of(base_image)
        docker("rm", "-f", name)
        with pytest.raises(TargetError, match=r"has ended|ended by itself"):
            target.run_probe(InlineCall())


@pytest.mark.parametrize("after_s", [0.5, 0.9, 1.4, 2.0, 4.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_leaves_no_container(
    base_image: ImageInfo, number: signal.Signals, after_s: float
) -> None:
    """SIGKILL leaves no chance to clean up: the container is then one that ends by itself."""
    code = f"""
from envlock.targets.engine import Engine
from envlock.targets.container import ImageTarget
from envlock.targets.process import Limits
engine = Engine.connect()
with ImageTarget(engine=engine, image=engine.resolve({base_image.reference!r})) as target:
    target.run([target.interpreter, "-c", "import time; time.sleep(60)"], limits=Limits(timeout_s=60))
"""
    running = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": "."}, stderr=subprocess.PIPE
    )
    time.sleep(after_s)
    running.send_signal(number)
    running.communicate(timeout=30)
    left = containers_of(base_image)
    if number is signal.SIGKILL:
        for name in left:
            assert json.loads(docker("inspect", name))[0]["HostConfig"]["AutoRemove"]
            docker("rm", "-fv", name)
    else:
        assert left == []
