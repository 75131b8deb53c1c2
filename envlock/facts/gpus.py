"""GPU architectures: compute capabilities, their products, and what runs on what."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Literal

from envlock.facts.tables import Confidence, rows

_VENDOR_WORDS = frozenset({"nvidia", "geforce", "tesla", "quadro"})
_NUMERIC = re.compile(r"(sm|compute)_(\d{2,3})([af]?)")


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuArch:
    capability: str
    """``8.6``."""
    sm: str
    architecture: str
    products: tuple[str, ...]
    min_cuda: str
    last_cuda: str | None
    """None: still supported."""
    last_driver_branch: str | None
    confidence: Confidence
    source: tuple[str, ...]


def _arch(row: dict[str, Any]) -> GpuArch:
    return GpuArch(
        capability=row["compute_capability"],
        sm=row["sm"],
        architecture=row["architecture"],
        products=tuple(row["products"]),
        min_cuda=row["min_cuda_toolkit"],
        last_cuda=row["last_cuda_toolkit"],
        last_driver_branch=row["last_driver_branch"],
        confidence=row["confidence"],
        source=tuple(row["source"]),
    )


@functools.cache
def gpu_arches() -> tuple[GpuArch, ...]:
    return tuple(_arch(row) for row in rows("gpu_arch"))


def gpu_arch(capability: str) -> GpuArch | None:
    return next((a for a in gpu_arches() if a.capability == capability), None)


def product_words(name: str) -> tuple[str, ...]:
    """What tells products apart in a name: ``NVIDIA GeForce RTX 4090`` is ``(rtx, 4090)``."""
    found = re.findall(r"[a-z0-9]+", name.lower())
    return tuple(w for w in found if w not in _VENDOR_WORDS)


@functools.cache
def _products() -> tuple[tuple[tuple[str, ...], GpuArch], ...]:
    pairs = [(product_words(p), arch) for arch in gpu_arches() for p in arch.products]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def gpu_arch_of_name(name: str) -> GpuArch | None:
    """The architecture of a product by its name as drivers print it; None if it is not listed.

    The longest listed name wins: an "RTX 6000 Ada" is not an "RTX 6000".
    """
    have = product_words(name)
    for words, arch in _products():
        starts = range(len(have) - len(words) + 1)
        if any(have[i : i + len(words)] == words for i in starts):
            return arch
    return None


def capability_pair(capability: str) -> tuple[int, int] | None:
    """``8.6`` -> ``(8, 6)``; None for gfx names and free text."""
    found = re.fullmatch(r"(\d{1,2})\.(\d)", capability)
    return (int(found.group(1)), int(found.group(2))) if found else None


Fit = Literal["native", "ptx", "none"]


def fit(capability: str, arch_list: tuple[str, ...] | list[str]) -> Fit | None:
    """How a build with this arch list runs on a GPU; None where the names say nothing.

    native: machine code for the same major capability and an equal or lower minor one.
    ptx: only code that the driver compiles at the first start. none: no kernel image.
    gfx targets (AMD) must match exactly, apart from feature suffixes such as ``:xnack-``.
    """
    if capability.startswith("gfx"):
        plain = {entry.partition(":")[0] for entry in arch_list}
        return "native" if capability.partition(":")[0] in plain else "none"
    device = capability_pair(capability)
    targets = [m for entry in arch_list if (m := _NUMERIC.fullmatch(entry))]
    if device is None or not targets:
        return None
    best: Fit = "none"
    for target in targets:
        digits = target.group(2)
        built = (int(digits[:-1]), int(digits[-1]))
        if target.group(3):  # 90a, 100f: for exactly that device or family, no further
            if target.group(1) == "sm" and built == device:
                return "native"
        elif target.group(1) == "sm" and built[0] == device[0] and built[1] <= device[1]:
            return "native"
        elif target.group(1) == "compute" and built <= device:
            best = "ptx"
    return best
