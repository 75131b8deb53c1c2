from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Argument, Option
from envlock.cli.talk import counter, say
from envlock.image.choices import EngineChoice, Flavour

if TYPE_CHECKING:
    from envlock.lock.model import Lock

LockArgument = Annotated[Path, Argument(metavar="LOCK", help="The lock to build from.")]
BaseOption = Annotated[
    str | None, Option("--base", metavar="REF", help="Image to build upon, or oci:FOLDER.")
]
Apt = Annotated[
    list[str] | None,
    Option("--apt", metavar="NAME=VERSION", help="A pinned OS package; may be repeated."),
]


FlavourOption = Annotated[
    Flavour,
    Option(
        "--flavour",
        help="runtime: a slim base, CUDA from the wheels; devel: a base with CUDA's compilers.",
    ),
]


def build(
    lock: LockArgument = Path("pylock.env.toml"),
    *,
    tag: Annotated[
        str | None, Option("--tag", "-t", metavar="TAG", help="Name of the image.")
    ] = None,
    output: Annotated[
        str | None,
        Option(
            "--output",
            "-o",
            metavar="PLACE",
            help="docker (the default), containers-storage (Buildah's default), oci:FOLDER or "
            "docker-archive:FILE.",
        ),
    ] = None,
    push: Annotated[
        str | None, Option("--push", metavar="REF", help="Push it too, once verified.")
    ] = None,
    engine: Annotated[
        EngineChoice,
        Option(
            "--engine",
            help="docker, buildah: build a Dockerfile by it; none: start nothing, ask none.",
        ),
    ] = EngineChoice.AUTO,
    base: BaseOption = None,
    base_mirror: Annotated[
        str | None,
        Option("--base-mirror", metavar="PREFIX", help="Take bases of docker.io from there."),
    ] = None,
    flavour: FlavourOption = Flavour.AUTO,
    wheelhouse: opt.Wheelhouse = None,
    project: Annotated[
        Path | None,
        Option(
            "--project", metavar="DIR", help="Your own files, for /workspace; .dockerignore counts."
        ),
    ] = None,
    apt: Apt = None,
    allow_source: Annotated[
        bool,
        Option(
            "--allow-source",
            help="Build what has no wheel from its source, in a step without network.",
        ),
    ] = False,
    ca_bundle: Annotated[
        Path | None,
        Option("--ca-bundle", metavar="FILE", help="CA certificates, as a build secret."),
    ] = None,
    allow_tag: Annotated[
        bool, Option("--allow-tag", help="Take a base that no registry has a digest of.")
    ] = False,
    allow_onbuild: Annotated[
        bool, Option("--allow-onbuild", help="Take a base with ONBUILD instructions.")
    ] = False,
    offline: opt.Offline = False,
    no_cache: Annotated[bool, Option("--no-cache", help="Run every step again.")] = False,
    check_reproducible: Annotated[
        bool,
        Option("--check-reproducible", help="Build twice without cache; name files that differ."),
    ] = False,
    no_verify: Annotated[
        bool, Option("--no-verify", help="Do not verify the image afterwards.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the Dockerfile and stop; needs no engine.")
    ] = False,
    metadata: Annotated[
        Path | None,
        Option("--metadata", metavar="FILE", help="Write ids, sizes and times as JSON."),
    ] = None,
    report: opt.MoreReports = None,
    fail_on: opt.FailOnOption = opt.FailOn.ERROR,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Build a pinned image from a lock, and verify inside it that it is what the lock says.

    envlock build -t team/train:2.3
    envlock build colleague.lock --base oci:base/
    envlock build --wheelhouse wheels/ --offline
    envlock build --project .              your own code on top, in /workspace
    envlock build --engine none -o oci:image/   without any engine; not verified
    envlock build --engine buildah -t team/train   a Dockerfile, without a daemon
    envlock build --apt libgl1=1.6.0-1     an OS package, in a layer of its own
    envlock build --flavour devel          with the compilers of exactly the lock's CUDA
    envlock build --allow-source           what has no wheel: built with the lock's own tools
    """
    if dry_run:
        from envlock.cli.render import context  # noqa: PLC0415

        text = context(lock, base, flavour, apt or ())["Dockerfile"].decode("utf-8")
        opt.write_product(text, None)
        return 0
    from envlock.image.base import BaseChoice  # noqa: PLC0415
    from envlock.image.build import build_image, shelves_for  # noqa: PLC0415
    from envlock.image.options import BuildOptions  # noqa: PLC0415
    from envlock.image.output import parse_output  # noqa: PLC0415
    from envlock.lock.io import load_lock, render_lock  # noqa: PLC0415

    verdict = Verdict(
        opt.Reporting(more=report or (), fail_on=fail_on, verbose=verbose, to_stderr=True)
    )
    built = build_image(
        load_lock(lock),
        BuildOptions(
            base=BaseChoice(
                reference=base,
                allow_tag=allow_tag,
                allow_onbuild=allow_onbuild,
                mirror=base_mirror,
                offline=offline,
            ),
            shelves=shelves_for(lock, wheelhouse, offline=offline),
            engine=engine,
            flavour=flavour,
            output=None if output is None else parse_output(output),
            push=push,
            tag=tag,
            os_packages=apt or (),
            allow_source=allow_source,
            ca_bundle=ca_bundle or _ca_bundle(),
            no_cache=no_cache,
            check_reproducible=check_reproducible,
            project=project,
            verify=None if no_verify else verdict.passes,
        ),
        say,
    )
    if built.verified is not False:
        opt.write_product(render_lock(built.lock), lock)
    if metadata is not None:
        opt.write_product(built.report().as_json(), metadata)
    if built.verified is None and not no_verify:
        say("not verified: no engine has run it; load it into one, then: envlock verify IMAGE")
    opt.write_product(built.summary(), None)
    return verdict.code


class Verdict:
    """What verifying said, and the exit code that follows."""

    def __init__(self, reporting: opt.Reporting) -> None:
        self._reporting = reporting
        self.code = 0

    def passes(self, image_id: str, lock: Lock) -> bool:
        from envlock.cli.extras import of_verified  # noqa: PLC0415
        from envlock.image.verify import VerifyOptions, verify  # noqa: PLC0415

        with counter("checking files") as progress:
            found = verify(image_id, VerifyOptions(say=say, lock=lock, progress=progress))
        reporting = replace(self._reporting, extras=lambda: [of_verified(found)])
        self.code = reporting.publish([found.report])
        return self.code == 0


def _ca_bundle() -> Path | None:
    """Where this machine's TLS clients look, if it says so."""
    path = os.environ.get("SSL_CERT_FILE")
    return Path(path) if path else None
