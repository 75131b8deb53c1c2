"""Versions of cuDNN, NCCL and the other NVIDIA libraries, against torch and against each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from envlock.facts import changes_between, torch_build, versions
from envlock.findings import Severity
from envlock.rules import reading
from envlock.rules.base import (
    HERE,
    REFERENCE,
    DoesNotApplyError,
    Env,
    Fault,
    Pair,
    UndecidedError,
    check,
    difference,
)
from envlock.rules.wording import listed

OUTSIDE = {
    "ld-library-path": "a folder on LD_LIBRARY_PATH",
    "ld-preload": "LD_PRELOAD",
    "cuda-home": "an installed CUDA toolkit",
    "system": "the system",
    "conda": "conda",
    "user-site": "~/.local",
    "pythonpath": "PYTHONPATH",
}
"""Path classes outside of torch's own wheels, in words."""

_ONE_FOLDER = ("nccl", "cudnn", "cusparselt", "nvshmem")
"""NVIDIA wheels that unpack to the same file names for every CUDA major."""


def _installed(env: Env, library: str) -> reading.Read | None:
    """Version of a component: as loaded, else of its NVIDIA wheel."""
    found = env.peek(f"{library}.loaded")
    if found:
        return reading.Read(found, f"{library}.loaded")
    for name, package in sorted(env.peek_table("packages").items()):
        if re.fullmatch(rf"nvidia-{library}-cu\d+", name) and isinstance(package.version, str):
            return reading.Read(package.version, f"packages.{name}.version")
    return None


def needed_version(env: Env, library: Literal["cudnn", "nccl"]) -> tuple[str, str, tuple[str, ...]]:
    """The version that torch was compiled for, what says so, and its sources."""
    compiled = env.peek(f"{library}.compiled")
    if compiled:
        return compiled, f"{library}.compiled", ()
    cuda, version = reading.need_torch_cuda(env), reading.torch_version(env)
    build = torch_build(version.value) if version else None
    tag = versions.tag_of_cuda(cuda.value)
    variant = build.variant(tag) if build and tag else None
    need: str | None = getattr(variant, library, None)
    if build and tag == build.default_tag:
        need = getattr(build, library)  # read from the wheel's metadata
    if need is None or build is None:
        raise UndecidedError(f"{library}.compiled", "not recorded, and no table row for this build")
    return need, cuda.path, build.source


@difference("EL302", Severity.WARNING, strict=Severity.ERROR)
def cudnn_differs(pair: Pair) -> Iterator[Fault]:
    """cuDNN differs although torch does not explain it.

    Each cuDNN release picks other convolution and attention algorithms with other workspaces, so
    peak memory, speed and the last digits of results differ. Another major cannot be loaded by the
    same torch at all.

    To do: install the nvidia-cudnn wheel that torch pins.
    """
    left, right = _installed(pair.left, "cudnn"), _installed(pair.right, "cudnn")
    if left is None or right is None:
        raise DoesNotApplyError("cudnn.loaded")
    have, other = versions.numbers(left.value), versions.numbers(right.value)
    shared = min(len(have or ()), len(other or ()))
    if left.value == right.value or (shared and have and other and have[:shared] == other[:shared]):
        return
    other_major = versions.major(left.value) != versions.major(right.value)
    yield Fault(
        subject="cudnn.loaded",
        severity=Severity.ERROR if other_major else None,
        message=(
            f"cuDNN is {left.value} in {REFERENCE} and {right.value} in {HERE}: other algorithms "
            "and workspaces, so peak memory and the last digits of results differ."
        ),
        hint=f"install cuDNN {left.value} (nvidia-cudnn-cu12 or -cu13), as torch pins it",
        evidence=(left.path, right.path, "cudnn.compiled"),
        explains=("cudnn*", "libraries.libcudnn*", "packages.nvidia-cudnn-*"),
    )


@check("EL303", Severity.WARNING)
def cudnn_below_gate(env: Env) -> Iterator[Fault]:
    """cuDNN is older than an installed library asks for, so it falls back silently.

    torch pins cuDNN exactly. A library whose gate lies just above the pin chooses another attention
    or convolution backend: no error, other speed, memory and numbers.

    To do: install the newer nvidia-cudnn over the pin, or a release of the library with the lower
    gate.
    """
    for index, entry in enumerate(env.need("unmet")):
        if re.match(r"(?:nvidia-)?cudnn", entry.requirement):
            have = env.peek("cudnn.loaded") or "what is installed"
            yield Fault(
                subject=f"unmet.{index}",
                message=f"{entry.distribution} asks for {entry.requirement}, and cuDNN is {have}: it "
                "falls back to another backend without a word.",
                hint="install the newer nvidia-cudnn over torch's pin, or another release of "
                f"{entry.distribution}",
                evidence=("cudnn.loaded", "torch.version"),
            )


@difference("EL304", Severity.ERROR, strict=Severity.ERROR)
def nccl_differs(pair: Pair) -> Iterator[Fault]:
    """NCCL differs although torch does not explain it.

    All ranks of a job need the same NCCL: with different ones the job hangs or fails at the first
    collective. Its buffers lie outside torch's allocator, and their size changes between releases.

    To do: install the same nvidia-nccl wheel on all machines, the one that torch pins.
    """
    left, right = _installed(pair.left, "nccl"), _installed(pair.right, "nccl")
    if left is None or right is None:
        raise DoesNotApplyError("nccl.loaded")
    have, other = versions.numbers(left.value), versions.numbers(right.value)
    if left.value == right.value or (have and other and have[:3] == other[:3]):
        return
    yield Fault(
        subject="nccl.loaded",
        message=(
            f"NCCL is {left.value} in {REFERENCE} and {right.value} in {HERE}: ranks with different "
            "NCCL hang or fail, and its buffers outside torch's allocator differ in size."
        ),
        hint=f"install NCCL {left.value} on every machine of the job",
        evidence=(left.path, right.path, "nccl.compiled"),
        explains=("nccl*", "libraries.libnccl*", "packages.nvidia-nccl-*"),
        changes=changes_between("NCCL", left.value, right.value, pair.right.peek("system.os")),
    )


@check("EL306", Severity.ERROR)
def two_majors(env: Env) -> Iterator[Fault]:
    """One NVIDIA library is installed for two CUDA majors, and both unpack to the same file.

    nvidia-nccl-cu12 and nvidia-nccl-cu13 both own nvidia/nccl/lib/libnccl.so.2; the same goes for
    cuDNN, cuSPARSELt and NVSHMEM. The one installed last is on disk, whatever pip lists.

    To do: uninstall both and reinstall the one for torch's CUDA major.
    """
    table = env.table("packages")
    cuda = reading.torch_cuda(env)
    for library in _ONE_FOLDER:
        names = [
            f"nvidia-{library}-cu{n}" for n in (11, 12, 13) if f"nvidia-{library}-cu{n}" in table
        ]
        if len(names) < 2:
            continue
        found = [f"{name} {env.package(name) or ''}".strip() for name in names]
        wanted = f"nvidia-{library}-cu{versions.major(cuda.value)}" if cuda else names[-1]
        yield Fault(
            subject=f"packages.{names[-1]}",
            message=f"{listed(found)} unpack to the same files: only the one installed last is "
            "there, and torch may load the wrong one.",
            hint=f"pip uninstall -y {' '.join(names)} && pip install --no-deps {wanted}"
            + (f"=={env.package(wanted)}" if env.package(wanted) else ""),
            evidence=tuple(f"packages.{name}" for name in names),
            explains=("libraries.*", "nccl*", "cudnn*", "torch.importable", "contested.*"),
        )


@check("EL307", Severity.ERROR)
def older_nccl(env: Env) -> Iterator[Fault]:
    """The NCCL that is loaded is older than the one torch was compiled for.

    torch uses functions that the older library lacks: `import torch` stops with "undefined symbol:
    nccl...". Another distribution or the system brings the older copy.

    To do: remove what brings the older NCCL, or reinstall the nvidia-nccl wheel that torch requires.
    """
    loaded = _installed(env, "nccl")
    if loaded is None:
        env.need("nccl.loaded")
        raise DoesNotApplyError("nccl.loaded")
    need, path, sources = needed_version(env, "nccl")
    if versions.below(loaded.value, need):
        where = OUTSIDE.get(env.peek("nccl.path_class") or "", "")
        yield Fault(
            subject="nccl.loaded",
            message=f"NCCL {loaded.value} is loaded{f' from {where}' if where else ''}, torch was "
            f"compiled for {need}: import torch or the first collective fails.",
            hint="remove what brings the older NCCL, then reinstall the nvidia-nccl wheel of torch",
            evidence=(loaded.path, path, "nccl.path_class", "torch.version"),
            sources=sources,
            explains=("nccl*", "libraries.libnccl*", "torch.importable"),
        )


@check("EL312", Severity.WARNING)
def other_than_pinned(env: Env) -> Iterator[Fault]:
    """An NVIDIA library is not the version that torch requires.

    torch pins its CUDA libraries exactly. Another framework or a hand has changed one: algorithms,
    workspaces and the last digits differ, and another major release has other file names and
    cannot be loaded at all, which makes it an error.

    To do: install the version that torch requires; frameworks that need another one need an
    environment of their own.
    """
    for index, entry in enumerate(env.need("unmet")):
        pin = re.match(r"(nvidia-[\w-]+?)\s*==\s*([\d.]+)", entry.requirement)
        have = entry.installed if isinstance(entry.installed, str) else None
        if entry.distribution != "torch" or pin is None:
            continue
        other_major = have is None or versions.major(have) != versions.major(pin.group(2))
        yield Fault(
            subject=f"packages.{pin.group(1)}",
            severity=Severity.ERROR if other_major else None,
            message=f"torch requires {pin.group(1)} {pin.group(2)}; "
            f"{f'{have} is installed' if have else 'it is not installed'}.",
            hint=f"pip install --no-deps {pin.group(1)}=={pin.group(2)}",
            evidence=(f"unmet.{index}", "torch.version"),
        )
