"""What a traced run would need on a GPU, by the model of the caching allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packaging.version import Version

from envlock.allocator.device import Device
from envlock.allocator.model import Allocator, OutOfDeviceMemoryError
from envlock.allocator.rules import MIB, parse_torch_release, rules_for
from envlock.allocator.settings import Settings, parse_settings, settings_text
from envlock.errors import InputError

_STEP = 2 * MIB
"""A driver's page: cards that differ by less give the same answer."""


def simulate(
    trace: Sequence[tuple[int, int]], torch: str, environ: Mapping[str, str]
) -> dict[str, Any]:
    """The probe ``sim`` of a record: under default settings, and under the user's if there are any.

    ``trace``: (block, bytes) for an allocation, (block, 0) for a release.
    """
    release = parse_torch_release(torch)
    found: dict[str, Any] = {
        "status": "ok",
        "values": {"default_settings": _figures(trace, release, Settings())},
    }
    text = settings_text(environ, release)
    if text:
        found["settings"] = {"user_settings": text}
        try:
            settings = parse_settings(text, release)
            found["values"]["user_settings"] = _figures(trace, release, settings)
        except InputError as error:
            found["skipped"] = {"user_settings": error.message}
    return found


def _figures(
    trace: Sequence[tuple[int, int]], torch: Version, settings: Settings
) -> dict[str, int]:
    reserved = _reserved(trace, torch, settings, None)
    if reserved is None:  # without a limit only a fraction of no card could refuse
        raise InputError("the traced run does not fit under these settings")
    requested = _requested(trace)
    return {
        "requested": requested,
        "reserved": reserved,
        "min_device": _smallest_card(trace, torch, settings, (requested, reserved)),
    }


def _requested(trace: Sequence[tuple[int, int]]) -> int:
    live: dict[int, int] = {}
    now = peak = 0
    for block, size in trace:
        if size:
            live[block] = size
            now += size
            peak = max(peak, now)
        else:
            now -= live.pop(block)
    return peak


def _reserved(
    trace: Sequence[tuple[int, int]], torch: Version, settings: Settings, capacity: int | None
) -> int | None:
    """Peak reserved, or None where the run would be out of memory."""
    allocator = Allocator(rules_for(torch), settings, Device(capacity))
    try:
        allocator.run(trace)
    except OutOfDeviceMemoryError:
        return None
    return allocator.peak_reserved


def _smallest_card(
    trace: Sequence[tuple[int, int]],
    torch: Version,
    settings: Settings,
    bounds: tuple[int, int],
) -> int:
    """By bisection between what is requested at once and what is reserved without a limit."""
    too_small, enough = bounds[0] // _STEP - 1, -(-bounds[1] // _STEP)
    while enough - too_small > 1:
        middle = (too_small + enough) // 2
        if _reserved(trace, torch, settings, middle * _STEP) is None:
            too_small = middle
        else:
            enough = middle
    return enough * _STEP
