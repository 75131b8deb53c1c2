"""One file from one URL, continued where an earlier try was cut off. Whose it is the caller checks."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import requests

from envlock.errors import BuildError
from envlock.image.kept import sweep
from envlock.redact import one_line, redact

_CHUNK = 1 << 18
_TIMEOUT_S = (20, 30)
"""To connect, and between two chunks: so long may an interrupt take where a server is silent."""
_TRIES = 4
"""Of which each but the last has to bring something, or nothing more is asked."""
_TELL_S = 5.0
_STRAY = ".part-"


class StoppedError(Exception):
    """Somebody wants the work to end. Nobody hears it: what stopped it is what is told."""


@contextlib.contextmanager
def continued(target: Path) -> Iterator[Path]:
    """A file of this download's own, with what an earlier one had got; kept for a later one.

    Two downloads at once do not meet: the one that comes second starts anew. Raises OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent, _STRAY)
    handle, name = tempfile.mkstemp(prefix=_STRAY, dir=target.parent)
    os.close(handle)
    own, kept = Path(name), target.with_name(f"{target.name}.part")
    with contextlib.suppress(FileNotFoundError):
        kept.replace(own)
    try:
        yield own
    finally:
        with contextlib.suppress(FileNotFoundError):  # it went where it should
            if own.stat().st_size:
                own.replace(kept)
            else:
                own.unlink()


def receive(
    url: str, into: Path, say: Callable[[str], None], stopped: Callable[[], bool] = lambda: False
) -> None:
    """Append what is missing, or write it anew where the server does not know how.

    Raises BuildError when no try gets to the end, StoppedError, OSError for the disk.
    """
    for left in reversed(range(_TRIES)):
        before = into.stat().st_size
        try:
            _receive(url, into, say, stopped)
        except requests.RequestException as error:
            if left and into.stat().st_size > before:
                continue
            raise BuildError(
                f"{urlsplit(url).hostname} did not send a file: {redact(str(error))}",
                hint="try again, which goes on where this ended; check the network, or build from "
                "files: --wheelhouse DIR",
            ) from error
        return


def _receive(url: str, into: Path, say: Callable[[str], None], stopped: Callable[[], bool]) -> None:
    have = into.stat().st_size
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    with requests.get(url, stream=True, timeout=_TIMEOUT_S, headers=headers) as answer:
        if have and answer.status_code == requests.codes.requested_range_not_satisfiable:
            into.write_bytes(b"")
            raise requests.ConnectionError("it has less of the file than was received before")
        answer.raise_for_status()
        goes_on = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        more = answer.status_code == requests.codes.partial_content and goes_on
        told, done = time.monotonic(), have if more else 0
        total = done + _length(answer.headers.get("Content-Length", ""))
        with into.open("ab" if more else "wb") as file:
            for chunk in answer.iter_content(_CHUNK):
                if stopped():
                    raise StoppedError
                done += file.write(chunk)
                if time.monotonic() - told > _TELL_S:
                    told = time.monotonic()
                    name = one_line(urlsplit(url).path.rpartition("/")[2])
                    say(f"fetching {name}: {done >> 20} of {total >> 20} MiB")


def _length(header: str) -> int:
    return int(header) if re.fullmatch(r"[0-9]{1,18}", header, re.ASCII) else 0
