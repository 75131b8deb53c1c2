"""The frame around an answer, and one clear message for each way it can be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envlock.errors import TargetError
from envlock.targets.answer import limits_named, new_token, probe_arguments, read_answer
from envlock.targets.base import ProbeCall
from envlock.targets.process import Completed, ProgramFloodError, ProgramTimeoutError

TOKEN = "0123456789abcdef"
CALL = ProbeCall(probe="observe")
GOOD = {"schema": "envlock-probe/1", "probe": "observe", "result": "ok", "observed": {}}


def completed(stdout: bytes, *, code: int = 0, stderr: bytes = b"") -> Completed:
    return Completed(argv=("python3",), code=code, stdout=stdout, stderr=stderr)


def framed(answer: Any, token: str = TOKEN) -> bytes:
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return b"\nenvlock-begin %s\n%s\nenvlock-end %s\n" % (token.encode(), text, token.encode())


def read(stdout: bytes, *, code: int = 0, stderr: bytes = b"") -> dict[str, Any]:
    return read_answer(completed(stdout, code=code, stderr=stderr), CALL, TOKEN, "python:~/bin/py")


def refused(stdout: bytes, *, code: int = 0, stderr: bytes = b"") -> TargetError:
    with pytest.raises(TargetError) as caught:
        read(stdout, code=code, stderr=stderr)
    assert caught.value.message.startswith("python:~/bin/py")
    assert caught.value.hint
    return caught.value


def test_a_plain_answer() -> None:
    assert read(framed(GOOD)) == GOOD


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'Welcome! {"cuda":"12.9"}\n{"a":1}', b""),
        (b"no newline at the end", b"goodbye\n"),
        (b"\xff\xfe\x00", b"\xff\n"),
        (framed(GOOD, token="f" * 16), framed({"a": 1}, token="e" * 16)),
    ],
)
def test_noise_around_it(before: bytes, after: bytes) -> None:
    assert read(before + framed(GOOD) + after) == GOOD


def test_lines_of_windows() -> None:
    assert read(framed(GOOD).replace(b"\n", b"\r\n")) == GOOD


@pytest.mark.parametrize(
    ("stdout", "says"),
    [
        (b"", "gave no answer"),
        (b"hello\n", "hello"),
        (framed(GOOD, token="f" * 16), "gave no answer"),
        (framed(GOOD) + framed(GOOD), "2 beginnings and 2 ends"),
        (framed(GOOD).replace(b"envlock-end", b"cut"), "1 beginnings and 0 ends"),
        (b"envlock-end %s\nenvlock-begin %s\n" % (TOKEN.encode(), TOKEN.encode()), "not one"),
        (framed(b"\xff\xfe"), "not UTF-8"),
        (framed(b"{'a': 1}"), "not JSON"),
        (framed(b"[" * 100_000), "not JSON"),
        (framed(b'{"a": NaN}'), "NaN is not a JSON number"),
        (framed(b'{"a": 1, "a": 2}'), "a key stands twice"),
        (framed(b'{"a": ' + b"9" * 5000 + b"}"), "not JSON"),
        (framed(b"[]"), "not a JSON object"),
        (framed(b'"' + b"x" * (8 << 20) + b'"'), "larger than 8 MiB"),
        (framed({**GOOD, "schema": "envlock-probe/2"}), "another schema"),
        (framed({**GOOD, "probe": "smoke"}), "another schema"),
        (framed({**GOOD, "result": "fine"}), "no result"),
    ],
)
def test_what_is_no_answer(stdout: bytes, says: str) -> None:
    assert says in refused(stdout).message


def test_a_failure_that_the_probe_knows() -> None:
    error = refused(
        framed(
            {
                "schema": "envlock-probe/1",
                "probe": "observe",
                "result": "error",
                "kind": "python-too-old",
                "message": "this is Python 3.7",
                "hint": "name another",
            }
        )
    )
    assert error.message == "python:~/bin/py: this is Python 3.7"
    assert error.hint == "name another"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (127, "not found inside the target"),
        (126, "not a program for this system"),
        (137, "memory"),
        (139, "segmentation fault"),
        (1, "by hand"),
    ],
)
def test_a_crash(code: int, hint: str) -> None:
    error = refused(framed(GOOD), code=code, stderr=b"Traceback\nValueError: boom\x1b[2J")
    assert f"exit code {code}" in error.message
    assert "standard error:\nTraceback\nValueError: boom\\x1b[2J" in error.message
    assert hint in str(error.hint)


def test_a_crash_tells_no_secrets() -> None:
    error = refused(b"", code=1, stderr=b"https://user1:s3cr3t-canary@h.invalid/simple failed")
    assert "s3cr3t-canary" not in error.message
    assert "user1" not in error.message


def test_a_python_that_cannot_read_the_probe() -> None:
    error = refused(b"", code=1, stderr=b"  File <stdin>\nSyntaxError: invalid syntax\n")
    assert "older than Python 3.8" in error.message


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (ProgramTimeoutError("did not finish", hint="h"), "py timed out"),
        (ProgramFloodError("wrote more", hint="h"), "py gave too much output"),
    ],
)
def test_limits_name_the_target(raised: TargetError, says: str) -> None:
    with pytest.raises(type(raised), match=says), limits_named("py"):
        raise raised


def test_tokens_differ_and_bytecode_is_not_written() -> None:
    assert new_token() != new_token()
    arguments = probe_arguments(ProbeCall(probe="observe", arguments=["--x"]), TOKEN)
    assert arguments[0] == "-B"
    assert arguments[-2:] == [TOKEN, "--x"]
    assert "-I" not in arguments
