"""The command line: a thin shell. Commands parse, call one core function, render, return a code.

Only ``main`` exits, and only here do exceptions become exit codes (``envlock.errors``).
"""

from __future__ import annotations

import gc
import io
import logging
import os
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

from typer.exceptions import Abort, Exit, TyperException

from envlock.errors import ClosedPipeError, EnvlockError

INTERRUPTED, TERMINATED, BUG = 130, 143, 70


class _Terminated(BaseException):
    """SIGTERM or SIGHUP, as an exception, so that containers and temporary files are removed."""


def main() -> NoReturn:
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a C locale cannot print every report
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; says on standard error what went wrong."""
    # Commands are short: the collector would walk what was just loaded again and again.
    gc.set_threshold(100_000)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # see targets/local.py
    from envlock.cli.app import app  # noqa: PLC0415  # commands import this package

    try:
        code = app(arguments, prog_name="envlock", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  # the one place where everything ends
        return _code_of(error)
    return code if isinstance(code, int) else 0


def _code_of(error: BaseException) -> int:  # noqa: PLR0911  # one line a kind
    match error:
        case KeyboardInterrupt() | Abort():
            return _said("interrupted", INTERRUPTED)
        case _Terminated():
            return _said("terminated", TERMINATED)
        case ClosedPipeError() | BrokenPipeError():
            return _quiet_after_closed_pipe()
        case Exit():
            return error.exit_code
        case TyperException():
            return _usage(error)
        case EnvlockError():
            return _failed(error)
        case Exception():
            return _bug(error)
        case _:
            raise error


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _failed(error: EnvlockError) -> int:
    from envlock.redact import safe_text  # noqa: PLC0415

    if logging.getLogger("envlock").isEnabledFor(logging.DEBUG):
        _trace(error)
    _print(f"error: {safe_text(error.message, width=1000)}")
    if error.hint:
        _print(f"\nhint: {safe_text(error.hint, width=1000)}")
    return error.code


def _bug(error: Exception) -> int:
    from envlock.redact import safe_text  # noqa: PLC0415

    if logging.getLogger("envlock").isEnabledFor(logging.DEBUG):
        _trace(error)
    what = safe_text(f"{type(error).__name__}: {error}", lines=1)
    _print(
        f"error: this is a bug in envlock: {what}\n\nhint: run it again with --debug and "
        "report what it prints"
    )
    return BUG


def _trace(error: BaseException) -> None:
    """Frames without local variables: those hold other people's environment."""
    from envlock.redact import safe_text  # noqa: PLC0415

    _print(safe_text("".join(traceback.format_exception(error)), lines=200))


def _usage(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    _print(f"error: {error.format_message()}")
    if context is not None:
        _print(f"\nhint: {context.get_usage()}\n      {context.command_path} --help has examples")
    return 2


def _said(text: str, code: int) -> int:
    _print(text)
    return code


def _print(text: str) -> None:
    try:
        print(text, file=sys.stderr)  # noqa: T201
    except OSError:  # nobody is there to read it; the code still says it
        return


def _quiet_after_closed_pipe() -> int:
    """``envlock diff … | head -1``: no message, and no second failure when Python flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ClosedPipeError.code
