from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from envlock.cli import options as opt
from envlock.cli.build import LockArgument
from envlock.cli.parser import Option
from envlock.cli.talk import say


def fetch(
    lock: LockArgument = Path("pylock.env.toml"),
    *,
    directory: Annotated[
        Path, Option("--directory", "-d", metavar="DIR", help="Folder for the files.")
    ],
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="FILE", help="Write the lock by file names, to be committed."
        ),
    ] = None,
    wheelhouse: opt.Wheelhouse = None,
    offline: opt.Offline = False,
    debug: opt.Debug = False,
) -> None:
    """Bring every file of a lock into one folder, each with its hash checked.

    envlock fetch colleague.lock -d wheels/
    envlock build colleague.lock --wheelhouse wheels/ --offline
    envlock fetch pylock.env.toml -d wheels/ -o images/train/pylock.env.toml
    """
    from envlock.image.build import shelves_for  # noqa: PLC0415
    from envlock.image.fetch import gather, place  # noqa: PLC0415
    from envlock.image.managed_python import artifact  # noqa: PLC0415
    from envlock.image.plan import artifacts, python_version  # noqa: PLC0415
    from envlock.lock.io import load_lock, render_lock, wheelhouse_form  # noqa: PLC0415
    from envlock.lock.locate import locate  # noqa: PLC0415
    from envlock.lock.pip_config import Sources, read_pip_config  # noqa: PLC0415

    wanted = load_lock(lock)
    python = wanted.table.image.python
    found = gather(
        [
            *artifacts(wanted, allow_source=True),
            *([artifact(python, python_version(wanted))] if python else []),
        ],
        shelves_for(lock, wheelhouse, offline=offline),
        say,
        lambda names: locate(wanted, names, Sources(pip=read_pip_config(None, os.environ)), say),
    )
    place(found.values(), directory)
    say(f"{len(found)} files in {directory}")
    if output is not None:
        opt.write_product(render_lock(wheelhouse_form(wanted)), output)
        say(f"wrote {output}: wheels by file name; their files are in {directory}")
