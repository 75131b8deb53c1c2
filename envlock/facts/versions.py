"""Comparing versions as people and tools write them, without guessing what is not written.

``525`` names a driver branch, not driver 525.0: it is neither below nor above 525.60.13.
"""

from __future__ import annotations

import functools
import re

from packaging.version import InvalidVersion, Version

_TAG = re.compile(r"cu(\d{2,3})")


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Version | None:
    """A PEP 440 version, or None where the text is not one."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@functools.lru_cache(maxsize=4096)
def numbers(text: str) -> tuple[int, ...] | None:
    """The dotted numbers of a version: ``12.2.140`` and ``2.3.0+cu121`` -> ``(2, 3, 0)``.

    None unless the whole text is a version: "10.2 or later" says less than it seems to.
    """
    version = parse(text)
    return None if version is None else version.release


def below(version: str, floor: str) -> bool:
    """True only if every reading of ``version`` is older than ``floor``."""
    have, need = numbers(version), numbers(floor)
    if have is None or need is None:
        return False
    shared = min(len(have), len(need))
    return have[:shared] < need[:shared]


def at_least(version: str, floor: str) -> bool:
    """True only if no reading of ``version`` is older than ``floor``, and both are versions."""
    have, need = numbers(version), numbers(floor)
    if have is None or need is None:
        return False
    shared = min(len(have), len(need))
    return have[:shared] >= need[:shared] and (
        have[:shared] > need[:shared] or not any(need[shared:])
    )


def major(text: str) -> int | None:
    """The leading number: 2 for ``2.1.0`` and for ``2.x``."""
    found = re.match(r"v?(\d{1,9})(?:\.|$)", text.strip())
    return int(found.group(1)) if found else None


def minor_of(text: str) -> tuple[int, int] | None:
    """``(2, 3)`` for ``2.3.0+cu121``; None where the text names no minor release."""
    found = numbers(text)
    return None if found is None or len(found) < 2 else (found[0], found[1])


def minor_text(text: str) -> str:
    """``12.1`` for ``12.1.105``; the text itself where it names no minor release."""
    found = minor_of(text)
    return text if found is None else f"{found[0]}.{found[1]}"


def is_release(text: str) -> bool:
    """False for nightly and pre-release versions, which no table describes."""
    version = parse(text)
    return version is not None and not version.is_prerelease and not version.is_devrelease


def cuda_of_tag(tag: str) -> str | None:
    """The CUDA release that a local version tag names: ``cu121`` -> ``12.1``."""
    found = _TAG.fullmatch(tag)
    if found is None:
        return None
    digits = found.group(1)
    return f"{digits[:-1]}.{digits[-1]}"


def tag_of_cuda(cuda: str) -> str | None:
    """The local version tag of builds for a CUDA release: ``12.1`` -> ``cu121``."""
    found = minor_of(cuda)
    return None if found is None else f"cu{found[0]}{found[1]}"
