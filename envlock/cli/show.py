from __future__ import annotations

from pathlib import Path
from typing import Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Argument


def show(
    lock: Annotated[Path, Argument(metavar="LOCK", help="The lock to read.")] = Path(
        "pylock.env.toml"
    ),
    *,
    debug: opt.Debug = False,
) -> None:
    """Say what a lock holds, and what was left out of it.

    envlock show colleague.lock
    """
    from envlock.lock.io import load_lock  # noqa: PLC0415
    from envlock.lock.summary import summarise  # noqa: PLC0415

    opt.write_product(summarise(load_lock(lock), lock.name), None)
