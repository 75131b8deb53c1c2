"""CUDA libraries as they are loaded: shadowed, mixed, or of another version than torch's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import changes_between, torch_build, versions
from envlock.findings import Severity
from envlock.lock.observation import Absent, Library, Unknown
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
from envlock.rules.installation import CUDA_LIBRARY
from envlock.rules.wording import listed, some

_OUTSIDE = {
    "ld-library-path": "a folder on LD_LIBRARY_PATH",
    "ld-preload": "LD_PRELOAD",
    "cuda-home": "an installed CUDA toolkit",
    "system": "the system",
    "conda": "conda",
    "user-site": "~/.local",
    "pythonpath": "PYTHONPATH",
}

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


@check("EL301", Severity.ERROR)
def other_cudnn(env: Env) -> Iterator[Fault]:
    """The cuDNN that is loaded is not the one torch was compiled for.

    torch refuses an older minor release ("cuDNN version incompatibility") and cannot use another
    major. It comes from LD_LIBRARY_PATH (a cluster module), conda or the system, which the loader
    prefers to the copy inside the wheel.

    To do: take the folder out of LD_LIBRARY_PATH (unload the cluster's cudnn module), or reinstall
    the nvidia-cudnn wheel that torch requires.
    """
    loaded, compiled = env.need("cudnn.loaded"), env.need("cudnn.compiled")
    have, need = versions.minor_of(loaded), versions.minor_of(compiled)
    if have is None or need is None:
        raise UndecidedError("cudnn.loaded", "not a version")
    if have[0] == need[0] and have >= need:
        return
    where = _OUTSIDE.get(env.peek("cudnn.path_class") or "", "")
    path = env.peek("env.LD_LIBRARY_PATH")
    yield Fault(
        subject="cudnn.loaded",
        message=(
            f"cuDNN {loaded} is loaded{f' from {where}' if where else ''}, torch was compiled for "
            f"{compiled}: convolutions fail, or torch refuses to start them."
        ),
        hint="take the cuDNN folder out of LD_LIBRARY_PATH (module unload cudnn)"
        if path
        else "reinstall the nvidia-cudnn wheel that torch requires",
        evidence=("cudnn.compiled", "cudnn.path_class", "env.LD_LIBRARY_PATH"),
        explains=("libraries.libcudnn*", "env.LD_LIBRARY_PATH", "torch.importable", "cudnn.*"),
    )


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


@check("EL305", Severity.ERROR)
def contested_library(env: Env) -> Iterator[Fault]:
    """Two distributions claim the same CUDA library file.

    Both are listed as installed and pip is content, but there is one file: that of the distribution
    installed last. torch then loads a library of the other CUDA major or an older one ("undefined
    symbol").

    To do: uninstall the one that torch does not require and reinstall the other, for uninstalling
    has removed the file.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for path, owners in env.table("contested").items():
        if CUDA_LIBRARY.search(path):
            groups.setdefault(tuple(sorted(owners)), []).append(path)
    for owners, paths in sorted(groups.items()):
        yield Fault(
            subject=f"packages.{owners[-1]}",
            message=f"{' and '.join(owners)} both claim {some(sorted(paths))}: one file, and the "
            "distribution installed last has won.",
            hint=f"pip uninstall {' '.join(owners)}, then reinstall the one that torch requires",
            evidence=tuple(f"packages.{owner}" for owner in owners),
            explains=("libraries.*", "nccl*", "cudnn*", "torch.importable", "contested.*"),
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
    need, path, sources = _needed_nccl(env)
    if versions.below(loaded.value, need):
        where = _OUTSIDE.get(env.peek("nccl.path_class") or "", "")
        yield Fault(
            subject="nccl.loaded",
            message=f"NCCL {loaded.value} is loaded{f' from {where}' if where else ''}, torch was "
            f"compiled for {need}: import torch or the first collective fails.",
            hint="remove what brings the older NCCL, then reinstall the nvidia-nccl wheel of torch",
            evidence=(loaded.path, path, "nccl.path_class", "torch.version"),
            sources=sources,
            explains=("nccl*", "libraries.libnccl*", "torch.importable"),
        )


def _needed_nccl(env: Env) -> tuple[str, str, tuple[str, ...]]:
    compiled = env.peek("nccl.compiled")
    if compiled:
        return compiled, "nccl.compiled", ()
    cuda, version = reading.need_torch_cuda(env), reading.torch_version(env)
    build = torch_build(version.value) if version else None
    tag = versions.tag_of_cuda(cuda.value)
    variant = build.variant(tag) if build and tag else None
    nccl = variant.nccl if variant else None
    if build and tag == build.default_tag:
        nccl = build.nccl
    if nccl is None or build is None:
        raise UndecidedError("nccl.compiled", "not recorded, and no table row for this build")
    return nccl, cuda.path, build.source


def _outranks(library: Library) -> tuple[str, str] | None:
    """(version loaded, version of the wheel's copy) where a wheel's copy loses to another."""
    if library.path_class not in _OUTSIDE:
        return None
    wheel = next((copy for copy in library.shadowed if copy.path_class == "wheel"), None)
    if wheel is None:
        return None
    texts = ["" if isinstance(v, Absent | Unknown) else v for v in (library.version, wheel.version)]
    return texts[0], texts[1]


@check("EL308", Severity.ERROR)
def shadowed(env: Env) -> Iterator[Fault]:
    """A CUDA library from outside the environment is loaded before the wheel's own copy.

    torch's wheels find their libraries by RUNPATH, which the loader searches after LD_LIBRARY_PATH.
    An older copy lacks symbols that torch needs; a newer one works but is not what was tested, and
    memory and numbers are those of another release.

    To do: take the folder out of LD_LIBRARY_PATH; torch's wheels bring every library they need.
    """
    groups: dict[str, list[str]] = {}
    older: set[str] = set()
    for soname, library in sorted(env.table("libraries").items()):
        pair = _outranks(library)
        if pair is None or (pair[0] and pair[0] == pair[1]):
            continue
        where = str(library.path_class)
        groups.setdefault(where, []).append(soname)
        if not (pair[0] and pair[1]) or versions.below(pair[0], pair[1]):
            older.add(where)
    for where, names in groups.items():
        first = env.observation.find(f"libraries.{names[0]}")
        theirs, ours = _outranks(first) or ("", "")
        figures = f" ({names[0]} {theirs} instead of {ours})" if theirs and ours else ""
        yield Fault(
            subject=f"libraries.{names[0]}.path_class",
            severity=None if where in older else Severity.WARNING,
            message=f"{some(names)} from {_OUTSIDE[where]} is loaded before the wheel's own "
            f"copy{figures}.",
            hint="unset LD_LIBRARY_PATH, or take the CUDA folders out of it"
            if where in {"ld-library-path", "cuda-home"}
            else f"remove the copy that comes from {_OUTSIDE[where]}",
            evidence=(
                *(f"libraries.{name}" for name in names),
                "env.LD_PRELOAD" if where == "ld-preload" else "env.LD_LIBRARY_PATH",
            ),
            explains=("libraries.*", "env.LD_LIBRARY_PATH", "torch.importable", "cudnn*", "nccl*"),
        )


_TOOLKIT_FOLDER = re.compile(r"cuda[-/]v?(\d{1,2}\.\d{1,2})(?:\.\d+)?(?=/|$)")


@check("EL309", Severity.ERROR)
def path_names_toolkit(env: Env) -> Iterator[Fault]:
    """LD_LIBRARY_PATH names a CUDA toolkit that is older than torch's CUDA.

    Libraries of one CUDA major share their names, so the toolkit's older copies (libnvJitLink,
    libcublasLt, libcusparse) are loaded instead of the wheel's: "undefined symbol:
    __nvJitLinkCreate_12_8". A newer toolkit of the same major is only a warning; another major has
    other file names and is not loaded.

    To do: take the folder out of LD_LIBRARY_PATH; the wheels bring their CUDA libraries.
    """
    path = env.need("env.LD_LIBRARY_PATH")
    cuda = reading.need_torch_cuda(env)
    need = versions.minor_of(cuda.value)
    if "libraries" in env.observation.exhaustive and env.peek("libraries") is not None:
        raise DoesNotApplyError("EL308 sees what is really loaded")
    named = {m.group(1) for m in _TOOLKIT_FOLDER.finditer(path)}
    same_major = sorted(
        v for v in named if need and versions.major(v) == need[0] and versions.minor_of(v) != need
    )
    if not same_major:
        return
    older = [v for v in same_major if versions.below(v, cuda.value)]
    yield Fault(
        subject="env.LD_LIBRARY_PATH",
        severity=None if older else Severity.WARNING,
        message=(
            f"LD_LIBRARY_PATH names CUDA {listed(older or same_major)}, torch is built for "
            f"{cuda.value}: the toolkit's libraries are loaded before the wheel's own"
            + (", and the older ones lack symbols that torch needs." if older else ".")
        ),
        hint="take the CUDA folder out of LD_LIBRARY_PATH",
        evidence=(cuda.path, "toolkit.system_cuda"),
        explains=("torch.importable", "libraries.*"),
    )


@difference("EL310", Severity.INFO, strict=Severity.ERROR)
def other_place(pair: Pair) -> Iterator[Fault]:
    """A CUDA library is loaded from another kind of place.

    To do: nothing while the versions are equal; otherwise see which side is shadowed (EL308).
    """
    left, right = pair.left.peek_table("libraries"), pair.right.peek_table("libraries")
    for soname in sorted(left.keys() & right.keys()):
        path = f"libraries.{soname}.path_class"
        one, other = pair.left.peek(path), pair.right.peek(path)
        if one and other and one != other:
            yield Fault(
                subject=path,
                message=f"{soname} comes from {_OUTSIDE.get(one, one)} in {REFERENCE} and from "
                f"{_OUTSIDE.get(other, other)} in {HERE}.",
                evidence=(f"libraries.{soname}.version", f"libraries.{soname}.owner"),
                explains=(f"libraries.{soname}.*",),
            )
