from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from envlock.cli import options as opt
from envlock.cli.talk import counter, say

LockArgument = Annotated[Path, typer.Argument(metavar="LOCK", help="The lock to build from.")]
BaseOption = Annotated[
    str | None, typer.Option("--base", metavar="REF", help="Image to build upon, or oci:FOLDER.")
]
Apt = Annotated[
    list[str] | None,
    typer.Option("--apt", metavar="NAME=VERSION", help="A pinned OS package; may be repeated."),
]


def build(
    lock: LockArgument = Path("pylock.env.toml"),
    *,
    tag: Annotated[
        str | None, typer.Option("--tag", "-t", metavar="TAG", help="Name of the image.")
    ] = None,
    base: BaseOption = None,
    wheelhouse: opt.Wheelhouse = None,
    apt: Apt = None,
    ca_bundle: Annotated[
        Path | None,
        typer.Option("--ca-bundle", metavar="FILE", help="CA certificates, as a build secret."),
    ] = None,
    allow_tag: Annotated[
        bool, typer.Option("--allow-tag", help="Take a base that no registry has a digest of.")
    ] = False,
    allow_onbuild: Annotated[
        bool, typer.Option("--allow-onbuild", help="Take a base with ONBUILD instructions.")
    ] = False,
    offline: opt.Offline = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run every step again.")] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not verify the image afterwards.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the Dockerfile and stop; needs no engine.")
    ] = False,
    report: opt.MoreReports = None,
    fail_on: opt.FailOnOption = opt.FailOn.ERROR,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Build a pinned image from a lock, and verify inside it that it is what the lock says.

    \b
    envlock build -t team/train:2.3
    envlock build colleague.lock --base oci:base/
    envlock build --wheelhouse wheels/ --offline
    envlock build --apt libgl1=1.6.0-1     an OS package, in a layer of its own
    """
    if dry_run:
        from envlock.cli.render import dockerfile  # noqa: PLC0415

        opt.write_product(dockerfile(lock, base, apt or ()), None)
        return 0
    from envlock.image.base import BaseChoice  # noqa: PLC0415
    from envlock.image.build import BuildOptions, build_image, shelves_for  # noqa: PLC0415
    from envlock.lock.io import load_lock, render_lock  # noqa: PLC0415

    built = build_image(
        load_lock(lock),
        BuildOptions(
            base=BaseChoice(reference=base, allow_tag=allow_tag, allow_onbuild=allow_onbuild),
            shelves=shelves_for(lock, wheelhouse, offline=offline),
            tag=tag,
            os_packages=apt or (),
            ca_bundle=ca_bundle or _ca_bundle(),
            no_cache=no_cache,
        ),
        say,
    )
    code = 0
    if not no_verify:
        from envlock.image.verify import VerifyOptions, verify  # noqa: PLC0415

        with counter("checking files") as progress:
            verdict = verify(
                built.image_id, VerifyOptions(say=say, lock=built.lock, progress=progress)
            )
        code = opt.Reporting(
            more=report or (), fail_on=fail_on, verbose=verbose, to_stderr=True
        ).publish([verdict])
    if code == 0:
        opt.write_product(render_lock(built.lock), lock)
    opt.write_product(
        f"image  {built.image_id}\nlock   {built.lock.table.id}\n"
        f"base   {built.plan.base.name}@{built.plan.base.digest}\n",
        None,
    )
    return code


def _ca_bundle() -> Path | None:
    """Where this machine's TLS clients look, if it says so."""
    path = os.environ.get("SSL_CERT_FILE")
    return Path(path) if path else None
