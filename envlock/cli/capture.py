from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Option
from envlock.cli.talk import counter, say
from envlock.errors import UsageError

if TYPE_CHECKING:
    from envlock.lock.model import Lock
    from envlock.lock.pip_config import Sources
    from envlock.targets.container import ContainerOptions


def capture(
    *,
    python: opt.PythonOption = None,
    image: Annotated[
        str | None, Option("--image", metavar="REF", help="Capture an image instead.")
    ] = None,
    output: opt.Output = Path("pylock.env.toml"),
    deep: opt.Deep = False,
    smoke: Annotated[
        bool, Option("--smoke", help="Measure memory and numerics behaviour too.")
    ] = False,
    check_files: opt.CheckFiles = False,
    offline: Annotated[
        bool,
        Option("--offline", help="Do not look for artifacts; no build from such a lock."),
    ] = False,
    wheelhouse: opt.Wheelhouse = None,
    memory: opt.Memory = 4096,
    shm_size: opt.Shm = 1024,
    debug: opt.Debug = False,
) -> None:
    """Write a lock of an environment: packages with hashes, torch, CUDA, driver, behaviour.

    envlock capture                        the active environment, to pylock.env.toml
    envlock capture --smoke --deep -o colleague.lock
    envlock capture --image team/train:1   what is inside an image
    envlock capture --wheelhouse wheels/   for local builds such as 2.13.0+cpu
    """
    if image is not None and python is not None and not python.strip():
        raise UsageError("--python: give the interpreter inside the image")
    from envlock.targets.capture import LockOptions, capture_lock  # noqa: PLC0415
    from envlock.targets.references import Reading  # noqa: PLC0415

    prefix = Path(python).parent.parent if python and not image else None
    sources = None if offline else _sources(prefix, wheelhouse)
    with counter("checking files") as progress:
        reading = Reading(
            say=say,
            python=python,
            deep=deep or smoke,
            check_files=check_files,
            container=_container(python, memory, shm_size) if image else None,
            progress=progress,
        )
        lock = capture_lock(
            f"image:{image}" if image else "env",
            reading,
            LockOptions(sources=sources, smoke=smoke),
        )
    from envlock.lock.io import render_lock  # noqa: PLC0415  # loaded while the target answered

    opt.write_product(render_lock(lock), output)
    _summary(lock, output)


def _sources(prefix: Path | None, wheelhouse: Path | None) -> Sources:
    """Where the target's pip would look."""
    from envlock.lock.pip_config import Sources, read_pip_config  # noqa: PLC0415

    return Sources(
        pip=read_pip_config(prefix, os.environ), wheelhouse=wheelhouse and wheelhouse.absolute()
    )


def _container(python: str | None, memory: int, shm_size: int) -> ContainerOptions:
    from envlock.targets.container import ContainerOptions  # noqa: PLC0415

    return ContainerOptions(python=python, memory_bytes=memory << 20, shm_bytes=shm_size << 20)


def _summary(lock: Lock, output: Path | None) -> None:
    from envlock.lock.digest import short  # noqa: PLC0415

    table = lock.table
    say(f"wrote {output}: {len(lock.packages)} packages, id {short(table.id)}")
    for left in table.left_out:
        say(f"left out: {left.name} {left.version}: {left.reason}\n  next: {left.next_step}")
    if not table.resolved:
        say("not resolved (--offline): good for diff, not for build")
