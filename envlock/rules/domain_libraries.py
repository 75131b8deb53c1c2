"""torchvision and torchaudio: of torch's variant, of its release, and from the same channel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from envlock.facts import INDEX, companion, versions
from envlock.findings import Severity
from envlock.lock.observation import BuiltFor, Package, Unknown
from envlock.rules import reading
from envlock.rules.base import DoesNotApplyError, Env, Fault, UndecidedError, check

DOMAIN_LIBRARIES: tuple[Literal["torchvision", "torchaudio"], ...] = ("torchvision", "torchaudio")
_BUILD_TAG = re.compile(r"cu\d{2,3}|cpu|rocm[\d.]+|xpu")


def _tag(version: str) -> str | None:
    """The build variant in a local version: ``cu121``; None where there is none."""
    local = version.partition("+")[2]
    return local if _BUILD_TAG.fullmatch(local) else None


@check("EL221", Severity.ERROR)
def other_variant(env: Env) -> Iterator[Fault]:
    """torchvision or torchaudio is of another build variant than torch.

    Their compiled operators must be of the same variant: a CPU torchvision beside a CUDA torch
    lacks its CUDA operators, a CUDA one beside a CPU torch cannot register any ("operator
    torchvision::nms does not exist"). On Linux x86_64 the default index has the CUDA build, which
    carries no local tag. That such a mix seems to work for a release is luck.

    To do: install all of them from one index.
    """
    torch = reading.torch_tag(env)
    kind = reading.torch_kind(env)
    if kind is None and env.peek("torch.cuda_available"):
        kind = reading.Read("cuda", "torch.cuda_available")
    table = env.table("packages")
    present = [name for name in DOMAIN_LIBRARIES if name in table]
    if not present:
        raise DoesNotApplyError("neither torchvision nor torchaudio")
    if kind is None:
        raise UndecidedError("torch.build", "not recorded")
    for name in present:
        have = _variant(env, name, table[name])
        want = torch.value if torch and _BUILD_TAG.fullmatch(torch.value) else None
        if have is None or _fits(have[0], want, kind.value):
            continue
        index = want or "cu121"
        version = (env.package(name) or "").partition("+")[0]
        yield Fault(
            subject=f"packages.{name}",
            message=f"{name}{f' {version}' if version else ''} is the {have[0]} build, torch is "
            f"{want or kind.value}: its compiled operators do not work with this torch.",
            hint=f"pip install --force-reinstall --no-deps {name}{f'=={version}' if version else ''} "
            f"--index-url {INDEX}{index if want else 'TAG, the tag of your torch'}",
            evidence=(kind.path, have[1], *([torch.path] if torch else [])),
        )


def _variant(env: Env, name: str, package: Package) -> tuple[str, str] | None:
    """(variant, path that says so): ``cu121``, ``cpu``, or ``cuda`` where the release is open."""
    built = package.built_for
    if isinstance(built, BuiltFor):
        path = f"packages.{name}.built_for"
        if isinstance(built.cuda, str):
            return versions.tag_of_cuda(built.cuda) or "cuda", path
        if env.lacks(f"{path}.cuda"):
            return "cpu", path
    version = env.package(name)
    if version is None:
        return None
    path = f"packages.{name}.version"
    tag = _tag(version)
    if tag is not None:
        return tag, path
    # Conda and distributions build without a tag; so do the default wheels of other platforms.
    default = (
        "+" not in version
        and versions.is_release(version)
        and env.peek("system.os") == "linux"
        and env.peek("system.arch") in {None, "x86_64", "amd64"}
        and name not in env.peek_table("conda")
    )
    return ("cuda", path) if default else None


def _fits(have: str, want: str | None, kind: str) -> bool:
    if want is not None and have != "cuda":
        return have == want
    family = {"cpu": "cpu", "xpu": "xpu"}.get(have, "rocm" if have.startswith("rocm") else "cuda")
    return family == kind


@check("EL222", Severity.ERROR)
def other_release(env: Env) -> Iterator[Fault]:
    """torchvision or torchaudio belongs to another torch release.

    Each release of them is compiled against exactly one torch release and requires it.

    To do: install the release that requires the installed torch; pip finds it when all of them are
    named in one command.
    """
    declared = _declared_torch(env)
    for name in DOMAIN_LIBRARIES:
        if name in declared:
            requirement, path = declared[name]
            yield Fault(
                subject=f"packages.{name}",
                message=f"{name} {env.package(name) or ''} requires {requirement}, and torch is "
                f"{env.package('torch') or 'not installed'}: its compiled operators do not load.",
                hint=f"pip install torch {name} in one command, from torch's own index",
                evidence=(path, "packages.torch", "torch.version"),
            )
        else:
            yield from _against_the_table(env, name)
    if isinstance(env.find("unmet"), Unknown):
        env.table("packages")


def _declared_torch(env: Env) -> dict[str, tuple[str, str]]:
    """Unmet requirements on torch, by distribution: what they ask for, and the path."""
    return {
        entry.distribution: (entry.requirement, f"unmet.{index}")
        for index, entry in enumerate(env.peek("unmet") or [])
        if re.match(r"torch(?![\w-])", entry.requirement)
    }


def _against_the_table(env: Env, name: Literal["torchvision", "torchaudio"]) -> Iterator[Fault]:
    torch, version = reading.torch_release(env), env.package(name)
    goes_with = companion(name, torch.value) if torch else None
    have = versions.minor_of(version) if version and versions.is_release(version) else None
    if torch is None or goes_with is None or have is None:
        return
    if have != versions.minor_of(goes_with.minor):
        yield Fault(
            subject=f"packages.{name}",
            message=f"{name} is {version}, but {goes_with.minor} goes with torch {torch.value}: its "
            "compiled operators do not load.",
            hint=f'pip install "{name}=={goes_with.minor}.*", from torch\'s own index',
            evidence=(f"packages.{name}.version", torch.path),
            sources=goes_with.source,
        )


@check("EL227", Severity.ERROR)
def mixed_channels(env: Env) -> Iterator[Fault]:
    """torch and a companion come from different conda channels.

    The channels build with different compilers and C++ ABIs: "undefined symbol" at import. The
    versions fit, only the build strings and channels tell.

    To do: install torch, torchvision and torchaudio from one channel.
    """
    conda = env.table("conda")
    torch = conda.get("pytorch")
    if torch is None or not isinstance(torch.channel, str):
        raise DoesNotApplyError("no torch from conda with a known channel")
    for name in DOMAIN_LIBRARIES:
        other = conda.get(name)
        if other is not None and isinstance(other.channel, str) and other.channel != torch.channel:
            yield Fault(
                subject=f"conda.{name}.channel",
                message=f"torch is from the channel {torch.channel}, {name} from {other.channel}: "
                "compiled with different compilers and ABIs.",
                hint=f"conda install {name} from {torch.channel}, or all of them from one channel",
                evidence=("conda.pytorch.channel", "conda.pytorch.build"),
            )
