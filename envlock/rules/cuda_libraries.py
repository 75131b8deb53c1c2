"""CUDA libraries as they are loaded: shadowed, mixed, or of another version than torch's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import versions
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
from envlock.rules.library_versions import OUTSIDE, needed_version
from envlock.rules.wording import listed, some


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
    where = OUTSIDE.get(env.peek("cudnn.path_class") or "", "")
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


def _outranks(library: Library) -> tuple[str, str] | None:
    """(version loaded, version of the wheel's copy) where a wheel's copy loses to another."""
    if library.path_class not in OUTSIDE:
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
            message=f"{some(names)} from {OUTSIDE[where]} is loaded before the wheel's own "
            f"copy{figures}.",
            hint="unset LD_LIBRARY_PATH, or take the CUDA folders out of it"
            if where in {"ld-library-path", "cuda-home"}
            else f"remove the copy that comes from {OUTSIDE[where]}",
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


_CUDNN_FOLDER = re.compile(r"cudnn[-_/]v?(\d{1,2}\.\d{1,2}(?:\.\d{1,3})?)", re.IGNORECASE)


@check("EL311", Severity.ERROR)
def path_names_cudnn(env: Env) -> Iterator[Fault]:
    """LD_LIBRARY_PATH names a cuDNN that is older than the one torch was compiled for.

    The loader prefers it to the copy inside the wheel, and torch refuses it: "cuDNN version
    incompatibility".

    To do: take the folder out of LD_LIBRARY_PATH (unload the cluster's cudnn module).
    """
    path = env.need("env.LD_LIBRARY_PATH")
    if "libraries" in env.observation.exhaustive and env.peek("libraries") is not None:
        raise DoesNotApplyError("EL308 sees what is really loaded")
    if env.peek("cudnn.loaded") and env.peek("cudnn.compiled"):
        raise DoesNotApplyError("EL301 sees what is really loaded")
    named = _CUDNN_FOLDER.findall(path)
    if not named:
        return
    need, proof, sources = needed_version(env, "cudnn")
    older = [v for v in named if versions.below(v, need) and versions.minor_of(v)]
    if older:
        yield Fault(
            subject="env.LD_LIBRARY_PATH",
            message=f"LD_LIBRARY_PATH names cuDNN {older[0]}, torch was compiled for {need}: the "
            "older copy is loaded before the wheel's own.",
            hint="take the cuDNN folder out of LD_LIBRARY_PATH (module unload cudnn)",
            evidence=(proof, "torch.version"),
            sources=sources,
            explains=("torch.importable", "libraries.libcudnn*"),
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
                message=f"{soname} comes from {OUTSIDE.get(one, one)} in {REFERENCE} and from "
                f"{OUTSIDE.get(other, other)} in {HERE}.",
                evidence=(f"libraries.{soname}.version", f"libraries.{soname}.owner"),
                explains=(f"libraries.{soname}.*",),
            )
