"""What a traced run would need on a GPU, by the model of the caching allocator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from envlock.allocator.device import Device
from envlock.allocator.model import Allocator, Placed
from envlock.allocator.recording import parse_recording
from envlock.allocator.replay import replay, score
from envlock.allocator.rules import parse_torch_release, rules_for
from envlock.allocator.segments import Context
from envlock.allocator.settings import Settings, parse_settings, settings_text
from envlock.allocator.whatif import Workload, need
from envlock.errors import InputError

_STRETCHES = 60
"""Enough for the width of a page, and few lines in a lock."""

Trace = Sequence[tuple[int, int]]
"""(block, bytes) for an allocation, (block, 0) for its release, in order."""


def simulate(trace: Trace, torch: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The probe ``sim`` of a record: under torch's own settings, and under the user's if any.

    Raises InputError for a torch release that is not modelled.
    """
    rules = rules_for(release := parse_torch_release(torch))
    work = Workload(operations=trace, contexts=(Context(),), caveats=())

    def figures(settings: Settings) -> dict[str, Any]:
        found = need(work, rules, settings)
        return {
            "requested": peak_requested(trace),
            "reserved": found.peak_reserved,
            "min_device": found.smallest,
            "timeline": timeline(trace, Allocator(rules, settings, Device(), work.contexts)),
        }

    probe: dict[str, Any] = {"status": "ok", "values": {"default_settings": figures(Settings())}}
    text = settings_text(environ, release)
    if text:
        probe["settings"] = {"user_settings": text}
        try:
            probe["values"]["user_settings"] = figures(parse_settings(text, release))
        except InputError as error:
            probe["skipped"] = {"user_settings": error.message}
    return probe


def timeline(trace: Trace, allocator: Allocator) -> dict[str, Any]:
    """A ``MemoryTimeline`` of the trace on a card that is large enough."""
    allocated = 0
    sizes: dict[int, int] = {}
    levels = []
    for block, size in trace:
        placed: list[Placed] = []
        allocator.run([(block, size)], placed)
        for begin, end, _ in placed:
            sizes[block] = end - begin
            allocated += end - begin
        if not size:
            allocated -= sizes.pop(block)
        levels.append((allocated, allocator.segments.reserved))
    stretch = max(1, -(-len(levels) // _STRETCHES))
    most = [
        [max(column) for column in zip(*levels[first : first + stretch], strict=True)]
        for first in range(0, len(levels), stretch)
    ]
    return {
        "operations": len(levels),
        "allocated": [one for one, _ in most],
        "reserved": [other for _, other in most],
    }


def check_model(
    recording: Mapping[str, Any], torch: str, environ: Mapping[str, str]
) -> dict[str, int]:
    """How many of a real card's decisions the model makes as it did.

    Raises InputError for what is no recording, and for settings or releases that are not modelled.
    """
    release = parse_torch_release(torch)
    settings = parse_settings(settings_text(environ, release) or "", release)
    history = parse_recording("the card's recording", json.dumps(recording).encode())
    found = replay(history, rules_for(release), settings)
    right = score(history, found)
    recorded = history.decisions.peak_reserved or 0
    return {
        "allocations": right.allocations,
        "decisions_right": right.decisions_right,
        "placements_right": right.placements_right,
        "peak_reserved": found.peak_reserved,
        "recorded_peak_reserved": recorded,
    }


def peak_requested(trace: Trace) -> int:
    """The most bytes alive at once, before any rounding."""
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
