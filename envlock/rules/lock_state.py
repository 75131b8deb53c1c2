"""What stands in the way of installing the same environment elsewhere: indexes, sources, builds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import torch_build, versions
from envlock.findings import Severity
from envlock.lock.observation import Absent, Source, Unknown
from envlock.rules.base import DoesNotApplyError, Env, Fault, check
from envlock.rules.wording import some


@check("EL921", Severity.ERROR)
def no_such_build(env: Env) -> Iterator[Fault]:
    """The wanted torch release was never published for this CUDA release.

    Not every pair of release and CUDA tag exists: the cu121 index ends at torch 2.5.1. Tools that
    join a tag from the driver with a version from a table find nothing, and some fall back to the
    CPU build. Any driver of the same CUDA major runs every minor release.

    To do: take a tag that the release exists for; the hint lists them.
    """
    for index, entry in enumerate(env.need("unmet")):
        wanted = re.fullmatch(r"torch==(\d[\w.]*)\+(cu\d+)", entry.requirement.replace(" ", ""))
        build = torch_build(wanted.group(1)) if wanted else None
        if wanted is None or build is None or build.variant(wanted.group(2)) is not None:
            continue
        major = versions.major(versions.cuda_of_tag(wanted.group(2)) or "")
        tags = [v.tag for v in build.variants]
        same = [t for t in tags if versions.major(versions.cuda_of_tag(t) or "") == major]
        yield Fault(
            subject=f"unmet.{index}",
            message=f"torch {build.release} was never published for {wanted.group(2)}, only for "
            f"{', '.join(tags)}.",
            hint=f"take {build.release}+{(same or tags)[-1]}",
            evidence=("torch.version", "packages.torch"),
            sources=build.source,
            explains=("torch.*",),
        )


@check("EL922", Severity.ERROR)
def index_line(env: Env) -> Iterator[Fault]:
    """A requirements file replaces the index that has the pinned build.

    `--index-url` inside a requirements file holds for the whole installation, also where the command
    line names another index, so builds with a local version (+cu102) are not found.

    To do: remove the line, and give the variant's index as an extra index or per package.
    """
    options = env.need("indexes.options")
    table = env.table("packages")
    pinned = [n for n in table if re.search(r"\+(?:cu\d+|cpu|rocm)", env.package(n) or "")]
    if {"--index-url", "-i"} & set(options) and pinned:
        yield Fault(
            subject="indexes.options",
            message=f"The requirements file sets --index-url itself, so {some(pinned)} with a local "
            "version cannot be found on the index that has it.",
            hint="remove the --index-url line, and name the variant's index for that package alone",
            evidence=tuple(f"packages.{name}" for name in pinned[:3]),
        )


def _sources(env: Env) -> Iterator[tuple[str, Source]]:
    for name, package in sorted(env.table("packages").items()):
        if isinstance(package.source, Source):
            yield name, package.source


@check("EL923", Severity.WARNING)
def from_local_files(env: Env) -> Iterator[Fault]:
    """Distributions were installed from files of one machine.

    `pip freeze` writes them as `name @ file:///...`, a path that exists nowhere else; conda's
    packages carry the path of the machine that built them. envlock pins them by version and hash
    instead.

    To do: for conda's, write name==version; for the others, keep the wheels and give `--wheelhouse`.
    """
    local = [
        name
        for name, source in _sources(env)
        if source.kind in {"archive", "directory", "conda"} and isinstance(source.url, Absent)
    ]
    if local:
        yield Fault(
            subject=f"packages.{local[0]}.source",
            message=f"{some(local)} came from files of one machine; a frozen list of them cannot be "
            "installed elsewhere.",
            hint="envlock capture --wheelhouse DIR for wheels of your own; name==version for conda's",
            evidence=tuple(f"packages.{name}" for name in local[:5]),
        )


@check("EL924", Severity.WARNING)
def unrecorded_source(env: Env) -> Iterator[Fault]:
    """A development version has no recorded source.

    It was built from some commit, and nothing says which: installing the same version elsewhere
    fails or takes another code. Older installers did not write direct_url.json (PEP 610).

    To do: install it again from its repository with a commit: `pip install git+URL@COMMIT`.
    """
    for name, package in sorted(env.table("packages").items()):
        version = env.package(name) or ""
        # Nightlies of an index carry a date and need no commit.
        if not re.search(r"\.?dev\d{0,6}(?!\d)|\+g[0-9a-f]{6,}", version):
            continue
        if isinstance(package.source, Unknown) or not isinstance(package.source, Absent):
            continue
        yield Fault(
            subject=f"packages.{name}",
            message=f"{name} {version} is a development version whose source is not recorded.",
            hint=f"pip install git+URL@COMMIT for {name}",
            evidence=(f"packages.{name}.source",),
        )


@check("EL925", Severity.WARNING)
def editable(env: Env) -> Iterator[Fault]:
    """A distribution is installed in editable mode.

    Its code is a folder of this machine and can change after the capture without any version
    changing.

    To do: build a wheel of it for the lock, or give the project to `envlock build --project`.
    """
    names = [name for name, source in _sources(env) if source.kind == "editable"]
    if names:
        yield Fault(
            subject=f"packages.{names[0]}.source",
            message=f"{some(names)} is installed in editable mode: its code is not pinned.",
            hint="build a wheel of it, or envlock build --project DIR",
            evidence=tuple(f"packages.{name}" for name in names[:5]),
        )
    elif not env.table("packages"):
        raise DoesNotApplyError("no distributions")
