"""An interpreter of this machine as a target, and the choice of the one that is meant."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envlock.errors import TargetError
from envlock.redact import redact
from envlock.targets.answer import limits_named, new_token, probe_arguments, read_answer
from envlock.targets.base import ProbeCall
from envlock.targets.environment import passed_on
from envlock.targets.process import Limits, run

_ON_WINDOWS = os.name == "nt"


@dataclass(frozen=True, slots=True)
class LocalInterpreter:
    """Runs probes in an interpreter with what they measure of envlock's own environment."""

    path: Path

    @property
    def set_by_envlock(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return redact(f"python:{self.path}")

    def run_probe(self, call: ProbeCall) -> dict[str, Any]:
        self._check()
        token, label = new_token(), self.describe()
        # An empty folder of our own: with a program on standard input, Python imports from the
        # working directory first, and a json.py lying there would run instead of the real one.
        with tempfile.TemporaryDirectory(prefix="envlock-") as folder, limits_named(label):
            done = run(
                [self.path, *probe_arguments(call, token)],
                limits=Limits(timeout_s=call.timeout_s),
                stdin=call.source(),
                cwd=Path(folder),
                env=_environment(call),
                on_stderr=call.on_stderr,
                meanwhile=call.meanwhile,
            )
        return read_answer(done, call, token, label)

    def _check(self) -> None:
        hint = "name the interpreter with --python, for example --python /usr/bin/python3"
        if not self.path.exists():
            raise TargetError(f"{redact(str(self.path))} does not exist", hint=hint)
        if not self.path.is_file():
            raise TargetError(f"{redact(str(self.path))} is not a file", hint=hint)
        if not os.access(self.path, os.X_OK):
            raise TargetError(f"{redact(str(self.path))} may not be executed", hint=hint)


def _environment(call: ProbeCall) -> dict[str, str]:
    """PWD keeps saying where the person stands, since the probe is started in an empty folder."""
    variables = dict(os.environ) if call.whole_environment else passed_on(os.environ)
    with contextlib.suppress(FileNotFoundError):  # a folder that was removed meanwhile
        variables["PWD"] = str(Path.cwd())
    return variables


def find_interpreter(explicit: str | None = None) -> tuple[Path, str]:
    """The interpreter that is meant, and why it is that one.

    In this order: the one named, the active virtual environment, the active conda environment,
    python3 on PATH, envlock's own. Raises TargetError when the one named is not there.
    """
    if explicit is not None:
        return _named(explicit), "given with --python"
    passed_over = ""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = os.environ.get(variable)
        if not folder:
            continue
        found = _inside(Path(folder))
        if found is not None:
            return found, f"the active environment (${variable}){passed_over}"
        passed_over += f"; ${variable} names a folder without a Python"
    on_path = shutil.which("python3") or shutil.which("python")
    if on_path is not None:
        return Path(on_path), f"python3 on PATH{passed_over}"
    return Path(sys.executable), f"envlock's own interpreter{passed_over}"


def _named(text: str) -> Path:
    """A path, the folder of an environment, or a program on PATH."""
    path = Path(text).expanduser()
    if path.is_dir():
        inside = _inside(path)
        if inside is None:
            raise TargetError(
                f"{redact(text)} is a folder without a Python in it",
                hint="name an interpreter, or the folder of a virtual or conda environment",
            )
        return inside
    if path.exists() or path.name != text:
        return Path(os.path.abspath(path))  # noqa: PTH100 - a venv's python is a link: not followed
    found = shutil.which(text)
    if found is None:
        raise TargetError(
            f"{redact(text)} is neither a file nor a program on PATH",
            hint="name the interpreter with its path",
        )
    return Path(found)


def _inside(folder: Path) -> Path | None:
    names = ("Scripts/python.exe", "python.exe") if _ON_WINDOWS else ("bin/python3", "bin/python")
    return next((folder / name for name in names if (folder / name).is_file()), None)
