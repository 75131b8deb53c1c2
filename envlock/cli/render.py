from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from envlock.cli import options as opt
from envlock.cli.build import Apt, BaseOption, FlavourOption, LockArgument
from envlock.cli.parser import Option
from envlock.cli.talk import say
from envlock.image.choices import Flavour


def render(
    lock: LockArgument = Path("pylock.env.toml"),
    *,
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="Folder to make.")] = Path(
        "envlock-context"
    ),
    base: BaseOption = None,
    flavour: FlavourOption = Flavour.AUTO,
    apt: Apt = None,
    debug: opt.Debug = False,
) -> None:
    """Write the folder of the build context: Dockerfile, lock, installer. Same lock, same bytes.

    envlock render -o context/
    DOCKER_BUILDKIT=1 docker build --network host context/
    """
    from envlock.image.dockerfile import save_context  # noqa: PLC0415

    files = context(lock, base, flavour, apt or ())
    save_context(output, files)
    say(f"wrote {output}: {len(files)} files")


def context(
    lock: Path, base: str | None, wanted: Flavour, apt: Sequence[str]
) -> Mapping[str, bytes]:
    """The files of the context, having said what a person should know before building from them."""
    from envlock.image.base import named_base  # noqa: PLC0415
    from envlock.image.dockerfile import context_files  # noqa: PLC0415
    from envlock.image.flavour import choose_flavour  # noqa: PLC0415
    from envlock.image.plan import skipped  # noqa: PLC0415
    from envlock.lock.io import load_lock  # noqa: PLC0415

    read = load_lock(lock)
    flavoured = choose_flavour(wanted, read, apt)
    files = context_files(read, base, apt, flavoured.flavour)
    say(flavoured.line())
    chosen = named_base(base, read, flavoured.flavour)
    if not chosen.digest:
        say(f"image.base: {chosen.reference} is a tag without a digest, which may move")
    for package, marker in skipped(read):
        say(f"skipped: {package}, since its marker does not hold in the image: {marker}")
    return files
