"""What a traced run would need on a GPU, by the model of the caching allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envlock.allocator.rules import parse_torch_release, rules_for
from envlock.allocator.segments import Context
from envlock.allocator.settings import Settings, parse_settings, settings_text
from envlock.allocator.whatif import Workload, need
from envlock.errors import InputError

Trace = Sequence[tuple[int, int]]
"""(block, bytes) for an allocation, (block, 0) for its release, in order."""


def simulate(trace: Trace, torch: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The probe ``sim`` of a record: under torch's own settings, and under the user's if any.

    Raises InputError for a torch release that is not modelled.
    """
    rules = rules_for(release := parse_torch_release(torch))
    work = Workload(operations=trace, contexts=(Context(),), caveats=())

    def figures(settings: Settings) -> dict[str, int]:
        found = need(work, rules, settings)
        return {
            "requested": peak_requested(trace),
            "reserved": found.peak_reserved,
            "min_device": found.smallest,
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
