"""Messages of real engines, and what becomes of them."""

from __future__ import annotations

import errno
import socket

import pytest

from envlock.errors import TargetError
from envlock.targets.engine_errors import (
    ContainerEndedError,
    NoImageError,
    NoProgramError,
    explain_connection,
    explain_pull,
    explain_start,
)

RUNC = "OCI runtime create failed: runc create failed: unable to start container process: "


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            RUNC + 'exec: "python3": executable file not found in $PATH: unknown',
            NoProgramError,
            "127",
        ),
        (RUNC + 'exec: "/x": stat /x: no such file or directory: unknown', NoProgramError, "127"),
        (RUNC + 'exec: "/etc/x": permission denied: unknown', NoProgramError, "126"),
        (RUNC + "exec format error", NoProgramError, "126"),
        (
            'could not select device driver "" with capabilities: [[gpu]]',
            TargetError,
            "cannot give .* a GPU",
        ),
        ("Container 12ab is not running", ContainerEndedError, "has ended"),
        ("No such container: 12ab", ContainerEndedError, "has ended"),
        ("write /x: no space left on device", TargetError, "disk is full"),
        ("something new", TargetError, "could not start python3 in IMAGE: something new"),
    ],
)
def test_starting(text: str, kind: type[TargetError], said: str) -> None:
    error = explain_start(text, "python3 in IMAGE")
    assert type(error) is kind
    with pytest.raises(TargetError, match=said):
        raise error
    assert error.hint


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("manifest for a/b:1 not found: manifest unknown", NoImageError, "not in its registry"),
        (
            "pull access denied for a, repository does not exist or may require 'docker login': denied",
            TargetError,
            "refuses access",
        ),
        ("unauthorized: authentication required", TargetError, "refuses access"),
        ("toomanyrequests: You have reached your pull rate limit", TargetError, "too many"),
        (
            "received unexpected HTTP status: 500 Internal Server Error",
            TargetError,
            "not be pulled",
        ),
        (
            'Get "https://r.example/v2/": dial tcp: lookup r.example: no such host',
            TargetError,
            "cannot be reached",
        ),
        (
            "Get https://r/v2/: x509: certificate signed by unknown authority",
            TargetError,
            "reached",
        ),
        ("filesystem layer verification failed for digest sha256:aa", TargetError, "damaged"),
        (
            "no matching manifest for linux/arm64/v8 in the manifest list",
            NoImageError,
            "architecture",
        ),
    ],
)
def test_pulling(text: str, kind: type[TargetError], said: str) -> None:
    error = explain_pull(text, "IMAGE")
    assert type(error) is kind
    assert error.hint
    with pytest.raises(TargetError, match=said):
        raise error


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), "no container engine here"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "is down"),
        (PermissionError(errno.EACCES, "x"), "no permission"),
        (TimeoutError("timed out"), "does not answer in time"),
        (socket.gaierror(-2, "Name or service not known"), "is not known"),
        (ValueError("Expecting value: line 1"), "no usable answer"),
    ],
)
def test_connecting_names_the_cause_however_deep_it_is(cause: Exception, said: str) -> None:
    wrapped = RuntimeError("Connection aborted.", cause)
    outer = OSError("again")
    outer.__cause__ = wrapped
    for error in (cause, wrapped, outer):
        assert said in explain_connection(error, "unix:///x").message


def test_a_cause_that_causes_itself_ends() -> None:
    error, other = RuntimeError("round"), RuntimeError("and round")
    error.__context__, other.__context__ = other, error
    assert explain_connection(error, "unix:///x").hint


def test_foreign_text_is_made_harmless() -> None:
    text = "bad\x1b[2J\nhttps://user:s3cret@registry.example/v2/ " + "x" * 9000
    error = explain_pull(text, "IMAGE")
    assert "s3cret" not in error.message
    assert error.message.isprintable()
    assert len(error.message) < 1000


@pytest.mark.parametrize(
    "name", ["127.0.0.1:40349/envlock/other", "r.example/tls/digest", "r.example/a403/timeout"]
)
def test_a_name_is_no_reason(name: str) -> None:
    text = f"repository {name} not found: name unknown: not here"
    assert type(explain_pull(text, f"{name}:1")) is NoImageError


def test_a_status_is_a_reason() -> None:
    error = explain_pull("received unexpected HTTP status: 403 Forbidden", "r.example/a:1")
    assert "refuses access" in error.message
