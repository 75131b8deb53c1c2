"""Distributions that must fit torch: triton, compiled extensions, parts of one project."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from envlock.facts import binaries, torch_build, versions
from envlock.findings import Severity
from envlock.lock.observation import BuiltFor, Package
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
from envlock.rules.domain_libraries import DOMAIN_LIBRARIES
from envlock.rules.wording import listed

_EXTENSION_TAG = re.compile(r"(?:cu(?P<cuda>\d{2,3}))?(?:pt|torch)(?P<torch>\d+\.?\d+)")


@check("EL223", Severity.ERROR)
def extension_for_other_torch(env: Env) -> Iterator[Fault]:
    """An extension was compiled for another torch or another CUDA than the installed one.

    Its compiled part does not load, or only its CPU part does: undefined symbols, or a warning
    that the extension cannot be used.

    To do: install the extension's wheel for this torch and CUDA, or build it from source; where
    torch is the odd one out (a CPU build), install the torch that the extension expects.
    """
    torch = reading.torch_version(env)
    if torch is None:
        raise UndecidedError("torch.version", "not recorded")
    have = versions.minor_of(torch.value)
    cuda, kind = reading.torch_cuda(env), reading.torch_kind(env)
    for name, (built, path) in _extensions(env):
        if name in DOMAIN_LIBRARIES:
            continue
        want = versions.minor_of(built.get("torch", ""))
        want_cuda = built.get("cuda")
        faults = []
        if want and have and want != have:
            faults.append(f"torch {want[0]}.{want[1]}")
        if want_cuda and kind and kind.value == "cpu":
            faults.append(f"CUDA {want_cuda}, and torch is a CPU-only build")
        elif want_cuda and cuda and versions.major(want_cuda) != versions.major(cuda.value):
            faults.append(f"CUDA {want_cuda}, and torch has {cuda.value}")
        if faults:
            yield Fault(
                subject=f"packages.{name}",
                message=f"{name} was compiled for {listed(faults)} (installed: torch {torch.value}).",
                hint=f"install the wheel of {name} for torch {torch.value}, or build it from source",
                evidence=(path, torch.path),
            )


def _extensions(env: Env) -> Iterator[tuple[str, tuple[dict[str, str], str]]]:
    """What each extension was compiled for: as recorded, else by the tag in its version.

    Many projects put it there: ``2.5.5+cu118torch2.2cxx11abiTRUE``, ``0.6.1+pt24cu121``.
    """
    for name, package in sorted(env.table("packages").items()):
        found: dict[str, str] = {}
        built = package.built_for
        if isinstance(built, BuiltFor):
            for key in ("torch", "cuda"):
                value = getattr(built, key)
                if isinstance(value, str):
                    found[key] = value
            yield name, (found, f"packages.{name}.built_for")
            continue
        version = env.package(name) or ""
        local = version.partition("+")[2]
        tag = _EXTENSION_TAG.search(local)
        if tag is None:
            continue
        release = tag.group("torch")
        found["torch"] = release if "." in release else f"{release[0]}.{release[1:]}"
        cuda = re.search(r"cu(\d{2,3})(?!\d)", local)
        cuda_release = versions.cuda_of_tag(f"cu{cuda.group(1)}") if cuda else None
        if cuda_release:
            # Extensions name the major alone as well: cu12.
            found["cuda"] = (
                f"{cuda.group(1)}.0" if cuda and len(cuda.group(1)) == 2 else cuda_release
            )
        yield name, (found, f"packages.{name}.version")


@check("EL224", Severity.ERROR)
def other_cxx_abi(env: Env) -> Iterator[Fault]:
    """An extension was compiled for the other C++11 ABI than torch.

    Importing it stops with an undefined symbol (`_ZN3c10...`, with `__cxx11` in it or missing). The
    PyPI wheels of torch for Linux x86_64 use the new ABI from 2.7 on and the old one before; conda's
    and some vendors' builds use the new one throughout.

    To do: install the wheel whose name has the right cxx11abiTRUE or cxx11abiFALSE, or build it.
    """
    seen = False
    for name, package in sorted(env.table("packages").items()):
        wants, path = _wanted_abi(env, name, package)
        if wants is None:
            continue
        seen = True
        have, abi_path, sources = _torch_abi(env)
        if have != wants:
            yield Fault(
                subject=f"packages.{name}",
                message=f"{name} was compiled with cxx11abi={str(wants).upper()}, torch with "
                f"{str(have).upper()}: importing it stops with an undefined symbol.",
                hint=f"install the cxx11abi{str(have).upper()} wheel of {name}, or build it from "
                "source",
                evidence=(path, abi_path, "torch.version"),
                sources=sources,
            )
    if not seen:
        raise DoesNotApplyError("no extension says which ABI it was compiled for")


def _wanted_abi(env: Env, name: str, package: Package) -> tuple[bool | None, str]:
    built = package.built_for
    if isinstance(built, BuiltFor) and isinstance(built.cxx11_abi, bool):
        return built.cxx11_abi, f"packages.{name}.built_for"
    local = (env.package(name) or "").partition("+")[2].lower()
    found = re.search(r"cxx11abi\.?(true|false)", local)
    return (found.group(1) == "true") if found else None, f"packages.{name}.version"


def _torch_abi(env: Env) -> tuple[bool, str, tuple[str, ...]]:
    seen = env.peek("torch.cxx11_abi")
    if isinstance(seen, bool):
        return seen, "torch.cxx11_abi", ()
    version, tag = reading.torch_version(env), reading.torch_tag(env)
    build = torch_build(version.value) if version else None
    usual = env.peek("system.os") == "linux" and "pytorch" not in env.peek_table("conda")
    if version and build and usual and (tag is None or tag.value == build.default_tag):
        return build.cxx11_abi, version.path, build.source
    raise UndecidedError("torch.cxx11_abi", "not recorded, and no table row for this build")


@check("EL225", Severity.ERROR)
def triton_not_pinned(env: Env) -> Iterator[Fault]:
    """triton is not the version that torch requires.

    torch.compile generates code for exactly one triton and imports its internals: "cannot import
    name 'triton_key'", or kernels that fail to compile.

    To do: install the triton that torch pins, or the torch that goes with this triton.
    """
    for index, entry in enumerate(env.peek("unmet") or []):
        if entry.distribution == "torch" and re.match(r"triton(?![\w-])", entry.requirement):
            yield _triton_fault(env, entry.requirement, (f"unmet.{index}",), ())
            return
    have = env.need("packages.triton.version")
    torch = reading.torch_release(env)
    build = torch_build(torch.value) if torch else None
    if torch is None or build is None or build.triton is None:
        raise UndecidedError("torch.release", "no row for the triton of this torch")
    kind = reading.torch_kind(env)
    if kind is not None and kind.value not in {"cuda", "cpu"}:
        raise DoesNotApplyError("ROCm and XPU builds have a triton of their own")
    try:
        fits = SpecifierSet(build.triton).contains(have, prereleases=True)
    except InvalidSpecifier:  # pragma: no cover  (the tables are tested)
        fits = True
    if versions.numbers(have) and not fits:
        yield _triton_fault(env, f"triton{build.triton}", (torch.path,), build.source)


def _triton_fault(
    env: Env, requirement: str, evidence: tuple[str, ...], sources: tuple[str, ...]
) -> Fault:
    have = env.package("triton")
    return Fault(
        subject="packages.triton",
        message=f"torch requires {requirement}, and triton is {have or 'another'}: torch.compile "
        "fails, or generates code for the wrong triton.",
        hint=f'pip install "{requirement}"',
        evidence=("packages.triton.version", *evidence),
        sources=sources,
        explains=("packages.triton.*", "unmet.*"),
    )


@difference("EL226", Severity.ERROR, strict=Severity.ERROR)
def triton_differs(pair: Pair) -> Iterator[Fault]:
    """triton differs although torch does not explain it.

    torch.compile works with one triton release only; another one fails to import or generates other
    kernels, with other memory use and last digits.

    To do: install the triton that torch requires.
    """
    left, right = pair.left.package("triton"), pair.right.package("triton")
    if left is None or right is None:
        raise DoesNotApplyError("packages.triton.version")
    if left != right:
        same_minor = versions.minor_of(left) == versions.minor_of(right)
        yield Fault(
            subject="packages.triton",
            severity=Severity.WARNING if same_minor else None,
            message=f"triton is {left} in {REFERENCE} and {right} in {HERE}; torch.compile works "
            "with the one that torch was made for.",
            hint=f"pip install triton=={left}",
            evidence=("packages.triton.version", "torch.version"),
            explains=("packages.triton.*",),
        )


_WITH_BINARIES = ("bitsandbytes",)


@check("EL229", Severity.ERROR)
def no_binary_for_cuda(env: Env) -> Iterator[Fault]:
    """An extension brings no library for torch's CUDA.

    bitsandbytes brings one library for each CUDA release that it knows and loads the one for
    exactly torch's: "Required library version not found: libbitsandbytes_cuda124.so", or only its
    CPU functions work. From 0.50 on it takes the nearest release of the same CUDA major.

    To do: install a release of the extension that knows this CUDA.
    """
    table = env.table("packages")
    present = [name for name in _WITH_BINARIES if name in table]
    if not present:
        raise DoesNotApplyError("no such extension")
    kind = reading.torch_kind(env)
    if kind is not None and kind.value != "cuda":
        raise DoesNotApplyError("torch is no CUDA build")
    if env.peek("env.BNB_CUDA_VERSION"):
        raise DoesNotApplyError("BNB_CUDA_VERSION names another library")
    if env.peek("system.os") != "linux" or env.peek("system.arch") != "x86_64":
        raise DoesNotApplyError("the tables are for wheels of Linux x86_64")
    cuda = reading.need_torch_cuda(env)
    wanted = versions.minor_of(cuda.value)
    for name in present:
        version = env.need(f"packages.{name}.version")
        brings = binaries(name, version)
        if brings is None or wanted is None:
            raise UndecidedError(
                f"packages.{name}.version", f"no row for the libraries of {version}"
            )
        if wanted not in [versions.minor_of(one) for one in brings.cuda]:
            yield Fault(
                subject=f"packages.{name}",
                message=f"{name} {version} has no library for torch's CUDA {cuda.value} (it knows "
                f"{listed(brings.cuda)}): it stops, or works on the CPU only.",
                hint=f"install a release of {name} that knows CUDA {cuda.value}",
                evidence=(f"packages.{name}.version", cuda.path),
                sources=brings.source,
            )


_SAME_VERSION = (
    ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache"),
    ("transformer-engine", "transformer-engine-torch", "transformer-engine-cu12"),
    ("onnxruntime-gpu", "onnxruntime"),
    ("tensorflow", "tensorflow-cpu"),
    ("lightning", "pytorch-lightning"),
)
"""Distributions of one project that check each other's version, or overwrite each other."""


@check("EL228", Severity.ERROR)
def companions_differ(env: Env) -> Iterator[Fault]:
    """Two distributions of one project have different versions.

    They are released together and refuse each other, but neither requires the other, so an
    upgrade moves one of them only.

    To do: install the same version of both, or remove the optional one.
    """
    table = env.table("packages")
    for family in _SAME_VERSION:
        found = {n: v.partition("+")[0] for n in family if n in table and (v := env.package(n))}
        if len(set(found.values())) > 1:
            names = list(found)
            yield Fault(
                subject=f"packages.{names[0]}",
                message=f"{listed(f'{n} {v}' for n, v in found.items())}: the versions must be equal.",
                hint=f"pip install {' '.join(f'{n}=={found[names[0]]}' for n in names)}",
                evidence=tuple(f"packages.{n}" for n in names),
            )
