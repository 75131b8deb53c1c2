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

from envlock.errors import ClosedPipeError, EnvlockError

INTERRUPTED, TERMINATED, BUG = 130, 143, 70


class _Terminated(BaseException):
    """SIGTERM or SIGHUP, as an exception, so that containers and temporary files are removed."""


def main() -> NoReturn:
    if "_ARGCOMPLETE" in os.environ:
        from envlock.cli.completion import complete  # noqa: PLC0415

        complete()
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a C locale cannot print every report
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    gc.freeze()  # else the interpreter walks all that was loaded once more before it ends
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; says on standard error what went wrong."""
    # Commands are short: the collector would walk what was just loaded again and again.
    gc.set_threshold(100_000)
    from envlock.cli import app  # noqa: PLC0415  # commands import this package

    try:
        code = app.run(arguments)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  # the one place where everything ends
        return _code_of(error)
    return code


def _code_of(error: BaseException) -> int:
    match error:
        case KeyboardInterrupt():
            return _said("interrupted", INTERRUPTED)
        case _Terminated():
            return _said("terminated", TERMINATED)
        case ClosedPipeError() | BrokenPipeError():
            return _quiet_after_closed_pipe()
        case SystemExit():  # argparse, after --help and --version
            return error.code if isinstance(error.code, int) else BUG
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
