"""The exchange with a probe: what is fed to it, and the one frame that is taken from its output.

A target's start-up files may print anything, so bare output is not trusted. The probe is given a
random token and prints its answer between two lines that carry it::

    envlock-begin <token>
    {"schema": "envlock-probe/1", "probe": "observe", "result": "ok", ...}
    envlock-end <token>

The answer is untrusted data all the same: one frame, bounded, strict JSON, the right schema.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from envlock.errors import TargetError
from envlock.redact import safe_text
from envlock.targets.base import ProbeCall
from envlock.targets.process import Completed, ProgramFloodError, ProgramTimeoutError

PROBE_SCHEMA = "envlock-probe/1"
MAX_ANSWER_BYTES = 8 << 20
BEGIN = b"envlock-begin "
END = b"envlock-end "

_READ_PROGRAM = (
    'import io; exec(compile(io.open(0, "rb", closefd=False).read(), "probe.py", "exec"))'
)
"""``python -`` would do the same, but it reads a program byte by byte: 0.1 s for ours. ``io.open``,
since Python 2 has it too, and so comes as far as the SyntaxError that tells how old it is."""

_EXIT_HINTS = {
    126: "the file is not a program for this system, or this user may not run it",
    127: "the program was not found inside the target",
    134: "the interpreter aborted; run it by hand to see why",
    137: "it was killed, most often for want of memory; raise the memory limit",
    139: "the interpreter crashed (segmentation fault); run it by hand to see where",
}


def new_token() -> str:
    return os.urandom(16).hex()  # secrets does the same, and loads hmac and OpenSSL


def probe_arguments(call: ProbeCall, token: str, *, bytecode: bool = False) -> list[str]:
    """The command line after the interpreter; the program itself goes to standard input.

    ``-B`` leaves no bytecode behind; ``bytecode`` allows it, where it goes to a folder that ends
    with the container. Never ``-I``: PYTHONPATH and the user site are facts.
    """
    return [*([] if bytecode else ["-B"]), "-c", _READ_PROGRAM, token, *call.arguments]


def read_answer(done: Completed, call: ProbeCall, token: str, label: str) -> dict[str, Any]:
    """The probe's answer with result ``ok``.

    ``label`` names the target in messages. Raises TargetError for everything else.
    """
    if done.code != 0:
        raise _crashed(done, call, label)
    answer = _decode(_frame(done, call, token, label), label)
    if answer.get("schema") != PROBE_SCHEMA or answer.get("probe") != call.probe:
        raise TargetError(
            f"{label}: the probe's answer has another schema "
            f"({_short(answer.get('schema'))}, {_short(answer.get('probe'))})",
            hint=f"expected {PROBE_SCHEMA}, {call.probe}: something else answered in its place",
        )
    if answer.get("result") == "ok":
        return answer
    if answer.get("result") == "error":
        raise TargetError(
            f"{label}: {_short(answer.get('message'))}",
            hint=_short(answer.get("hint") or f"the probe calls this {answer.get('kind')}"),
        )
    raise TargetError(
        f"{label}: the probe's answer has no result",
        hint="it must be ok or error: something else answered in its place",
    )


@contextlib.contextmanager
def limits_named(label: str) -> Iterator[None]:
    """Time limit and flood in terms of the target instead of the program that was started."""
    try:
        yield
    except ProgramTimeoutError as error:
        raise ProgramTimeoutError(f"{label} timed out: {error.message}", hint=error.hint) from error
    except ProgramFloodError as error:
        raise ProgramFloodError(
            f"{label} gave too much output: {error.message}", hint=error.hint
        ) from error


def _frame(done: Completed, call: ProbeCall, token: str, label: str) -> bytes:
    """The bytes between the two lines, of which there must be exactly one pair."""
    begin, end = BEGIN + token.encode("ascii"), END + token.encode("ascii")
    lines = done.stdout.replace(b"\r\n", b"\n").split(b"\n")
    starts = [i for i, line in enumerate(lines) if line == begin]
    ends = [i for i, line in enumerate(lines) if line == end]
    if not starts and not ends:
        raise TargetError(
            f"{label}: the probe {call.probe} gave no answer{_said(done)}",
            hint="is this a Python interpreter of version 3.8 or newer?",
        )
    if len(starts) != 1 or len(ends) != 1 or ends[0] < starts[0]:
        raise TargetError(
            f"{label}: the output holds {len(starts)} beginnings and {len(ends)} ends of an answer, "
            "not one of each",
            hint="something in the target copies or cuts the probe's output; start it by hand",
        )
    return b"\n".join(lines[starts[0] + 1 : ends[0]])


def _decode(frame: bytes, label: str) -> dict[str, Any]:
    hint = "the answer was changed on its way, or something else gave it"
    if len(frame) > MAX_ANSWER_BYTES:
        raise TargetError(f"{label}: the probe's answer is larger than 8 MiB", hint=hint)
    try:
        text = frame.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TargetError(f"{label}: the probe's answer is not UTF-8", hint=hint) from error
    try:
        answer = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise TargetError(
            f"{label}: the probe's answer is not JSON: {_short(str(error))}", hint=hint
        ) from error
    if not isinstance(answer, dict):
        raise TargetError(f"{label}: the probe's answer is not a JSON object", hint=hint)
    return answer


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice")
    return table


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _crashed(done: Completed, call: ProbeCall, label: str) -> TargetError:
    if b"SyntaxError" in done.stderr[-2000:]:
        return TargetError(
            f"{label} cannot read the probe: it is older than Python 3.8",
            hint="name another interpreter with --python",
        )
    return TargetError(
        f"{label}: the probe {call.probe} ended with exit code {done.code}{_said(done)}",
        hint=_EXIT_HINTS.get(done.code, "run the interpreter by hand and see what it says"),
    )


def _said(done: Completed) -> str:
    """What the program printed, in labelled blocks, for the person who has to find out why."""
    blocks = [
        f"\n{name}{'' if _is_utf8(raw) else ' (not UTF-8)'}:\n{safe_text(raw)}"
        for name, raw in (("standard output", done.stdout), ("standard error", done.stderr))
        if raw.strip()
    ]
    return "".join(blocks)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _short(text: object) -> str:
    return safe_text(str(text), lines=1, width=300) if text is not None else "nothing"
