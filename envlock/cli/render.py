from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from envlock.cli import options as opt
from envlock.cli.build import Apt, BaseOption, LockArgument
from envlock.cli.talk import say

if TYPE_CHECKING:
    from envlock.lock.model import Lock


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

    read = load_lock(lock)
    files = context_files(read, base, apt or ())
    warn(read, base)
    save_context(output, files)
    say(f"wrote {output}: {len(files)} files")


def dockerfile(lock: Path, base: str | None, apt: Sequence[str]) -> str:
    """The Dockerfile alone, for ``build --dry-run``."""
    from envlock.image.build import context_files  # noqa: PLC0415
    from envlock.lock.io import load_lock  # noqa: PLC0415

    read = load_lock(lock)
    text = context_files(read, base, apt)["Dockerfile"].decode("utf-8")
    warn(read, base)
    return text


def warn(lock: Lock, base: str | None) -> None:
    """Say what a person should know before building from a context that asked no registry."""
    from envlock.image.base import named_base  # noqa: PLC0415
    from envlock.image.plan import skipped  # noqa: PLC0415

    chosen = named_base(base, lock)
    if not chosen.digest:
        say(f"image.base: {chosen.reference} is a tag without a digest, which may move")
    for package, marker in skipped(lock):
        say(f"skipped: {package}, since its marker does not hold in the image: {marker}")
