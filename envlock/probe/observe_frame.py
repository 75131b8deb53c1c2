"""The exchange with the host: one JSON answer between two lines that carry the host's token.

Whatever start-up files or libraries print goes to standard error: file descriptor 1 is put aside
first and used once, for the answer, as bytes, so that no locale can break it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

SCHEMA = "envlock-probe/1"


class KnownError(Exception):
    """A failure that the probe understands; the host shows it and does not call it a crash."""

    def __init__(self, kind: str, message: str, hint: str | None = None) -> None:
        Exception.__init__(self, message)
        self.kind, self.message, self.hint = kind, message, hint


def refuse_old_python() -> None:
    if sys.version_info < (3, 8):
        raise KnownError(
            "python-too-old",
            "this is Python %d.%d, and the probe needs 3.8" % sys.version_info[:2],
            "name another interpreter with --python",
        )


def answer(probe: str, work: Callable[[list[str]], dict[str, object]]) -> None:
    """Call ``work(arguments)`` and print what it returns; ends the process.

    The process ends without clean-up: a torch that crashes on the way out, or a start-up file that
    registered an exit handler, must not spoil an answer that is complete.
    """
    token, arguments = sys.argv[1], sys.argv[2:]
    if sys.stdout is not None:
        sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    reply = {"schema": SCHEMA, "probe": probe}
    try:
        refuse_old_python()
        reply.update(work(arguments), result="ok")
    except KnownError as error:
        reply.update(result="error", kind=error.kind, message=error.message, hint=error.hint)
    text = json.dumps(reply, ensure_ascii=False, allow_nan=False)
    frame = "\nenvlock-begin %s\n%s\nenvlock-end %s\n" % (token, text, token)
    data = memoryview(frame.encode("utf-8", "replace"))  # file names may hold what is no text
    while data:
        data = data[os.write(out, data) :]
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(0)
