"""torch releases on PyPI and the CUDA variants published beside them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envlock.facts import versions
from envlock.facts.tables import Confidence, rows

INDEX = "https://download.pytorch.org/whl/"
"""The project's own wheel index; one folder a variant (``cu121``, ``cpu``, ``rocm6.2``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    tag: str
    """``cu121``."""
    arch_list: tuple[str, ...] | None
    """``sm_80``, ``compute_90``; None where no source lists it."""
    cudnn: str | None
    nccl: str | None
    confidence: Confidence
    source: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchBuild:
    release: str
    default_tag: str
    """The variant that PyPI serves for Linux x86_64."""
    cuda: str
    cudnn: str
    nccl: str | None
    """None where NCCL is linked into the wheel."""
    triton: str | None
    """Requirement of the Linux x86_64 wheel: ``==3.0.0``, ``~=3.8.0``; None before 2.0."""
    arch_list: tuple[str, ...]
    """Of the PyPI Linux x86_64 wheel, read from the wheel."""
    cxx11_abi: bool
    min_glibc: str
    """The newest glibc symbol seen, where that is more than the wheel's tag says."""
    requires_python: str
    python_tags: frozenset[str]
    """Interpreters with a Linux x86_64 wheel: ``cp311``, ``cp313t``."""
    windows_tags: frozenset[str]
    pins: Mapping[str, str]
    """Exact requirements of the PyPI Linux x86_64 wheel, by distribution."""
    git: str
    variants: tuple[Variant, ...]
    confidence: Confidence
    source: tuple[str, ...]

    def variant(self, tag: str) -> Variant | None:
        return next((v for v in self.variants if v.tag == tag), None)


def _arch(documented: str) -> list[str]:
    """``12.0+PTX`` -> ``sm_120`` and ``compute_120``."""
    capability, plus, _ = documented.partition("+PTX")
    number = capability.replace(".", "")
    return [f"sm_{number}", f"compute_{number}"] if plus else [f"sm_{number}"]


def _variant(row: dict[str, Any], default_tag: str, wheel: dict[str, Any]) -> Variant:
    documented = row.get("documented_arch_list")
    arches = None if documented is None else tuple(a for d in documented for a in _arch(d))
    if row["variant"] == default_tag:
        arches = tuple(wheel["arch_list"])  # read from the wheel, so better than documented
    return Variant(
        tag=row["variant"],
        arch_list=arches,
        cudnn=row.get("cudnn"),
        nccl=row.get("nccl"),
        confidence=row["confidence"],
        source=tuple(s for s in (row.get("source"), row.get("arch_source")) if s),
    )


def _build(row: dict[str, Any]) -> TorchBuild:
    wheel = row["linux_x86_64"]
    tag = row["pypi_default_variant"]
    platform = wheel["platform_tag"]
    floors = (wheel["declared_min_glibc"], wheel["max_glibc_symbol_seen"])
    return TorchBuild(
        release=row["torch"],
        default_tag=tag,
        cuda=row["cuda"],
        cudnn=row["cudnn"],
        nccl=row["nccl"],
        triton=None if row["triton"] is None else row["triton"]["spec"],
        arch_list=tuple(wheel["arch_list"]),
        cxx11_abi=wheel["cxx11_abi"],
        min_glibc=max(floors, key=lambda text: versions.numbers(text) or ()),
        requires_python=row["requires_python"],
        python_tags=frozenset(row["wheel_python_tags"].get(platform, ())),
        windows_tags=frozenset(row["wheel_python_tags"].get("win_amd64", ())),
        pins=row["pins_linux_x86_64"],
        git=row["git_version"],
        variants=tuple(_variant(v, tag, wheel) for v in row["variants"]),
        confidence=row["confidence"],
        source=tuple(row["source"]),
    )


@functools.cache
def _by_release() -> dict[str, dict[str, Any]]:
    return {row["torch"]: row for row in rows("torch_builds")}


@functools.cache
def torch_build(version: str) -> TorchBuild | None:
    """The build of a release: ``2.3.0`` or ``2.3.0+cu121``; None for nightlies and unlisted ones."""
    row = _by_release().get(version.partition("+")[0])
    return None if row is None else _build(row)


def torch_releases() -> tuple[str, ...]:
    """Every listed release, oldest first."""
    return tuple(_by_release())


def wheel_command(version: str, also: Mapping[str, str] | None = None) -> str | None:
    """A pip command that installs exactly this build, or None where no such wheel is known.

    ``also``: public versions of companions to take from the same index, by distribution.
    """
    release, _, local = version.partition("+")
    build = torch_build(release)
    if build is None:
        return None
    tag = local or build.default_tag
    if tag != "cpu" and build.variant(tag) is None:
        return None
    others = "".join(f" {name}=={v.partition('+')[0]}" for name, v in sorted((also or {}).items()))
    return f"pip install torch=={release}+{tag}{others} --index-url {INDEX}{tag}"
