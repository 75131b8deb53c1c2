"""The sizes and habits that PyTorch's CUDA caching allocator has built in, by torch release.

Learned from the public source (``c10/cuda/CUDACachingAllocator.cpp`` and
``c10/core/AllocatorConfig.cpp``) and, for every release in ``CHECKED_RELEASES``, from the compiled
allocator of that release itself (``docs/allocator.md`` says how). All sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

from packaging.version import InvalidVersion, Version

from envlock.errors import InputError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

CHECKED_RELEASES = (
    "2.0.1",
    "2.1.2",
    "2.2.2",
    "2.3.0",
    "2.4.1",
    "2.5.1",
    "2.6.0",
    "2.7.1",
    "2.8.0",
    "2.9.1",
    "2.10.0",
    "2.11.0",
    "2.12.1",
    "2.13.0",
    "2.14.1",
    "2.15.0",
)
"""One patch release a minor release: what lies between two of them follows the older one."""

OLDEST = Version("1.13")
NEWEST = Version("2.15")


class Ties(Enum):
    """Which of several equally large free blocks is taken."""

    ADDRESS = "the lowest address"
    BLOCK_AGE = "the block that came to be first"
    SEGMENT_AGE = "the oldest segment, then the lowest address"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What no setting changes within one release; the names are ours."""

    min_block: int = 512
    """Every request is rounded up to a multiple of this."""
    small_size: int = MIB
    """The largest (rounded) request that the small pool serves."""
    small_segment: int = 2 * MIB
    """What the small pool asks the driver for, whatever the request."""
    min_large: int = 10 * MIB
    """From this size on a request gets a segment of its own size."""
    large_segment: int = 20 * MIB
    """What a smaller request of the large pool asks for; ``large_segment_size_mb`` since 2.11."""
    round_large: int = 2 * MIB
    """Segments from ``min_large`` on are rounded up to a multiple of this."""
    small_rest: int = 512
    """The smallest rest that is split off a block of the small pool, or of expandable segments."""
    large_rest: int = MIB + 1
    """The smallest rest that is split off a block of the large pool."""
    non_split_rounding: int = 20 * MIB
    """How much larger than an oversize request its block may be; an option since 2.6."""
    address_space: Fraction = Fraction(9, 8)
    """An expandable segment's address range, as a share of the card's memory."""
    roundup_start: int = MIB
    """The first of the sixteen doubling intervals of ``roundup_power2_divisions``."""
    one_division_rounds: bool = True
    """Whether ``roundup_power2_divisions:1`` still rounds to ``min_block``."""
    rest_keeps_last: bool = True
    """Whether ``>`` in a list of divisions leaves the interval named before it alone."""
    full_fraction_limits: bool = False
    """Whether a memory fraction of 1.0 sets a limit, and so lets garbage be collected."""
    least_option_mb: int = 20
    """The smallest ``max_split_size_mb`` and ``max_non_split_rounding_mb``."""
    zero_divisions: bool = True
    """Whether a list of divisions may say 0 (do not round) for an interval."""
    oversize_release_fails: bool = False
    """Whether a split limit together with expandable segments ends the program with an internal
    error when the card is full and a free block reaches the limit."""
    ties: Ties = Ties.ADDRESS
    """What decides between free blocks of one size."""


def parse_torch_release(text: str) -> Version:
    """The release of a torch version string; the local part (``+cu121``) says nothing here.

    Raises InputError for text that is no version, and for releases older than 1.13.
    """
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise InputError(
            f"{text!r} is not a torch version", hint="write it as 2.6.0 or 2.6.0+cu124"
        ) from error
    if version < OLDEST:
        raise InputError(
            f"the allocator of torch {text} is not modelled",
            hint=f"releases from {OLDEST} on are",
        )
    return version


def rules_for(torch: Version) -> Rules:
    """The rules of one release; one newer than ``NEWEST`` gets the newest known."""
    rules = Rules(ties=Ties.SEGMENT_AGE)
    if torch < Version("2.13.dev0"):
        rules = replace(rules, ties=Ties.BLOCK_AGE)
    if torch < Version("2.12.dev0"):
        rules = replace(rules, ties=Ties.ADDRESS)
    if torch < Version("2.10.dev0"):
        rules = replace(rules, rest_keeps_last=False, full_fraction_limits=True, least_option_mb=21)
    if torch < Version("2.5.dev0"):
        rules = replace(rules, oversize_release_fails=True)
    if torch < Version("2.4.dev0"):
        rules = replace(rules, one_division_rounds=False, zero_divisions=False)
    return rules
