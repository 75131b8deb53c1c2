"""Which torch this is: release, CUDA build, CPU or GPU, and whether it fits the machine."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.facts import Change, changes_between, torch_build, versions
from envlock.findings import Severity
from envlock.rules import reading
from envlock.rules.base import (
    HERE,
    REFERENCE,
    DoesNotApplyError,
    Fault,
    OneSidedError,
    Pair,
    difference,
)
from envlock.rules.wording import full_torch_version, install_like

FOLLOWS = (
    "torch",
    "torch.*",
    "packages.torch",
    "packages.torch.*",
    "packages.nvidia-*",
    "packages.cuda-*",
    "packages.triton*",
    "packages.pytorch-triton*",
    "packages.torchvision*",
    "packages.torchaudio*",
    "packages.torchtext*",
    "cudnn*",
    "nccl*",
    "cublas*",
    "libraries*",
    "toolkit.ptxas",
    "unmet.*",
)
"""What comes with a torch build and changes with it."""

_BITES = frozenset({"memory", "numerics", "abi", "default"})


def _telling(changes: tuple[Change, ...]) -> str:
    """The effects on memory and numbers in one sentence; all changes are listed below it."""
    effects = [c.effect for c in changes if c.kind in {"memory", "numerics"}]
    if not effects:
        return ""
    more = f" (and {len(effects) - 2} more)" if len(effects) > 2 else ""
    return f" Known changes in between: {'; '.join(effects[:2])}{more}."


def _torch_changes(pair: Pair) -> tuple[Change, ...]:
    left, right = reading.torch_release(pair.left), reading.torch_release(pair.right)
    if left is None or right is None:
        return ()
    return changes_between("torch", left.value, right.value, pair.right.peek("system.os"))


def _versions(pair: Pair) -> str:
    left, right = full_torch_version(pair.left), full_torch_version(pair.right)
    return f" ({left} against {right})" if left and right else ""


@difference("EL201", Severity.ERROR, strict=Severity.ERROR)
def cuda_build(pair: Pair) -> Iterator[Fault]:
    """torch is built for another CUDA release.

    The same torch release exists for several CUDA releases, and `pip list` often shows the same
    version for all of them. Each build loads its own cuBLAS, cuDNN and NCCL and brings GPU kernels
    of its own: workspaces, algorithm choice and with them peak memory differ, the last digits of
    results differ, the oldest driver and the oldest GPU that work differ.

    To do: install the build that the reference has, with its local version tag, from the index of
    that CUDA release. The command in the hint does it.
    """
    left, right = reading.torch_cuda(pair.left), reading.torch_cuda(pair.right)
    if left is None or right is None:
        _explain_missing_cuda(pair, left, right)
        raise DoesNotApplyError("torch.cuda")
    if left.value == right.value:
        return
    changes = (
        *_torch_changes(pair),
        *changes_between("CUDA", left.value, right.value, pair.right.peek("system.os")),
    )
    yield Fault(
        subject="torch.cuda",
        message=(
            f"torch is built for CUDA {left.value} in {REFERENCE} and for CUDA {right.value} in "
            f"{HERE}{_versions(pair)}. Each build loads its own cuBLAS, cuDNN and NCCL and has "
            "its own kernels, so workspaces, peak memory and the last digits of results differ: "
            "what fits into GPU memory with one can run out of it with the other."
            + _telling(changes)
        ),
        hint=install_like(pair),
        evidence=(left.path, right.path, "torch.version"),
        sources=_build_sources(pair),
        explains=FOLLOWS,
        changes=changes,
    )


def _explain_missing_cuda(
    pair: Pair, left: reading.Read | None, right: reading.Read | None
) -> None:
    """Undecided only where the rest looks equal, so that this fact alone could be the cause."""
    if (left is None) == (right is None):
        return
    silent = pair.left if left is None else pair.right
    if silent.lacks("torch.cuda") or reading.torch_kind(silent) is not None:
        return
    releases = reading.torch_release(pair.left), reading.torch_release(pair.right)
    if releases[0] and releases[1] and releases[0].value == releases[1].value:
        raise OneSidedError("torch.cuda", "not recorded")


def _build_sources(pair: Pair) -> tuple[str, ...]:
    found: list[str] = []
    for env in (pair.left, pair.right):
        release = reading.torch_release(env)
        build = torch_build(release.value) if release else None
        found += build.source[:1] if build else ()
    return tuple(dict.fromkeys(found))


@difference("EL202", Severity.ERROR, strict=Severity.ERROR)
def other_kind(pair: Pair) -> Iterator[Fault]:
    """torch computes on another kind of device: CUDA, CPU, ROCm, XPU or MPS.

    The CPU build of a release has the same version for pip as the CUDA build, so an installer
    that finds no GPU, or another index, changes one for the other without a word. A CPU build
    never uses the GPU; a build for another vendor has other kernels altogether.

    To do: install the build that the reference has, from the index of its variant.
    """
    left, right = reading.torch_kind(pair.left), reading.torch_kind(pair.right)
    if left is None or right is None:
        raise DoesNotApplyError("torch.build")
    if left.value == right.value:
        return
    names = {"cuda": "CUDA", "cpu": "CPU-only", "rocm": "ROCm", "xpu": "XPU", "mps": "MPS"}
    consequence = (
        "Nothing here runs on a GPU, however many there are."
        if right.value == "cpu"
        else "Kernels, memory use and results are those of another device."
    )
    yield Fault(
        subject="torch.build",
        message=(
            f"torch is a {names[left.value]} build in {REFERENCE} and a {names[right.value]} build "
            f"in {HERE}{_versions(pair)}. {consequence}"
        ),
        hint=install_like(pair),
        evidence=(left.path, right.path, "torch.version"),
        explains=FOLLOWS,
    )


@difference("EL203", Severity.ERROR, strict=Severity.ERROR)
def release(pair: Pair) -> Iterator[Fault]:
    """The torch release differs.

    Between releases defaults, allocator, attention backends and bundled libraries change, so the
    same code needs other memory and gives other numbers. The known changes between the two are
    listed under the finding. It is an error where the catalogue has a confirmed change of memory,
    numbers, binary interface or defaults in the range, a warning where it has none, and only
    information where it does not know one of the releases (nightlies, releases before 1.13).

    To do: install the release that the reference has, or go through the listed changes.
    """
    left, right = reading.torch_release(pair.left), reading.torch_release(pair.right)
    if left is None or right is None:
        raise DoesNotApplyError("torch.release")
    if left.value == right.value:
        return
    changes = _torch_changes(pair)
    listed = torch_build(left.value) is not None and torch_build(right.value) is not None
    severity = Severity.WARNING if listed else Severity.INFO
    if listed and any(c.kind in _BITES and c.confidence != "unconfirmed" for c in changes):
        severity = Severity.ERROR
    unlisted = "" if listed else " One of the two is not in the tables, so this may be incomplete."
    yield Fault(
        subject="torch.release",
        message=(
            f"torch is {left.value} in {REFERENCE} and {right.value} in {HERE}."
            + (_telling(changes) or " No change of memory use or numbers between them is known.")
            + unlisted
        ),
        hint=install_like(pair),
        evidence=(left.path, right.path, "torch.version"),
        explains=FOLLOWS,
        severity=severity,
        changes=changes,
    )


@difference("EL204", Severity.ERROR, strict=Severity.ERROR)
def other_source(pair: Pair) -> Iterator[Fault]:
    """The same torch version comes from another commit or another kind of build.

    A source build, a nightly rebuilt under the same name, a debug build or one with the other C++
    ABI carries the same version and behaves differently: extensions fail to load (ABI), debug
    builds use more memory and time, another commit is another program.

    To do: install the published wheel on both sides, or the same build.
    """
    version = pair.left.peek("torch.version"), pair.right.peek("torch.version")
    if version[0] is None or version[0] != version[1]:
        raise DoesNotApplyError("torch.version")
    texts = {"git": "commit", "debug": "debug setting", "cxx11_abi": "C++11 ABI"}
    for name, text in texts.items():
        path = f"torch.{name}"
        left, right = pair.left.peek(path), pair.right.peek(path)
        if left is not None and right is not None and left != right:
            yield Fault(
                subject=path,
                message=(
                    f"Both have torch {version[0]}, but built with another {text}: {left} in "
                    f"{REFERENCE}, {right} in {HERE}. It is not the same program."
                ),
                hint=install_like(pair),
                evidence=("torch.version",),
                explains=("packages.torch", "packages.torch.*", "torch.config"),
            )


@difference("EL205", Severity.ERROR, strict=Severity.ERROR)
def missing(pair: Pair) -> Iterator[Fault]:
    """torch is installed on one side only.

    To do: install it, or check that the right interpreter was inspected; `--python` names one.
    """
    sides = [(pair.left, REFERENCE, HERE), (pair.right, HERE, REFERENCE)]
    for env, without, other_name in sides:
        other = pair.right if env is pair.left else pair.left
        here, there = reading.torch_version(env), reading.torch_version(other)
        if env.lacks("torch") and here is None and there is not None:
            yield Fault(
                subject="torch",
                message=(
                    f"{without.capitalize()} has no torch, {other_name} has "
                    f"{full_torch_version(other)}."
                ),
                hint=install_like(pair)
                if env is pair.right
                else "envlock capture --python EXE: was the right interpreter inspected?",
                explains=FOLLOWS,
            )


@difference("EL206", Severity.ERROR, strict=Severity.ERROR)
def rocm_build(pair: Pair) -> Iterator[Fault]:
    """torch is built for another ROCm release.

    As with CUDA, each ROCm release brings its own kernels, MIOpen and RCCL.

    To do: install the build of the reference's ROCm release from its index.
    """
    left, right = pair.left.peek("torch.hip"), pair.right.peek("torch.hip")
    if left is None or right is None:
        raise DoesNotApplyError("torch.hip")
    if versions.minor_of(left) != versions.minor_of(right):
        yield Fault(
            subject="torch.hip",
            message=(
                f"torch is built for ROCm {left} in {REFERENCE} and for {right} in {HERE}: other "
                "kernels and libraries, so memory use and the last digits of results differ."
            ),
            hint=f"install the torch build for ROCm {left}",
            evidence=("torch.version",),
            explains=FOLLOWS,
        )
