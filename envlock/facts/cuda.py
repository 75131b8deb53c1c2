"""CUDA toolkit releases and the NVIDIA drivers they need (Linux x86_64).

Two figures are called "minimum driver" and differ by years, so they have different names here:
``compat_floor`` is the oldest driver that runs any minor release of that CUDA major, and
``toolkit_driver`` is the driver that the release notes pair with one toolkit. Code compiled for
the GPU's own architecture needs the first; compiling PTX at run time needs the second.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envlock.facts import versions
from envlock.facts.tables import Confidence, rows


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRelease:
    cuda: str
    """With the update: ``12.1.1``."""
    compat_floor: str | None
    """None before CUDA 11, which had no minor-version compatibility."""
    toolkit_driver: str | None
    wheels: tuple[tuple[str, str], ...]
    """Versions of the wheels with its parts, ``nvidia-cuda-runtime-cu12`` and others, by name."""
    confidence: Confidence
    source: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverFloor:
    """The oldest driver that starts programs built for a CUDA release."""

    cuda: str
    driver: str
    by_minor_compat: bool
    """True where minor-version compatibility gives it; then PTX may need a newer driver."""
    source: tuple[str, ...]


def _release(row: dict[str, Any]) -> CudaRelease:
    return CudaRelease(
        cuda=row["cuda"],
        compat_floor=row["min_linux_driver_minor_compat"],
        toolkit_driver=row["min_linux_driver_toolkit"],
        wheels=_wheels(row.get("pypi_meta_package")),
        confidence=row["confidence"],
        source=tuple(row["source"]),
    )


def _wheels(meta_package: dict[str, Any] | None) -> tuple[tuple[str, str], ...]:
    if meta_package is None:
        return ()
    own = ("cuda-toolkit", meta_package["cuda-toolkit"])
    return tuple(sorted([own, *meta_package["components"].items()]))


@functools.cache
def cuda_releases() -> tuple[CudaRelease, ...]:
    """Every toolkit release with its updates, oldest first."""
    return tuple(_release(row) for row in rows("cuda_driver"))


@functools.cache
def _of_minor(cuda: str) -> tuple[CudaRelease, ...]:
    wanted = versions.minor_of(cuda)
    if wanted is None:
        return ()
    return tuple(r for r in cuda_releases() if versions.minor_of(r.cuda) == wanted)


def release_of_wheels(versions_by_name: Mapping[str, str]) -> CudaRelease | None:
    """The release that wheels are from: the one with most of them, the newest of those.

    None where the CUDA runtime is not among them, or is of no release in the table.
    """
    best: tuple[int, CudaRelease | None] = (0, None)
    for release in cuda_releases():
        same = {name for name, version in release.wheels if versions_by_name.get(name) == version}
        if any(name.startswith("nvidia-cuda-runtime") for name in same) and len(same) >= best[0]:
            best = (len(same), release)
    return best[1]


@functools.cache
def driver_floor(cuda: str) -> DriverFloor | None:
    """The oldest driver for programs built for ``12.1``; None where the table has no row."""
    for release in _of_minor(cuda):
        if release.compat_floor is not None:
            return DriverFloor(
                cuda=cuda, driver=release.compat_floor, by_minor_compat=True, source=release.source
            )
        if release.toolkit_driver is not None:
            return DriverFloor(
                cuda=cuda,
                driver=release.toolkit_driver,
                by_minor_compat=False,
                source=release.source,
            )
    return None


@functools.cache
def toolkit_driver(cuda: str) -> str | None:
    """The driver shipped with the first toolkit of ``12.1``: from it on, its PTX compiles too."""
    return next((r.toolkit_driver for r in _of_minor(cuda) if r.toolkit_driver), None)


@functools.cache
def cuda_of_driver(driver: str) -> str | None:
    """The newest CUDA release (``12.4``) that a driver supports natively; None if unlisted."""
    if versions.numbers(driver) is None:
        return None
    newest = None
    for release in cuda_releases():
        # All releases of a branch have its CUDA level: 525 is 12.0 though 525.60.13 came with it.
        if release.toolkit_driver and not versions.below(driver, release.toolkit_driver):
            newest = versions.minor_of(release.cuda)
    return None if newest is None else f"{newest[0]}.{newest[1]}"
