"""What a recorded or traced run needs: by a child of envlock's own, or by torch in a target.

Recordings come from anybody, so they are read in a process of their own, with limits of memory
and time, and with nothing of the folder that the user is in on its path.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import envlock
from envlock.errors import InputError, TargetError
from envlock.targets.base import ProbeCall
from envlock.targets.local import LocalInterpreter
from envlock.targets.process import Completed, Limits, ProgramTimeoutError, run

_PROGRAM: Final = (
    "import sys; sys.path[:] = [p for p in sys.path if p] + [sys.argv.pop(1)]; "
    "from envlock.allocator.child import main; sys.exit(main())"
)
_FEWER: Final = "record fewer events (max_entries of _record_memory_history)"
_STDIN_BYTES: Final = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A question about a recording; sizes in bytes."""

    torch: str | None = None
    settings: Sequence[str] = ()
    card: int | None = None
    outside: int = 0
    memory_limit: int = 8 << 30
    time_limit_s: int = 600

    def options(self) -> list[str]:
        found = [f"--memory-limit={self.memory_limit}", f"--cpu-limit={self.time_limit_s}"]
        found += [f"--alloc-conf={text}" for text in self.settings]
        if self.torch:
            found.append(f"--torch={self.torch}")
        if self.card is not None:
            found.append(f"--card={self.card}")
        return [*found, f"--outside={self.outside}"]


def study_file(path: Path, asked: Asked) -> dict[str, Any]:
    """The answer (``envlock-memory/1``) about a snapshot or trace; ``-`` is standard input.

    Raises InputError for a file that is not one, or that needs more than the limits.
    """
    if str(path) == "-":
        data = sys.stdin.buffer.read(_STDIN_BYTES + 1)
        if len(data) > _STDIN_BYTES:
            raise InputError(
                f"standard input has more than {_STDIN_BYTES >> 20} MiB", hint="give it as a file"
            )
        return _study(["-"], data, "standard input", asked)
    if not path.is_file():
        problem = "not a regular file" if path.exists() else "does not exist"
        raise InputError(f"{path}: {problem}", hint="give the path of a snapshot or a trace")
    return _study([os.path.abspath(path)], b"", str(path), asked)  # noqa: PTH100 - links stay


def study_trace(trace: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """The same about an ``alloc-trace/1`` that is at hand. Raises InputError."""
    return _study(["-"], json.dumps(trace).encode(), "the trace", asked)


def _study(file: list[str], stdin: bytes, name: str, asked: Asked) -> dict[str, Any]:
    home = Path(envlock.__file__).resolve().parent.parent
    argv = [sys.executable, "-B", "-c", _PROGRAM, str(home), *asked.options(), "--", *file]
    try:
        # four times the CPU time: on a busy machine the clock runs faster than the process
        done = run(argv, limits=Limits(timeout_s=4.0 * asked.time_limit_s), stdin=stdin)
    except ProgramTimeoutError as error:
        raise InputError(f"{name}: reading it took too long", hint=_FEWER) from error
    return _answer(done, name, asked)


def _answer(done: Completed, name: str, asked: Asked) -> dict[str, Any]:
    if done.code > 128:
        raise InputError(
            f"{name}: the process that read it was ended by signal {done.code - 128}: it needs "
            f"more than {asked.memory_limit >> 20} MiB or {asked.time_limit_s} s, or is built to "
            "do harm",
            hint=f"{_FEWER}, or allow more with --memory-limit",
        )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and done.code == 0:
        return answer
    if isinstance(answer, dict) and isinstance(answer.get("error"), str):
        raise InputError(answer["error"], hint=answer.get("hint"))
    if b"MemoryError" in done.stderr:  # so early that nothing could be said in order
        raise InputError(
            f"{name}: reading it needs more than {asked.memory_limit >> 20} MiB",
            hint=f"{_FEWER}, or allow more with --memory-limit",
        )
    raise RuntimeError(f"the reader ended with code {done.code}: {done.stderr_tail(3)}")


def trace_function(python: Path, folder: Path, function: str, steps: int) -> dict[str, Any]:
    """Trace a function of the user's in a target's torch; its answer holds an ``alloc-trace/1``.

    Raises TargetError where it cannot be traced, with what the function's program said.
    """
    answer = LocalInterpreter(python).run_probe(
        ProbeCall(
            probe="trace_memory",
            arguments=[os.path.abspath(folder), function, str(steps)],  # noqa: PTH100
            timeout_s=600.0,
            whole_environment=True,
        )
    )
    trace = answer.get("trace")
    if not isinstance(trace, dict) or not isinstance(answer.get("torch"), str):
        raise TargetError(
            "the tracing probe's answer does not fit its schema",
            hint="something in the target changed the answer on its way",
        )
    return answer
