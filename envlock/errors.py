"""Every way envlock can fail, and the exit code that says so.

One class per kind of failure; one code per class. 1 is never an error: it means findings at or
above the threshold, and only that. Only ``envlock.cli.main`` turns these into an exit.

    EnvlockError
    ├── UsageError            2   the call itself is wrong
    ├── NothingComparedError  3   there was nothing to compare or check
    ├── InputError            4   a lock, policy or input is bad, or output cannot be written
    ├── TargetError           5   the interpreter, image or engine cannot be used
    ├── BuildError            6   the image could not be built
    ├── ClosedPipeError     141   whoever read standard output has gone
    └── (anything else)      70   a bug in envlock
"""

from __future__ import annotations

from typing import ClassVar


class EnvlockError(Exception):
    """A failure with a message, and the next step for the person who reads it."""

    code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(EnvlockError):
    code = 2


class NothingComparedError(EnvlockError):
    code = 3


class InputError(EnvlockError):
    code = 4


class TargetError(EnvlockError):
    code = 5


class BuildError(EnvlockError):
    code = 6


class ClosedPipeError(EnvlockError):
    """``envlock diff … | head -1``: nobody reads on. Said by the code alone."""

    code = 141
