"""What envlock says while it works: to standard error, never mixed with data."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator

from envlock.redact import safe_text


def say(text: str) -> None:
    """One line for the person who waits. A closed standard error is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(safe_text(text, width=400), file=sys.stderr, flush=True)  # noqa: T201


def log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Redacting("%(relativeCreated)7d ms  %(message)s"))
    root = logging.getLogger("envlock")
    root.addHandler(handler)
    root.setLevel(level)


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return safe_text(super().format(record), lines=40, width=2000)


@contextlib.contextmanager
def counter(what: str) -> Iterator[Callable[[int, int], None]]:
    """Progress of long work in bytes: one line, rewritten, on a terminal; nothing elsewhere."""
    live = sys.stderr.isatty()
    last = 0.0

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if live and (now - last > 0.1 or done == total):
            last = now
            sys.stderr.write(f"\r{what}: {done >> 20} of {total >> 20} MiB\x1b[K")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if live and last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
