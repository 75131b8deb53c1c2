"""An image as a target: one container without network, rights or mounts, and programs run inside it.

The container's own program is the image's interpreter, asleep. Probes are executed beside it, so that
one start serves several calls. An image is foreign: whatever it does, the calls end within their
limits and nothing of it is left on the engine.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from envlock.errors import TargetError
from envlock.targets.answer import limits_named, new_token, probe_arguments, read_answer
from envlock.targets.base import ProbeCall
from envlock.targets.engine import Engine, ImageInfo
from envlock.targets.engine_errors import ContainerEndedError, EngineGoneError, NoProgramError
from envlock.targets.hijack import Output
from envlock.targets.process import Completed, Limits, ProgramFloodError, ProgramTimeoutError
from envlock.targets.sandbox import ContainerSpec

if TYPE_CHECKING:
    from typing_extensions import Self

PYTHON_LABEL = "org.envlock.python"
"""An image names its interpreter with this label: a path, or a name on its PATH."""
INTERPRETERS = ("python3", "python")

LIFETIME_S = 7200
"""The sleeping program ends by itself, and the engine then removes the container: the last resort
when envlock was killed without a chance to clean up."""

_SLEEP = f"import time; time.sleep({LIFETIME_S})"
# Without site: neither sitecustomize nor .pth files of the image run in the sleeping program.
_IDLE = ("-I", "-S", "-c", _SLEEP)
_WORTH_A_LOOK = (126, 127, 137)
"""Exit codes of a program that was killed, or that an ending container could not start."""
_STOPPED = b"in a stopped container"
"""What runc says then; its exit code is 126."""
_LOG_DELAY_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerOptions:
    python: str | None = None
    """Interpreter inside the image; None: the image's label, then ``INTERPRETERS`` on its PATH."""
    memory_bytes: int = 4 << 30
    shm_bytes: int = 1 << 30
    gpus: bool = False


@dataclass(kw_only=True, slots=True)
class ImageTarget:
    """A context manager: enter to start the container, leave to have it gone."""

    engine: Engine
    image: ImageInfo
    options: ContainerOptions = field(default_factory=ContainerOptions)
    interpreter: str = field(default="", init=False)
    """The one that was found, once started."""
    _container: str | None = field(default=None, init=False)

    def describe(self) -> str:
        return f"image:{self.image.reference}"

    @property
    def set_by_envlock(self) -> tuple[str, ...]:
        """Facts that the run options decide and the image does not: never compared."""
        return (
            "limits.cgroup_memory_bytes",
            "limits.shm_bytes",
            "limits.devices",
            "preflight",
            *(f"env.{name}" for name in thread_pin(self.image)),
            *(("torch.num_threads",) if thread_pin(self.image) else ()),
        )

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException as error:
            answered = isinstance(error, TargetError) and not isinstance(error, EngineGoneError)
            self._discard(aborted=not answered)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._discard()

    def run_probe(self, call: ProbeCall) -> dict[str, Any]:
        token, label = new_token(), self.describe()
        if call.meanwhile is not None:  # nothing runs beside it: an exec is quick, a start is not
            call.meanwhile()
        with limits_named(label):
            done = self.run(
                [self.interpreter, *probe_arguments(call, token, bytecode=True)],
                stdin=call.source(),
                limits=Limits(timeout_s=call.timeout_s),
                on_stderr=call.on_stderr,
            )
        return read_answer(done, call, token, label)

    def run(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        stdin: bytes = b"",
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> Completed:
        """Run a program in the container, to its end, whatever its exit code is.

        After a time limit or a flood the container is gone, and with it all that the program started.
        """
        if self._container is None:
            raise TargetError(
                f"the container of {self.image.reference} is not running",
                hint="it was stopped by an earlier failure; start again",
            )
        output = Output(name=self._subject(argv[0]), limits=limits, on_stderr=on_stderr)
        try:
            done = self.engine.execute(self._container, argv, stdin=stdin, output=output)
        except (ProgramTimeoutError, ProgramFloodError):
            self._discard()
            raise
        except ContainerEndedError as error:
            raise self._cause_of_end() or error from error
        if done.code in _WORTH_A_LOOK and (cause := self._looked_up(done)) is not None:
            raise cause
        return done

    def _looked_up(self, done: Completed) -> TargetError | None:
        """The runtime may know that a container stopped a moment before the engine's log does."""
        until = time.monotonic() + (_LOG_DELAY_S if _STOPPED in done.stdout else 0)
        while (cause := self._cause_of_end()) is None and time.monotonic() < until:
            time.sleep(0.1)
        return cause

    def _start(self) -> None:
        failures: list[NoProgramError] = []
        runtime = self._plain_runtime()
        for interpreter in candidates(self.image, self.options.python):
            self._container = f"envlock-{secrets.token_hex(8)}"
            spec = ContainerSpec(
                name=self._container,
                image_id=self.image.image_id,
                argv=(interpreter, *_IDLE),
                environment=added_environment(self.image),
                memory_bytes=self.options.memory_bytes,
                shm_bytes=self.options.shm_bytes,
                gpus=self.options.gpus,
                runtime=runtime,
            )
            try:
                self.engine.start(spec, subject=self._subject(interpreter))
            except NoProgramError as error:
                failures.append(error)
                self._discard()
                continue
            self.interpreter = interpreter
            return
        raise failures[0]

    def _plain_runtime(self) -> str | None:
        """Where the NVIDIA runtime is the default, an image's ENV alone would bring GPUs in."""
        if self.options.gpus or self.engine.default_runtime() != "nvidia":
            return None
        return "runc"

    def _discard(self, *, aborted: bool = False) -> None:
        if self._container is not None:
            self.engine.discard(self._container, aborted=aborted)
            self._container = None

    def _subject(self, program: str) -> str:
        return f"{program} in {self.image.reference}"

    def _cause_of_end(self) -> TargetError | None:
        """Why the container ran out of memory or ended, from the engine's log; None if it did not."""
        events = self.engine.history(self._container) if self._container else []
        if any(what == "oom" for what, _ in events):
            self._discard()
            return TargetError(
                f"image:{self.image.reference} ran out of memory "
                f"(limit {self.options.memory_bytes >> 20} MiB)",
                hint="give it more with --memory",
            )
        codes = [details.get("exitCode") for what, details in events if what == "die"]
        if not codes:
            return None
        self._discard()
        return TargetError(
            f"{self._subject(self.interpreter)} ended by itself with exit code {codes[-1]}",
            hint="it does not behave like a Python interpreter: run it by hand, or name another "
            "one with --python",
        )


def candidates(image: ImageInfo, python: str | None) -> tuple[str, ...]:
    """Interpreters to try, as given to the engine: it looks names up on the image's own PATH."""
    if python is not None:
        return (python,)
    label = image.labels.get(PYTHON_LABEL)
    return (label,) if label else INTERPRETERS


def added_environment(image: ImageInfo) -> dict[str, str]:
    """What envlock adds to the image's variables.

    An image without bytecode would compile torch anew for every program that imports it: 5 s each
    time. Below /tmp it is kept for as long as the container lives.
    """
    return {**thread_pin(image), "PYTHONPYCACHEPREFIX": "/tmp/envlock-pycache"}  # noqa: S108


def thread_pin(image: ImageInfo) -> dict[str, str]:
    """One thread, so that figures repeat; an image that sets its own number keeps it."""
    return {} if "OMP_NUM_THREADS" in image.env else {"OMP_NUM_THREADS": "1"}
