"""Bases from registries: by way of a mirror, and from such as are broken, silent or refuse.

All on the loopback address. Without an engine skopeo asks them, else the engine does.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envlock.errors import TargetError
from envlock.image import base_export
from envlock.image.oci import MANIFEST_TYPE, Layout
from envlock.image.registry import LoopbackRegistry
from envlock.targets.engine import Engine
from envlock.targets.process import Limits
from tests.engine.test_assemble import Case, make_case, no_images_left
from tests.unit.base_layouts import FILES
from tests.unit.base_layouts import base_layout as base_layout_of
from tests.unit.wheels import make_wheel

__all__ = ["no_images_left"]

REFUSED = '{{"errors":[{{"code":"{code}","message":"{said}"}}]}}'
FAULTS: dict[str, tuple[int, bytes, str]] = {
    "garbage": (200, b"\0\xff garbage", ""),
    "401": (401, REFUSED.format(code="UNAUTHORIZED", said="unauthorized").encode(), "refuses"),
    "404": (
        404,
        REFUSED.format(code="MANIFEST_UNKNOWN", said="manifest unknown").encode(),
        "not in",
    ),
    "429": (429, REFUSED.format(code="TOOMANYREQUESTS", said="slow down").encode(), "too many"),
    "500": (500, b"oops", ""),
}
"""Status, body, and what is said of it."""


class Registry(http.server.BaseHTTPRequestHandler):
    """Answers all but the greeting with one status and body."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, status: int, body: bytes) -> None:
        self.status, self.body = status, body
        super().__init__(*arguments)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        greeting = self.path == "/v2/"
        self.answer(*((200, b"{}") if greeting else (self.status, self.body)), Retry_After="1")

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


class WrongBytes(Registry):
    """Has the image, and sends a ``what`` that is not the one it is asked for."""

    def __init__(self, *arguments: Any, layout: Layout, what: str) -> None:
        self.layout, self.what = layout, what
        super().__init__(*arguments, status=404, body=b"")

    def do_GET(self) -> None:
        manifest = self.layout.manifest
        if "/manifests/" in self.path:
            # The same length and still JSON: only the digest can tell.
            sent = manifest.replace(b'"size":', b'"Size":') if self.what == "manifest" else manifest
            digest = self.layout.manifest_digest
            self.answer(200, sent, Content_Type=MANIFEST_TYPE, Docker_Content_Digest=digest)
        elif "/blobs/" in self.path:
            path = self.layout.blob(self.path.rpartition("/")[2])
            assert path
            data = path.read_bytes()
            self.answer(200, data[:-9] + bytes(9) if self.what == "blob" else data)
        else:
            super().do_GET()


@contextlib.contextmanager
def served(handler: Any) -> Iterator[str]:
    """The registry's host and port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Case:
    folder = tmp_path_factory.mktemp("registries")
    return make_case(folder, base_layout, make_wheel(folder / "wheels", {"demo.py": b"x = 1\n"}))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "envlock"


def build_refused(case: Case, engine: str, reference: str, cache: Path, *options: str) -> str:
    """What is said of a base that is not to be had; nothing is left of trying."""
    into = cache.parent.parent / "out"
    before = images()
    everything = ("-o", f"oci:{into}", "--no-verify", "--engine", engine, "--base", reference)
    said = case.build(*everything, *options, expect=5).stderr
    assert "Traceback" not in said
    assert not into.exists()
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert images() == before
    assert "hint: one of these\n1. " in said
    assert "\n4. without any registry: 'images/base/build.py DIR', and --base oci:DIR" in said
    return said


def images() -> list[str]:
    listed = Engine.connect()._client.images(all=True)
    return sorted(tag for image in listed for tag in image["RepoTags"] or [])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("engine", ["none", "docker"])
def test_a_faulty_registry_gives_a_plan(engine: str, fault: str, case: Case, cache: Path) -> None:
    status, body, message = FAULTS[fault]
    with served(functools.partial(Registry, status=status, body=body)) as host:
        said = build_refused(case, engine, f"{host}/a/b:1", cache)
    assert message in said
    assert f"{host}/a/b:1" in said.partition("hint:")[0]


@pytest.mark.parametrize("what", ["manifest", "blob"])
@pytest.mark.parametrize("engine", ["none", "docker"])
def test_other_bytes_than_the_digest_names_are_refused(
    engine: str, what: str, case: Case, cache: Path, tmp_path: Path
) -> None:
    # No engine has it yet: of layers that it has it asks for no bytes.
    layout = base_layout_of(tmp_path / "new", {**FILES, "new": secrets.token_hex()})
    with served(functools.partial(WrongBytes, layout=layout, what=what)) as host:
        said = build_refused(case, engine, f"{host}/a/b@{layout.manifest_digest}", cache)
    assert "arrived damaged" in said


def test_a_registry_that_is_not_there_gives_a_plan(case: Case, cache: Path) -> None:
    with served(Registry) as host:
        pass
    for engine in ("none", "docker"):
        assert "cannot be reached" in build_refused(case, engine, f"{host}/a/b:1", cache)


def test_silence_ends_at_the_limit(
    base_layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()

    class Silent(Registry):
        def do_GET(self) -> None:
            done.wait(60)

    monkeypatch.setattr(base_export, "_LOOK", Limits(timeout_s=2, stdout_bytes=1 << 20))
    with served(functools.partial(Silent, status=200, body=b"")) as host:
        for reference in (f"{host}/a/b:1", f"{host}/a/b@{base_layout.manifest_digest}"):
            with pytest.raises(TargetError, match="2 s") as caught:
                base_export.from_registry(reference, tmp_path / "bases")
            assert caught.value.code == 5
        done.set()
    assert not (tmp_path / "bases").exists()


@pytest.mark.parametrize("engine", ["none", "docker", "buildah"])
def test_a_mirror_is_asked_and_the_true_name_recorded(
    engine: str, case: Case, base_layout: Layout, cache: Path, tmp_path: Path
) -> None:
    before, file = case.lock.read_text(), tmp_path / "build.json"
    into = ("-o", f"oci:{tmp_path}/out", "--no-verify", "--metadata", file, "--engine", engine)
    with LoopbackRegistry(base_layout, name="hub/library/envlock-test", tag="12") as registry:
        mirror = f"127.0.0.1:{registry.port}/hub"
        try:
            said = case.build(*into, "--base", "envlock-test:12", "--base-mirror", mirror).stderr
            recorded = case.lock.read_text()
        finally:
            case.lock.write_text(before)
            with contextlib.suppress(TargetError):
                Engine.connect().remove(f"{mirror}/library/envlock-test:12")
    assert f"found as {mirror}/library/envlock-test:12" in said
    base = json.loads(file.read_text())["base"]
    assert base["reference"].partition(":")[0] == "docker.io/library/envlock-test"
    assert base["digest"] == base_layout.manifest_digest
    assert 'reference = "docker.io/library/envlock-test' in recorded
    assert "127.0.0.1" not in recorded


def test_a_mirror_that_is_none_is_a_fault_of_the_call(case: Case, tmp_path: Path) -> None:
    options = ("--engine", "none", "-o", f"oci:{tmp_path}/x", "--base", "debian:12")
    said = case.build(*options, "--base-mirror", "https://m.example", expect=2).stderr
    assert "--base-mirror: not a registry" in said
