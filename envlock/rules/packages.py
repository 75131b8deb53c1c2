"""Distributions: which are there, in which version and with which content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from envlock.facts import changes_between, extension_floors, versions
from envlock.findings import Severity
from envlock.lock.observation import Absent, Package, Unknown
from envlock.rules import reading
from envlock.rules.base import (
    HERE,
    REFERENCE,
    DoesNotApplyError,
    Env,
    Fault,
    Pair,
    check,
    difference,
)

OWN = frozenset({"torch-envlock"})
_BY_OTHER_RULES = re.compile(r"torch|triton|nvidia-(?:cudnn|nccl)-cu\d+")


def _both(pair: Pair) -> Iterator[tuple[str, Package | None, Package | None]]:
    """Every name with its two entries; None for absent.

    Names of unknown standing are left out, and installers that came with the environment.
    """
    envs = (pair.left, pair.right)
    if any(isinstance(env.find("packages"), Unknown) for env in envs):
        raise DoesNotApplyError("packages")  # the judge counts what is unknown
    left, right = (env.peek_table("packages") for env in envs)
    seeds = {name for env in envs for name in env.peek_table("seeds")}
    complete = ["packages" in env.observation.exhaustive or env.lacks("packages") for env in envs]
    for name in sorted(left.keys() | right.keys()):
        unknown = (name not in left and not complete[0]) or (name not in right and not complete[1])
        if name not in OWN and name not in seeds and not unknown:
            yield name, left.get(name), right.get(name)


def _known(fact: Any) -> Any:
    return None if isinstance(fact, Absent | Unknown) else fact


@difference("EL111", Severity.INFO, strict=Severity.ERROR)
def missing(pair: Pair) -> Iterator[Fault]:
    """A distribution that the reference has is missing here.

    Importing it says so at once, so it is seldom the hidden cause; what torch and other
    distributions require and do not find is a finding of its own (EL121).

    To do: install it in the reference's version.
    """
    for name, left, right in _both(pair):
        if left is not None and right is None:
            version = _known(left.version)
            yield Fault(
                subject=f"packages.{name}",
                message=f"{name}{f' {version}' if version else ''} is missing here.",
                hint=f"pip install {name}=={version}" if version else f"pip install {name}",
            )


@difference("EL112", Severity.INFO, strict=Severity.ERROR)
def added(pair: Pair) -> Iterator[Fault]:
    """A distribution is here that the reference does not have.

    Harmless by itself, unless it brings another library of the same name or hooks into torch.

    To do: nothing, or uninstall it to have the reference's environment exactly.
    """
    for name, left, right in _both(pair):
        if left is None and right is not None:
            version = _known(right.version)
            yield Fault(
                subject=f"packages.{name}",
                message=f"{name}{f' {version}' if version else ''} is only in {HERE}.",
                hint=f"pip uninstall {name}",
            )


@difference("EL113", Severity.INFO, strict=Severity.ERROR)
def version_differs(pair: Pair) -> Iterator[Fault]:
    """A distribution has another version.

    No effect of this difference on memory or numbers is known to envlock; the ones that are known
    have rules of their own. NVIDIA's libraries are pinned by torch, so with the same torch another
    version of one of them is a warning.

    To do: install the reference's version if you suspect it.
    """
    same_torch = _same_torch(pair)
    for name, left, right in _both(pair):
        one = _known(left.version) if left else None
        other = _known(right.version) if right else None
        if not one or not other or one == other or _BY_OTHER_RULES.fullmatch(name):
            continue
        if name == "numpy" and versions.major(one) != versions.major(other):
            continue  # EL131
        pinned = name.startswith("nvidia-") and same_torch
        yield Fault(
            subject=f"packages.{name}",
            severity=Severity.WARNING if pinned else None,
            message=f"{name} is {one} in {REFERENCE} and {other} in {HERE}."
            + (" torch pins it, and both have the same torch: one was changed." if pinned else ""),
            hint=f"pip install {name}=={one}",
            evidence=(f"packages.{name}.version",),
            explains=(f"packages.{name}.*",),
        )


def _same_torch(pair: Pair) -> bool:
    builds = [
        (reading.torch_release(env), reading.torch_cuda(env)) for env in (pair.left, pair.right)
    ]
    (release, cuda), (other_release, other_cuda) = builds
    if release is None or other_release is None or release.value != other_release.value:
        return False
    return cuda is not None and other_cuda is not None and cuda.value == other_cuda.value


@difference("EL114", Severity.ERROR, strict=Severity.ERROR)
def other_content(pair: Pair) -> Iterator[Fault]:
    """The same version of a distribution has other content.

    `pip list` shows no difference, yet the installed files are not the same: a patched wheel, a
    wheel that was uploaded again under another build tag, a local build, or an edit that someone
    made in RECORD too. Distributions compiled for another Python or processor are expected to
    differ, and are only information then.

    To do: reinstall it from the reference's source: `pip install --force-reinstall --no-deps
    NAME==VERSION`. `envlock capture --check-files` names edited files.
    """
    paths = ("python.abi", "system.arch", "system.os")
    other_platform = any(
        pair.left.peek(path)
        and pair.right.peek(path)
        and pair.left.peek(path) != pair.right.peek(path)
        for path in paths
    )
    for name, left, right in _both(pair):
        if left is None or right is None or _known(left.version) is None:
            continue
        one, other = _known(left.record), _known(right.record)
        if left.version != right.version or one is None or other is None or one == other:
            continue
        expected = other_platform and not (_is_pure(left) and _is_pure(right))
        yield Fault(
            subject=f"packages.{name}",
            severity=Severity.INFO if expected else None,
            message=f"{name} {left.version} is on both sides, but its content differs"
            + (
                ", as expected of a distribution compiled for another platform."
                if expected
                else ": the installed files are not those of the reference, though pip shows the "
                "same version."
            ),
            hint=f"pip install --force-reinstall --no-deps {name}=={left.version}",
            evidence=(f"packages.{name}.record", f"packages.{name}.version"),
            explains=(f"packages.{name}.*",),
        )


def _is_pure(package: Package) -> bool:
    tags = _known(package.tags) or []
    return bool(tags) and all(tag.endswith("-none-any") for tag in tags)


@difference("EL115", Severity.WARNING, strict=Severity.ERROR)
def other_commit(pair: Pair) -> Iterator[Fault]:
    """A distribution comes from another commit, or is editable on one side.

    The version of a checkout or of an editable install says little about its content.

    To do: install the reference's commit.
    """
    for name, left, right in _both(pair):
        one = _known(left.source) if left else None
        other = _known(right.source) if right else None
        if one is None or other is None:
            continue
        commits = _known(one.commit), _known(other.commit)
        editable = "editable" in (one.kind, other.kind) and one.kind != other.kind
        if editable or (all(commits) and commits[0] != commits[1]):
            yield Fault(
                subject=f"packages.{name}",
                message=f"{name} is from {commits[0] or one.kind} in {REFERENCE} and from "
                f"{commits[1] or other.kind} in {HERE}.",
                hint="install the reference's commit",
                evidence=(f"packages.{name}.source",),
            )


@check("EL130", Severity.ERROR)
def numpy_2_with_old_torch(env: Env) -> Iterator[Fault]:
    """numpy 2 is installed beside a torch that was compiled for numpy 1.

    torch before 2.3 cannot use it: "Numpy is not available" from `tensor.numpy()` and
    `torch.from_numpy`, and a warning at import.

    To do: `pip install "numpy<2"`, or torch 2.3 or newer.
    """
    torch = reading.torch_release(env)
    if torch is None:
        env.need("torch.release")
        raise DoesNotApplyError("torch.release")
    numpy = versions.major(env.need("packages.numpy.version"))
    release = versions.minor_of(torch.value)
    if numpy is not None and release is not None and numpy >= 2 and release < (2, 3):
        yield Fault(
            subject="packages.numpy",
            message=f"torch {torch.value} was compiled for numpy 1 and cannot use numpy "
            f"{env.package('numpy')}: tensor.numpy() and torch.from_numpy fail.",
            hint='pip install "numpy<2"',
            evidence=(torch.path,),
            explains=("packages.numpy", "packages.numpy.*"),
        )


@check("EL132", Severity.ERROR)
def numpy_2_with_old_extensions(env: Env) -> Iterator[Fault]:
    """A distribution that was compiled for numpy 1 stands beside numpy 2.

    Importing it stops with "A module that was compiled using NumPy 1.x cannot be run in NumPy 2".
    Older releases do not say in their metadata that they need numpy 1.

    To do: upgrade the distribution, or `pip install "numpy<2"`.
    """
    numpy = versions.major(env.need("packages.numpy.version"))
    if numpy is None or numpy < 2:
        return
    for name in sorted(env.table("packages")):
        for floor in extension_floors(name, env.package(name)):
            if floor.needs == "numpy below":
                yield Fault(
                    subject=f"packages.{name}",
                    message=f"{name} {env.package(name)} was compiled for numpy 1, and numpy is "
                    f"{env.package('numpy')}: importing it fails.",
                    hint=f"pip install --upgrade {name}",
                    evidence=("packages.numpy",),
                    sources=floor.source,
                )


@difference("EL131", Severity.WARNING, strict=Severity.ERROR)
def numpy_major(pair: Pair) -> Iterator[Fault]:
    """numpy's major version differs.

    numpy 2 promotes types by other rules (NEP 50), so float32 may come out where float64 did, and
    extensions built for numpy 1 do not load.

    To do: install the reference's numpy.
    """
    left, right = pair.left.package("numpy"), pair.right.package("numpy")
    if left is None or right is None:
        raise DoesNotApplyError("packages.numpy.version")
    if versions.major(left) != versions.major(right):
        changes = changes_between("numpy", left, right, pair.right.peek("system.os"))
        yield Fault(
            subject="packages.numpy",
            message=f"numpy is {left} in {REFERENCE} and {right} in {HERE}: other rules of type "
            "promotion, and extensions built for the other one do not load.",
            hint=f"pip install numpy=={left}",
            evidence=("packages.numpy.version",),
            explains=("packages.numpy.*",),
            changes=changes,
        )
