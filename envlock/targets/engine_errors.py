"""What went wrong with a container engine, in envlock's words. The only place that reads its texts.

The Engine API has status codes for few of these cases and no stable error codes, so this module has
to look for pieces of messages. They were read from Docker Engine 20.10 and 28 and from runc 1.1 and
1.2; a message that no row knows is passed on as it is, under a general headline.
"""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass

from envlock.errors import TargetError
from envlock.redact import safe_text

_SHOWN = 500
"""Characters of a foreign message that are passed on."""


class EngineGoneError(TargetError):
    """No engine answers: nothing that was asked of it can be believed to have failed by itself."""


class NoImageError(TargetError):
    """The engine does not have the image."""


class NoProgramError(TargetError):
    """The program to start is not in the image, or is no program."""


class ContainerEndedError(TargetError):
    """The container is not running (any more)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    pieces: tuple[str, ...]
    """Any of these in the engine's lower-cased message."""
    kind: type[TargetError]
    message: str
    hint: str


_STARTING = (
    _Row(
        pieces=("executable file not found", "no such file or directory"),
        kind=NoProgramError,
        message="{subject} has no such program (127)",
        hint="name the interpreter with --python, as a path inside the image",
    ),
    _Row(
        pieces=("permission denied", "exec format error", "is a directory", "not a directory"),
        kind=NoProgramError,
        message="{subject} has the program, but it cannot be executed (126)",
        hint="check its mode, and that the image is built for this machine's architecture",
    ),
    _Row(
        pieces=("could not select device driver", "nvidia-container", "no nvidia device"),
        kind=TargetError,
        message="the engine cannot give {subject} a GPU",
        hint="install the NVIDIA container toolkit on the engine's machine, or use --device cpu",
    ),
    _Row(
        pieces=("minimum memory limit", "invalid memory"),
        kind=TargetError,
        message="the memory limit for {subject} was refused",
        hint="give a larger limit",
    ),
    _Row(
        pieces=("is not running", "no such container", "is paused", "no such exec"),
        kind=ContainerEndedError,
        message="the container of {subject} has ended",
        hint="the image's interpreter may end at once, or somebody removed the container",
    ),
    _Row(
        pieces=("no space left",),
        kind=TargetError,
        message="the engine's disk is full",
        hint="free some space, for example with 'docker image prune'",
    ),
)

_PULLING = (
    _Row(
        pieces=(
            "unauthorized",
            "authentication required",
            "access denied",
            "requested access",
            "403 forbidden",
        ),
        kind=TargetError,
        message="the registry refuses access to {subject}",
        hint="check the name, and sign in with 'docker login' if the image is private",
    ),
    _Row(
        pieces=("toomanyrequests", "too many requests"),
        kind=TargetError,
        message="the registry refuses {subject} for now: too many requests",
        hint="wait, or sign in with 'docker login' for a higher limit",
    ),
    _Row(
        pieces=("manifest unknown", "not found", "no such image", "does not exist"),
        kind=NoImageError,
        message="{subject} is not in its registry",
        hint="check the name and the tag",
    ),
    _Row(
        pieces=("no matching manifest", "does not match the specified platform"),
        kind=NoImageError,
        message="{subject} exists, but not for this machine's architecture",
        hint="choose an image that is built for it",
    ),
    _Row(
        pieces=(
            "verification failed",
            "digest",
            "unexpected eof",
            "checksum",
            "failed to register",
        ),
        kind=TargetError,
        message="{subject} arrived damaged: the registry sent other bytes than it announced",
        hint="try again; if it stays, the registry or a proxy before it is broken",
    ),
    _Row(
        pieces=(
            "no such host",
            "connection refused",
            "timeout",
            "timed out",
            "x509",
            "tls",
            "dial tcp",
        ),
        kind=TargetError,
        message="the registry of {subject} cannot be reached",
        hint="check the network, proxies and certificates of the engine's machine",
    ),
    _Row(
        pieces=("no space left",),
        kind=TargetError,
        message="the engine's disk is full",
        hint="free some space, for example with 'docker image prune'",
    ),
)


def explain_start(text: str, subject: str) -> TargetError:
    """Why a container or a program in it could not be started."""
    return _explain(_STARTING, text, f"the engine could not start {subject}", subject)


def explain_pull(text: str, subject: str) -> TargetError:
    """Why an image could not be pulled."""
    return _explain(_PULLING, text, f"{subject} could not be pulled", subject)


def explain_push(text: str, subject: str) -> TargetError:
    """Why an image could not be pushed: registries use the same words both ways."""
    return _explain(_PULLING, text, f"{subject} could not be pushed", subject)


def _explain(rows: tuple[_Row, ...], text: str, headline: str, subject: str) -> TargetError:
    # An image may be called tls/digest and a registry listen on port 40349: names explain nothing.
    name = re.sub(r"(@.*|:[^:/]*)$", "", subject.lower())
    low, said = text.lower().replace(name, ""), _one_line(text)
    for row in rows:
        if any(piece in low for piece in row.pieces):
            message = row.message.format(subject=subject)
            return row.kind(f"{message}: {said}", hint=row.hint)
    return TargetError(f"{headline}: {said}", hint="the engine's own log may say more")


def explain_connection(error: BaseException, address: str) -> TargetError:
    """Why nobody answers at the engine's address."""
    causes = list(_causes(error))
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if numbers & {errno.EACCES, errno.EPERM}:
        return EngineGoneError(
            f"no permission to talk to the container engine at {address}",
            hint="run as a member of the group docker, or as root",
        )
    if numbers & {errno.ENOENT, errno.ENOTDIR}:
        return EngineGoneError(
            f"no container engine here: {address} does not exist",
            hint="install one with scripts/install-engine.sh, or set DOCKER_HOST",
        )
    if numbers & {errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE}:
        return EngineGoneError(
            f"the container engine at {address} is down: nobody answers",
            hint="start it with scripts/start-engine.sh, or 'systemctl start docker'",
        )
    if any(isinstance(cause, TimeoutError) or "timed out" in str(cause) for cause in causes):
        return EngineGoneError(
            f"the container engine at {address} does not answer in time",
            hint="see whether 'docker version' hangs too; restarting the engine may help",
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return EngineGoneError(
            f"the container engine's host in {address} is not known",
            hint="correct DOCKER_HOST",
        )
    return EngineGoneError(
        f"no usable answer from a container engine at {address}: {_one_line(str(error))}",
        hint="check with 'docker version' that this address is a Docker Engine",
    )


def _one_line(text: str) -> str:
    return safe_text(" ".join(text[: 2 * _SHOWN].split()), lines=1, width=_SHOWN)


def _causes(error: BaseException) -> list[BaseException]:
    """The error and all that led to it; requests and urllib3 also put causes into ``args``."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and not any(one is other for other in found):
            found.append(one)
            waiting += [one.__cause__, one.__context__, *one.args, getattr(one, "reason", None)]
    return found
