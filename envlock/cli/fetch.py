from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envlock.cli import options as opt
from envlock.cli.build import LockArgument
from envlock.cli.talk import say


def fetch(
    lock: LockArgument = Path("pylock.env.toml"),
    *,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", metavar="DIR", help="Folder for the files.")
    ],
    wheelhouse: opt.Wheelhouse = None,
    offline: opt.Offline = False,
    debug: opt.Debug = False,
) -> None:
    """Bring every file of a lock into one folder, each with its hash checked.

    \b
    envlock fetch colleague.lock -d wheels/
    envlock build colleague.lock --wheelhouse wheels/ --offline
    """
    from envlock.image.build import shelves_for  # noqa: PLC0415
    from envlock.image.fetch import gather, place  # noqa: PLC0415
    from envlock.image.plan import artifacts  # noqa: PLC0415
    from envlock.lock.io import load_lock  # noqa: PLC0415

    found = gather(artifacts(load_lock(lock)), shelves_for(lock, wheelhouse, offline=offline), say)
    place(found.values(), directory)
    say(f"{len(found)} files in {directory}")
