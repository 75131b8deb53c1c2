"""The raw conversation with a program in a container, over the engine's hijacked connection.

What the program writes comes as frames (Engine API, "Stream format"): one byte for the stream, three
zero bytes, the length as 32 bits big-endian, then the bytes. Nothing here trusts the program: sizes,
time, and the engine's own view of whether the program still runs end the conversation.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from envlock.errors import TargetError
from envlock.targets.process import Limits, ProgramFloodError, ProgramTimeoutError

_CHUNK = 65536
_HEADER = 8
_STDERR = 2
_LOOK_S = 1.0
"""An open connection is no sign of a running program: its children may hold the pipe. Ask so often."""
_GRACE_S = 0.3
"""How long output is still read after the program ended."""


@dataclass(kw_only=True, slots=True)
class Output:
    """Demultiplexed output so far."""

    name: str
    """What messages call the program."""
    limits: Limits
    on_stderr: Callable[[bytes], None] | None = None
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    _header: bytearray = field(default_factory=bytearray)
    _left: int = 0
    _stream: int = 0

    def feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if not self._left:
                need = _HEADER - len(self._header)
                self._header += rest[:need]
                rest = rest[need:]
                if len(self._header) == _HEADER:
                    self._open_frame()
                continue
            piece, rest = rest[: self._left], rest[self._left :]
            self._left -= len(piece)
            self._take(piece)

    def _open_frame(self) -> None:
        self._stream, self._left = self._header[0], int.from_bytes(self._header[4:], "big")
        if self._stream > _STDERR or any(self._header[1:4]):
            raise TargetError(
                "the container engine's output stream is garbled",
                hint="the engine at DOCKER_HOST may not be a Docker Engine",
            )
        self._header.clear()

    def _take(self, piece: memoryview) -> None:
        if self._stream == _STDERR:
            if self.on_stderr is not None:
                self.on_stderr(bytes(piece))
            self.stderr += piece
            del self.stderr[: -self.limits.stderr_bytes]
            return
        self.stdout += piece
        if len(self.stdout) > self.limits.stdout_bytes:
            raise ProgramFloodError(
                f"{self.name} wrote more than {self.limits.stdout_bytes >> 20} MiB "
                "to standard output and was stopped",
                hint="run it by hand to see what it prints",
            )


def converse(
    connection: socket.socket, output: Output, *, stdin: bytes, ended: Callable[[], bool]
) -> None:
    """Send ``stdin``, close that side, and collect output until the program has ended.

    Raises ProgramTimeoutError and ProgramFloodError; the program then still runs.
    """
    connection.setblocking(False)
    unsent = memoryview(stdin)
    deadline = time.monotonic() + output.limits.timeout_s
    asked_at, ended_at = time.monotonic(), None
    with selectors.DefaultSelector() as waiting:
        waiting.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while (now := time.monotonic()) < deadline:
            if ended_at is not None and now - ended_at > _GRACE_S:
                return
            if ended_at is None and now - asked_at > _LOOK_S:
                asked_at, ended_at = now, now if ended() else None
            for _, events in waiting.select(min(0.1, deadline - now)):
                if events & selectors.EVENT_WRITE:
                    unsent = unsent[_send(connection, unsent) :]
                    if not unsent:
                        with contextlib.suppress(OSError):
                            connection.shutdown(socket.SHUT_WR)
                        waiting.modify(connection, selectors.EVENT_READ)
            data = _receive(connection)
            if data == b"":
                return
            if data:
                output.feed(data)
    raise ProgramTimeoutError(
        f"{output.name} did not finish within {output.limits.timeout_s:g} s and was stopped",
        hint="see what it waits for by running it by hand, or raise the limit",
    )


def unwrap(reader: Any) -> tuple[socket.socket, bytes]:
    """The socket below an HTTP client's buffered reader, and the bytes already in that buffer."""
    connection = getattr(reader.raw, "_sock", None)
    # Exactly this type: the end of the input is told by closing one half of the connection, which
    # Python's TLS sockets and SSH channels cannot do.
    if type(connection) is not socket.socket:
        raise TargetError(
            "programs in containers can be run over unix:// and plain tcp:// engines only",
            hint="forward the engine's socket (ssh -L) and point DOCKER_HOST at it",
        )
    connection.setblocking(False)
    return connection, bytes(
        reader.peek()
    )  # not blocking: what is there, and nothing if nothing is


def _send(connection: socket.socket, data: memoryview) -> int:
    try:
        return connection.send(data[:_CHUNK])
    except BlockingIOError:
        return 0
    except (BrokenPipeError, ConnectionResetError):
        return len(data)  # it does not want to read; its output and exit code tell why


def _receive(connection: socket.socket) -> bytes | None:
    """Bytes, ``b""`` at the end, None when nothing is there yet."""
    try:
        return connection.recv(_CHUNK)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""
