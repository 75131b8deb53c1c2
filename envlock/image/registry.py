"""One OCI layout behind the registry pull API, on the loopback address, for the time of a build.

An engine cannot build ``FROM`` a local image id, but it takes plain HTTP from 127.0.0.0/8 as a registry.
Read-only: of the distribution spec 1.1 only the pull part. Nothing is written and nothing is listed.
"""

from __future__ import annotations

import http.server
import json
import logging
import shutil
import threading
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from envlock.errors import TargetError
from envlock.image.oci import CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, Layout

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

HOST = "127.0.0.1"


class LoopbackRegistry:
    """A context manager: while entered, ``reference`` can be pulled by an engine of this machine."""

    def __init__(
        self, layout: Layout, *, name: str = "envlock/base", tag: str = "base", port: int = 0
    ) -> None:
        self._layout = layout
        self._name = name
        self._tag = tag
        self._wanted_port = port
        self._server: http.server.ThreadingHTTPServer | None = None

    @property
    def port(self) -> int:
        assert self._server, "not entered"
        return int(self._server.server_address[1])

    @property
    def reference(self) -> str:
        """``127.0.0.1:PORT/name@sha256:…``, pinned to the layout's manifest."""
        return f"{HOST}:{self.port}/{self._name}@{self._layout.manifest_digest}"

    def __enter__(self) -> Self:
        class Handler(_Handler):
            layout, name, tag = self._layout, self._name, self._tag

        try:
            server = http.server.ThreadingHTTPServer((HOST, self._wanted_port), Handler)
        except OSError as error:
            raise TargetError(
                f"the loopback registry cannot listen on {HOST}:{self._wanted_port}: "
                f"{error.strerror}",
                hint="choose another port, or 0 for any free one",
            ) from error
        server.daemon_threads = True  # a client that hangs must not keep envlock
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        self._server = server
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Handler(http.server.BaseHTTPRequestHandler):
    layout: ClassVar[Layout]
    name: ClassVar[str]
    tag: ClassVar[str]

    protocol_version = "HTTP/1.1"
    server_version = "envlock"
    sys_version = ""
    timeout = 60  # of a silent connection, seconds

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if self.path in ("/v2", "/v2/"):
            self._send_bytes(b"{}", "application/json", body=body)
            return
        manifests, blobs = f"/v2/{self.name}/manifests/", f"/v2/{self.name}/blobs/"
        if self.path.startswith(manifests):
            wanted = self.path.removeprefix(manifests)
            if wanted in (self.tag, self.layout.manifest_digest):
                digest = self.layout.manifest_digest
                self._send_bytes(self.layout.manifest, MANIFEST_TYPE, digest=digest, body=body)
                return
        elif self.path.startswith(blobs):
            digest = self.path.removeprefix(blobs)
            path = self.layout.blob(digest)
            if path is not None:
                self._send_file(path, digest, body=body)
                return
        error = {"errors": [{"code": "NAME_UNKNOWN", "message": "not here"}]}
        data = json.dumps(error).encode()
        self._send_bytes(data, "application/json", status=HTTPStatus.NOT_FOUND, body=body)

    def _send_bytes(
        self,
        data: bytes,
        content_type: str,
        *,
        digest: str = "",
        status: HTTPStatus = HTTPStatus.OK,
        body: bool,
    ) -> None:
        self._send_head(len(data), content_type, digest=digest, status=status)
        if body:
            self.wfile.write(data)

    def _send_file(self, path: Path, digest: str, *, body: bool) -> None:
        config = json.loads(self.layout.manifest)["config"]["digest"]
        content_type = CONFIG_TYPE if digest == config else LAYER_TYPE
        self._send_head(path.stat().st_size, content_type, digest=digest)
        if body:
            with path.open("rb") as file:
                shutil.copyfileobj(file, self.wfile, 1 << 20)

    def _send_head(
        self, size: int, content_type: str, *, digest: str, status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(size))
        self.send_header("Docker-Distribution-API-Version", "registry/2.0")
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.debug("registry: %s", format % args)
