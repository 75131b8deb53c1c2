"""Build a context folder with BuildKit, through whichever docker client of this machine can.

The engine's API alone speaks the classic builder only. A client is able when ``docker buildx`` works,
or when it is old enough (before 23) to have BuildKit built in; machines have both kinds side by side.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from envlock.errors import BuildError, EnvlockError, InputError, TargetError
from envlock.redact import safe_text
from envlock.targets.engine import Engine
from envlock.targets.process import Limits, run, stream

_LOOK = Limits(timeout_s=10.0, stdout_bytes=1 << 20)
_BUILD_S = 7200.0
_STEP_LINES = 20
"""Last lines of the failing step that a message shows."""
_LINE = 1000
"""Characters of one line that are kept."""

_STEP = re.compile(r"#(?P<step>[0-9]+) (?!sha256:)")
_FAILED = re.compile(r"#(?P<step>[0-9]+) ERROR\b")
_TIMED = re.compile(r"#[0-9]+ (?:[0-9]+\.[0-9]+ )?")
# The client's words when its connection, and not an instruction, failed.
_CONNECTION = re.compile(
    r"Cannot connect to the Docker daemon|unexpected EOF|error reading from server: EOF"
    r"|transport is closing|connection reset by peer|broken pipe|code = Unavailable"
    r"|server did not provide an image ID",
    re.IGNORECASE,
)
_PASSED_ON = re.compile(
    r"PATH|HOME|TMPDIR|SSH_AUTH_SOCK|XDG_[A-Z_]+|DOCKER_[A-Z_]+|(?:HTTPS?|NO|ALL)_PROXY",
    re.IGNORECASE,
)

Network = Literal["none", "default", "host"]


@dataclass(kw_only=True, slots=True)
class Progress:
    """Cuts the client's output into lines, hands them on, and keeps what a failure message needs."""

    show: Callable[[str], None]
    failed_step: str | None = None
    lost_connection: bool = False
    _rest: bytes = b""
    _last: deque[str] = field(default_factory=lambda: deque(maxlen=_STEP_LINES))
    _steps: dict[str, deque[str]] = field(default_factory=dict)

    def feed(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_LINE:]
        for line in lines:
            self._take(safe_text(line[:_LINE], lines=1, width=_LINE))

    def close(self) -> None:
        self.feed(b"\n")

    def _take(self, line: str) -> None:
        if not line:
            return
        self.show(line)
        self._last.append(line)
        if step := _STEP.match(line):
            lines = self._steps.setdefault(step["step"], deque(maxlen=_STEP_LINES))
            lines.append(_TIMED.sub("", line, count=1))
        if failed := _FAILED.match(line):
            self.failed_step = failed["step"]
        elif _CONNECTION.search(line):
            self.lost_connection = True

    def tail(self) -> str:
        """The failing step's last lines; the last of all where no step is marked."""
        return "\n".join(self._steps[self.failed_step] if self.failed_step else self._last)


def build(  # noqa: PLR0913 - keyword-only, one per option of the program it calls
    context: Path,
    *,
    tag: str | None,
    secrets: Mapping[str, Path],
    network: Network,
    no_cache: bool,
    on_progress: Callable[[str], None],
) -> str:
    """Build ``context/Dockerfile`` and return the image's id; the tag is set after success only.

    ``secrets`` are files, by the id that the Dockerfile mounts. Raises BuildError for a failing
    instruction, TargetError when no client can build or the engine was lost.
    """
    engine = Engine.connect()
    client = find_client(os.environ)
    progress = Progress(show=on_progress)
    with tempfile.TemporaryDirectory(prefix="envlock-build-") as folder:
        id_file = Path(folder) / "id"
        options = [
            *("--progress", "plain", "--network", network, "--iidfile", str(id_file)),
            *(["--no-cache"] if no_cache else []),
            *secret_options(secrets),
        ]
        code = stream(
            [*client, *options, "--", context.resolve()],
            limits=Limits(timeout_s=_BUILD_S),
            on_output=progress.feed,
            env=client_environment(os.environ),
        )
        progress.close()
        if code != 0:
            raise _failure(progress, code)
        image_id = id_file.read_text("ascii").strip()
    if tag is not None:
        engine.tag(image_id, tag)
    return engine.resolve(image_id).image_id


def find_client(environ: Mapping[str, str]) -> list[str]:
    """The command line, up to its options, of the first docker client on PATH that has BuildKit."""
    env = client_environment(environ)
    tried: list[str] = []
    for program in _all_on_path("docker", environ.get("PATH", "")):
        tried.append(str(program))
        if run([program, "buildx", "version"], limits=_LOOK, env=env).code == 0:
            # The builder of the docker driver: others have a loopback address of their own, and
            # keep what they build to themselves.
            return [str(program), "buildx", "build", "--builder", "default", "--load"]
        asked = run([program, "build", "--help"], limits=_LOOK, env=env)
        if asked.code == 0 and b"--secret" in asked.stdout:
            return [str(program), "build"]
    raise TargetError(
        f"no docker client here can build with BuildKit (tried {', '.join(tried) or 'none'})",
        hint="install the client's buildx plugin, or docker.io from the distribution",
    )


def client_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the client needs to reach its engine, and nothing that could steer the build."""
    passed = {name: value for name, value in environ.items() if _PASSED_ON.fullmatch(name)}
    for name in ("DOCKER_DEFAULT_PLATFORM", "DOCKER_CONTENT_TRUST"):
        passed.pop(name, None)
    # Attestations carry times and would make each build another manifest.
    return {**passed, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


def secret_options(secrets: Mapping[str, Path]) -> list[str]:
    options: list[str] = []
    for name, path in sorted(secrets.items()):
        source = str(path.resolve())
        if any(mark in source for mark in ',"\n\r'):  # the option's value is a line of CSV
            raise InputError(
                f"the file of build secret {name} has a comma, quote or line end in its path",
                hint="copy it to a plainer path",
            )
        options += ["--secret", f"id={name},src={source}"]
    return options


def _failure(progress: Progress, code: int) -> EnvlockError:
    """An instruction that failed, or an engine that went away: the client's code is the same."""
    try:
        Engine.connect().ping()
    except TargetError as gone:
        return TargetError(f"the engine was lost during the build: {gone.message}", hint=gone.hint)
    if progress.lost_connection and progress.failed_step is None:
        return TargetError(
            f"the connection to the engine was lost during the build:\n{progress.tail()}",
            hint="build again: finished steps are cached",
        )
    return BuildError(
        f"the build failed (code {code}):\n{progress.tail()}",
        hint="the lines above are the failing step's; --verbose shows the whole build",
    )


def _all_on_path(name: str, path: str) -> list[Path]:
    """Every program of that name, each file once."""
    found: dict[Path, Path] = {}
    for folder in path.split(os.pathsep):
        program = Path(folder) / name
        if folder and program.is_file() and os.access(program, os.X_OK):
            found.setdefault(program.resolve(), program)
    return list(found.values())
