"""Build an image from a lock: gather, render, build, record. The Dockerfile way."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from uv import find_uv_bin

from envlock.errors import BuildError, InputError
from envlock.image import buildkit
from envlock.image.base import BaseChoice, chosen_base, named_base
from envlock.image.fetch import Shelves, cache_folder, gather, place
from envlock.image.plan import BuildPlan, check_buildable, make_plan, python_version
from envlock.image.render import render_context
from envlock.lock.model import BaseImage, Lock
from envlock.lock.pip_config import read_pip_config
from envlock.targets.engine import Engine

EPOCH = 315532800
"""1980-01-01: the one time of every generated file, as in the image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    base: BaseChoice
    shelves: Shelves
    tag: str | None = None
    os_packages: Sequence[str] = ()
    ca_bundle: Path | None = None
    no_cache: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    image_id: str
    plan: BuildPlan
    lock: Lock
    """With what this build recorded in ``[tool.envlock.image]``."""
    seconds: Mapping[str, float] = field(default_factory=dict)


def build_image(lock: Lock, options: BuildOptions, say: Callable[[str], None]) -> Built:
    """Raises BuildError, or TargetError when the engine is down. Nothing is left of a failure."""
    seconds: dict[str, float] = {}
    check_buildable(lock)
    engine = Engine.connect()
    with chosen_base(options.base, python_version(lock), engine, say) as base:
        plan = make_plan(lock, base, options.os_packages)
        say(f"base {base.reference}: {base.origin}")
        started = time.monotonic()
        wheels = gather(plan.artifacts, options.shelves, say)
        seconds["gather"] = round(time.monotonic() - started, 2)
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="envlock-context-") as folder:
            context = Path(folder)
            write_context(context, render_context(lock, plan, wheels=True))
            place(wheels.values(), context / "wheels")
            image_id = _run(context, options, say)
        seconds["build"] = round(time.monotonic() - started, 2)
    return Built(
        image_id=image_id,
        plan=plan,
        lock=_recorded(lock, plan, engine, image_id),
        seconds=seconds,
    )


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


def context_files(lock: Lock, base: str | None, os_packages: Sequence[str]) -> Mapping[str, bytes]:
    """The generated files of a context that fetches by itself; asks no engine and no registry."""
    plan = make_plan(lock, named_base(base, lock), os_packages)
    return render_context(lock, plan, wheels=False)


def save_context(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder of a build context; raises InputError when it is there and not empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder} is not empty", hint="name another folder with -o")
        write_context(folder, files)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error


def shelves_for(lock: Path, wheelhouse: Path | None, *, offline: bool) -> Shelves:
    """Where the files of a lock may already be: given, beside it, in pip's local folders."""
    if wheelhouse is not None and not wheelhouse.is_dir():
        raise InputError(f"{wheelhouse} is not a folder", hint="give the folder with the wheels")
    links = read_pip_config(None, os.environ).find_links
    local = [Path(link.removeprefix("file://")) for link in links if "://" not in link[5:]]
    given = [wheelhouse] if wheelhouse else []
    folders = [*given, lock.parent, *(folder for folder in local if folder.is_dir())]
    return Shelves(folders=folders, cache=cache_folder() / "wheels", offline=offline)


def _run(context: Path, options: BuildOptions, say: Callable[[str], None]) -> str:
    secrets = {"ca_bundle": options.ca_bundle} if options.ca_bundle else {}
    try:
        return buildkit.build(
            context,
            tag=options.tag,
            secrets=secrets,
            network="host" if options.os_packages else "none",
            no_cache=options.no_cache,
            on_progress=say,
        )
    except BuildError as error:
        if "the base has Python" in error.message:
            raise BuildError(
                error.message, hint="name a base with exactly the lock's Python: --base REF"
            ) from error
        raise


def _recorded(lock: Lock, plan: BuildPlan, engine: Engine, image_id: str) -> Lock:
    base = BaseImage(
        reference=plan.base.name,
        digest=plan.base.digest,
        layers=list(plan.base.layers),
    )
    image = lock.table.image.model_copy(
        update={"base": base, "id": image_id, "engine": engine.describe()}
    )
    return replace(lock, table=lock.table.model_copy(update={"image": image}))
