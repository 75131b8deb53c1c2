"""The Dockerfile way: a context of generated files, wheels and the user's project."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from uv import find_uv_bin

from envlock.errors import BuildError, InputError
from envlock.image.base import named_base
from envlock.image.choices import Flavour
from envlock.image.fetch import place
from envlock.image.plan import EPOCH, BuildPlan, make_plan
from envlock.image.render import render_context
from envlock.image.unpack import Entry, Link
from envlock.lock.model import Lock

_PYTHON = "name a base with exactly the lock's Python: --base REF"


@contextlib.contextmanager
def temporary_context(
    lock: Lock, plan: BuildPlan, wheels: Mapping[str, Path], project: Mapping[str, Entry]
) -> Iterator[Path]:
    """A context folder that needs no network, gone afterwards."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="envlock-context-"))
            context = Path(folder)
            write_context(context, render_context(lock, plan, wheels=True))
            place(wheels.values(), context / "wheels")
            if plan.workdir is not None:
                _write_project(context / "project", plan.workdir, project)
        except OSError as error:
            raise InputError(
                f"the build context cannot be written: {error.strerror or error}",
                hint="make room in the folder for temporary files, or name another with TMPDIR",
            ) from error
        yield context


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """What a step of ours said, with what a person can do about it."""
    try:
        yield
    except BuildError as error:
        if "the base has Python" in error.message:
            raise BuildError(error.message, hint=_PYTHON) from error
        if tool := re.search(r"No module named '([\w.]+)'", error.message):
            hint = (
                f"what is built from source needs {tool[1]}, which the lock does not have; "
                "install it in the environment, and capture again"
            )
            raise BuildError(error.message, hint=hint) from error
        if re.search(r"exec: \"[^\"]*python3\"|python3: not found", error.message):
            hint = f"the base has no python3 on its PATH; {_PYTHON}"
            raise BuildError(error.message, hint=hint) from error
        raise


def _write_project(folder: Path, workdir: str, project: Mapping[str, Entry]) -> None:
    folder.mkdir()
    for name, entry in project.items():
        path = folder / name.removeprefix(f"{workdir}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry.content, Link):
            path.symlink_to(entry.content.target)
        else:
            assert isinstance(entry.content, bytes)
            path.write_bytes(entry.content)
            path.chmod(0o755 if entry.executable else 0o644)


def write_context(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write generated files with fixed times and modes, and the installer beside them."""
    for name, content in files.items():
        path = folder / name
        path.write_bytes(content)
        path.chmod(0o644)
        os.utime(path, (EPOCH, EPOCH))
    program = folder / "uv"
    shutil.copyfile(find_uv_bin(), program)
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    os.utime(program, (EPOCH, EPOCH))


def context_files(
    lock: Lock,
    base: str | None,
    os_packages: Sequence[str],
    flavour: Flavour = Flavour.RUNTIME,
) -> Mapping[str, bytes]:
    """The generated files of a context that fetches by itself; asks no engine and no registry."""
    plan = make_plan(lock, named_base(base, lock, flavour), os_packages)
    return render_context(lock, plan, wheels=False)


def save_context(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder of a build context; raises InputError when it is there and not empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder} is not empty", hint="name another folder with -o")
        write_context(folder, files)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written: {error.strerror}", hint="name another folder with -o"
        ) from error
