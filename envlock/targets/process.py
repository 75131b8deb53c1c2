"""The only door to other programs: argument lists, a time limit, bounded output, a killed group.

No shell, ever. Every program runs in a session of its own with a closed standard input (or the
bytes given), so that a time limit, an interrupt or a flood ends it with all its children.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from envlock.errors import TargetError

log = logging.getLogger(__name__)

_CHUNK = 65536
_GRACE_S = 0.3
"""How long a pipe is still read after its program ended: a grandchild may hold it open for ever."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    timeout_s: float
    stdout_bytes: int = 8 << 20
    """More than this ends the program: an answer is never that long."""
    stderr_bytes: int = 1 << 20
    """The last this many bytes are kept; more is read and dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    argv: tuple[str, ...]
    code: int
    """As the shell has it: 128 + N for a program that signal N ended."""
    stdout: bytes
    stderr: bytes

    def stderr_tail(self, lines: int = 12) -> str:
        text = self.stderr.decode("utf-8", "replace").strip()
        return "\n".join(text.splitlines()[-lines:])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    argv: list[str]
    timeout_s: float
    stdin: bytes
    env: Mapping[str, str] | None
    cwd: Path | None
    on_stdout: Callable[[bytes], None]
    on_stderr: Callable[[bytes], None]
    meanwhile: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        return Path(self.argv[0]).name


class ProgramTimeoutError(TargetError):
    """The program ran past its limit and was ended, with all its children."""


class ProgramFloodError(TargetError):
    """The program wrote more than any answer could be, and was ended."""


def find_program(name: str, *, hint: str) -> Path:
    """The absolute path of a program on PATH.

    Raises TargetError, naming the PATH that was searched.
    """
    found = shutil.which(name)
    if found is None:
        raise TargetError(f"{name} was not found on PATH ({os.environ.get('PATH', '')})", hint=hint)
    return Path(found)


def run(  # noqa: PLR0913  # all but the first two have a default
    argv: Sequence[str | Path],
    *,
    limits: Limits,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Completed:
    """Run to the end and return code and output, whatever the code is.

    ``on_stderr`` sees standard error as it comes, besides. ``meanwhile`` is called once, when the
    program has its input: work that can be done while it runs.

    Raises TargetError when the program cannot be started, ProgramTimeoutError, ProgramFloodError.
    """
    out, err = bytearray(), bytearray()

    def on_stdout(chunk: bytes) -> None:
        out.extend(chunk)
        if len(out) > limits.stdout_bytes:
            raise ProgramFloodError(
                f"{Path(str(argv[0])).name} wrote more than {limits.stdout_bytes >> 20} MiB "
                "to standard output and was stopped",
                hint="run it by hand to see what it prints",
            )

    def keep_stderr(chunk: bytes) -> None:
        err.extend(chunk)
        del err[: -limits.stderr_bytes]
        if on_stderr is not None:
            on_stderr(chunk)

    job = _Job(
        argv=[str(a) for a in argv],
        timeout_s=limits.timeout_s,
        stdin=stdin,
        env=env,
        cwd=cwd,
        on_stdout=on_stdout,
        on_stderr=keep_stderr,
        meanwhile=meanwhile,
    )
    code = _drive(job)
    return Completed(argv=tuple(job.argv), code=code, stdout=bytes(out), stderr=bytes(err))


def stream(
    argv: Sequence[str | Path],
    *,
    limits: Limits,
    on_output: Callable[[bytes], None],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> int:
    """Run to the end, handing both streams over as they come; returns the code. Raises as run."""
    return _drive(
        _Job(
            argv=[str(a) for a in argv],
            timeout_s=limits.timeout_s,
            stdin=b"",
            env=env,
            cwd=cwd,
            on_stdout=on_output,
            on_stderr=on_output,
        )
    )


def _drive(job: _Job) -> int:
    log.debug("run: %s", shlex.join(job.argv))
    with _started(job) as process:
        deadline = time.monotonic() + job.timeout_s
        assert process.stdin
        assert process.stdout
        assert process.stderr
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ, job.on_stdout)
            waiting.register(process.stderr, selectors.EVENT_READ, job.on_stderr)
            if job.stdin:
                os.set_blocking(process.stdin.fileno(), False)
                waiting.register(process.stdin, selectors.EVENT_WRITE)
            else:
                process.stdin.close()
                _meanwhile(job)
            _pump(process, waiting, job, deadline)
        code = process.wait()
    return 128 - code if code < 0 else code


def _pump(
    process: subprocess.Popen[bytes],
    waiting: selectors.BaseSelector,
    job: _Job,
    deadline: float,
) -> None:
    """Move bytes until both pipes close, the program ended, or the time is up."""
    stdin = memoryview(job.stdin)
    ended_at: float | None = None
    while waiting.get_map():
        now = time.monotonic()
        if now >= deadline:
            raise ProgramTimeoutError(
                f"{job.name} did not finish within {job.timeout_s:g} s and was stopped",
                hint="see what it waits for by running it by hand, or raise the limit",
            )
        if ended_at is None and process.poll() is not None:
            ended_at = now
        if ended_at is not None and now - ended_at > _GRACE_S:
            return
        for key, _ in waiting.select(min(0.1, deadline - now)):
            if key.fileobj is process.stdin:
                stdin = _feed(process.stdin, waiting, stdin)
                if not stdin:
                    _meanwhile(job)
                continue
            chunk = os.read(key.fd, _CHUNK)
            if chunk:
                key.data(chunk)
            else:
                waiting.unregister(key.fileobj)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
    if process.poll() is None:
        raise ProgramTimeoutError(
            f"{job.name} closed its output but did not end within {job.timeout_s:g} s",
            hint="see what it waits for by running it by hand",
        )


def _meanwhile(job: _Job) -> None:
    if job.meanwhile is not None:
        job.meanwhile()


def _feed(pipe: IO[bytes], waiting: selectors.BaseSelector, data: memoryview) -> memoryview:
    try:
        written = os.write(pipe.fileno(), data[:_CHUNK])
    except BrokenPipeError:  # it does not want to read; its code and output tell why
        written = len(data)
    data = data[written:]
    if not data:
        waiting.unregister(pipe)
        pipe.close()
    return data


@contextlib.contextmanager
def _started(job: _Job) -> Iterator[subprocess.Popen[bytes]]:
    try:
        process = subprocess.Popen(
            job.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if job.env is None else dict(job.env),
            cwd=job.cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise TargetError(
            f"{job.argv[0]} could not be started: {error.strerror}",
            hint="check that the path is right and that the file may be executed",
        ) from error
    try:
        yield process
    finally:
        _end_group(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe and not pipe.closed:
                with contextlib.suppress(OSError):
                    pipe.close()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the whole session: politely, then not. What is already gone is no fault."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None and number is not signal.SIGKILL:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
