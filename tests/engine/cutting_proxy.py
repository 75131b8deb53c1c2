"""A unix socket before an engine's own, whose connections can be cut while they are in use."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

ENGINE = "/var/run/docker.sock"


class CuttingProxy:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._listening.bind(str(self.path))
        self._listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def cut(self) -> None:
        """End every connection; new ones are taken."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """As an engine that is gone."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        for one in self._open:
            one.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(ENGINE)
                self._open += [client, engine]
                for source, target in ((client, engine), (engine, client)):
                    threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
