from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from envlock.cli import options as opt
from envlock.cli.build import Apt, BaseOption, LockArgument
from envlock.cli.talk import say


def render(
    lock: LockArgument = Path("pylock.env.toml"),
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to make.")
    ] = Path("envlock-context"),
    base: BaseOption = None,
    apt: Apt = None,
    debug: opt.Debug = False,
) -> None:
    """Write the folder of the build context: Dockerfile, lock, installer. Same lock, same bytes.

    \b
    envlock render -o context/
    DOCKER_BUILDKIT=1 docker build --network host context/
    """
    from envlock.image.build import context_files, save_context  # noqa: PLC0415
    from envlock.lock.io import load_lock  # noqa: PLC0415

    files = context_files(load_lock(lock), base, apt or ())
    save_context(output, files)
    say(f"wrote {output}: {len(files)} files")


def dockerfile(lock: Path, base: str | None, apt: Sequence[str]) -> str:
    """The Dockerfile alone, for ``build --dry-run``."""
    from envlock.image.build import context_files  # noqa: PLC0415
    from envlock.lock.io import load_lock  # noqa: PLC0415

    return context_files(load_lock(lock), base, apt)["Dockerfile"].decode("utf-8")
