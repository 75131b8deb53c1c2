"""The engine itself: names, pulling, loading, and one message per way it can be unusable."""

from __future__ import annotations

import contextlib
import http.server
import os
import secrets
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from envlock.errors import InputError, TargetError, UsageError
from envlock.image.oci import Layout
from envlock.image.registry import LoopbackRegistry
from envlock.targets.container import ImageTarget
from envlock.targets.engine import Engine, ImageInfo
from envlock.targets.engine_errors import EngineGoneError, NoImageError
from envlock.targets.process import Limits
from tests.engine.conftest import build_base


def test_a_name_is_resolved_to_an_image_once(engine: Engine, base_image: ImageInfo) -> None:
    tag = f"envlock-test-moving:{secrets.token_hex(4)}"
    engine.tag(base_image.image_id, tag)
    image = engine.resolve(tag)
    engine.remove(tag)
    with ImageTarget(engine=engine, image=image) as target:
        done = target.run([target.interpreter, "-V"], limits=Limits(timeout_s=30))
    assert image.image_id == base_image.image_id
    assert done.stdout.startswith(b"Python 3.")
    assert image.os == "linux"
    assert image.env["LANG"] == "C.UTF-8"
    assert image.cmd == ("python3",)
    assert image.size_bytes > 50 << 20


def test_an_image_that_is_not_there(engine: Engine) -> None:
    with pytest.raises(NoImageError, match="has no image envlock-test-none:1") as caught:
        engine.resolve("envlock-test-none:1")
    assert caught.value.code == 5


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "--rm",
        "-x",
        "a b",
        "UPPER",
        "name:tag:tag",
        "a/../b",
        "name\n",
        "x" * 600,
        "a@sha256:12",
    ],
)
def test_what_cannot_be_a_name_never_reaches_the_engine(engine: Engine, reference: str) -> None:
    with pytest.raises(UsageError, match="not an image reference"):
        engine.resolve(reference)


@pytest.mark.parametrize(
    "reference",
    [
        "debian",
        "debian:12-slim",
        "h.example:5000/a/b_c.d:T_1",
        "sha256:" + "a" * 64,
        "abcdef012345",
    ],
)
def test_what_can_be_a_name_does(engine: Engine, reference: str) -> None:
    with pytest.raises(NoImageError):
        engine.resolve(reference)


def test_the_base_is_pulled_by_digest_and_runs(engine: Engine, base_layout: Layout) -> None:
    with LoopbackRegistry(base_layout) as registry:
        by_digest = engine.resolve(registry.reference, pull=True)
        by_tag = engine.resolve(f"127.0.0.1:{registry.port}/envlock/base:base", pull=True)
    assert by_digest.image_id == by_tag.image_id
    assert by_digest.repo_digests[0].endswith(f"@{base_layout.manifest_digest}")
    engine.remove(by_digest.reference)
    engine.remove(by_tag.reference)


def test_a_loopback_registry_has_only_its_image(engine: Engine, base_layout: Layout) -> None:
    with LoopbackRegistry(base_layout) as registry:
        with pytest.raises(NoImageError, match="not in its registry"):
            engine.resolve(f"127.0.0.1:{registry.port}/envlock/other:1", pull=True)
        with pytest.raises(NoImageError, match="not in its registry"):
            engine.resolve(f"127.0.0.1:{registry.port}/envlock/base:other", pull=True)


def test_an_archive_is_loaded(engine: Engine, base_image: ImageInfo, tmp_path: Path) -> None:
    archive = tmp_path / "base.tar"
    subprocess.run(["docker", "save", "-o", archive, base_image.reference], check=True)
    assert engine.load(archive) == base_image.image_id


def test_a_bad_archive_is_refused(engine: Engine, tmp_path: Path) -> None:
    junk = tmp_path / "junk.tar"
    junk.write_bytes(b"\0\1\2" * 1000)
    with pytest.raises((InputError, TargetError)):
        engine.load(junk)
    with pytest.raises(InputError, match="does not exist"):
        engine.load(tmp_path / "none.tar")


def test_the_base_is_reproducible(base_layout: Layout, tmp_path: Path) -> None:
    assert build_base(tmp_path / "again").strip() == base_layout.manifest_digest


class _Registry(http.server.BaseHTTPRequestHandler):
    """Answers everything with one status and body."""

    status, body = 500, b"no"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v2/" else self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b'{"errors":[{"code":"UNAUTHORIZED","message":"unauthorized"}]}', "refuses access"),
        (
            404,
            b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}',
            "not in its",
        ),
        (
            429,
            b'{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}',
            "too many requests",
        ),
        (500, b"oops", "could not be pulled"),
        (200, b"garbage", "could not be pulled|damaged"),
    ],
)
def test_registry_faults_have_their_own_messages(
    engine: Engine, status: int, body: bytes, message: str
) -> None:
    handler = type("Handler", (_Registry,), {"status": status, "body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(TargetError, match=message):
            engine.resolve(f"127.0.0.1:{server.server_address[1]}/a/b:1", pull=True)
        server.shutdown()


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "engine.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return path


def test_no_socket(address: Path) -> None:
    with pytest.raises(EngineGoneError, match="no container engine here") as caught:
        Engine.connect()
    assert caught.value.code == 5
    assert "install" in str(caught.value.hint)


def test_nobody_behind_the_socket(address: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(address))
    with pytest.raises(EngineGoneError, match="is down"):
        Engine.connect()


def test_no_permission(address: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        address.chmod(0)
        address.parent.chmod(0o755)
        child = os.fork()
        if child == 0:  # root may connect whatever the mode is
            code = 99
            try:
                os.setuid(65534)
                Engine.connect()
            except EngineGoneError as error:
                code = 0 if "no permission" in error.message else 98
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope", "no usable answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no usable answer"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"ApiVersion":"1.39"}', "old: API 1.39"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"ApiVersion":"1.12"}', "too old"),
        (b"", "is down|no usable answer"),
    ],
)
def test_something_else_behind_the_socket(address: Path, answer: bytes, message: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        threading.Thread(target=_answer_all, args=(listening, answer), daemon=True).start()
        with pytest.raises(EngineGoneError, match=message):
            Engine.connect()


def test_a_silent_engine(address: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        with pytest.raises(EngineGoneError, match="does not answer in time"):
            Engine.connect(timeout_s=1)


def _answer_all(listening: socket.socket, answer: bytes) -> None:
    """Until the listening socket is closed."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection:
                if connection.recv(65536):
                    connection.sendall(answer)
