"""How a child tells its parent what it measured, and how that becomes one entry per probe."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any, Callable, Dict, List, Optional

REASON_LENGTH = 300


def describe(error: BaseException) -> str:
    return scrub("%s: %s" % (type(error).__name__, error))


def scrub(text: str) -> str:
    """One line without paths: reasons are written into locks, which name no people."""
    text = re.sub(r"(?:/[^\s/:'\",()]+){2,}", "<path>", " ".join(str(text).split()))
    return text[:REASON_LENGTH]


class Emit:
    """One line per step, flushed: a kill loses whatever is still in a buffer."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, **line: Any) -> None:
        sys.stdout.write(self.token + " " + json.dumps(line, sort_keys=True) + "\n")
        sys.stdout.flush()

    def step(self, place: str, measure: Callable[[], Any]) -> None:
        """Announce, measure, report: a failure is that item's reason, not the group's end.

        ``place`` is where the result belongs: ``probe/values/workload``, or ``probe`` for a result
        that is several fields of the probe.
        """
        self(place=place, state="start")
        start = time.monotonic()
        try:
            values = measure()
        except Exception as error:
            self.skip(place, describe(error))
            return
        seconds = round(time.monotonic() - start, 3)
        self(place=place, state="done", values=values, seconds=seconds)

    def skip(self, place: str, reason: str) -> None:
        self(place=place, state="failed", reason=reason)


def parse_lines(out: bytes, token: str) -> List[Dict[str, Any]]:
    """Only whole lines of ours: torch and sitecustomize may print too."""
    start = token.encode() + b" "
    return [json.loads(line[len(start) :]) for line in out.splitlines() if line.startswith(start)]


def collect(lines: List[Dict[str, Any]], reason: Optional[str]) -> Dict[str, Any]:
    """Probe -> its figures, from the lines of one group.

    ``reason`` is why the group ended early, if it did; it goes to the step that was under way.
    """
    probes: Dict[str, Any] = {}
    under_way = None
    for line in lines:
        if "place" not in line:
            continue
        name, *keys = line["place"].split("/")
        probe = probes.setdefault(name, {"status": "ok", "seconds": 0.0, "skipped": {}})
        under_way = (probe, keys) if line["state"] == "start" else None
        if line["state"] == "failed":
            probe["skipped"][keys[-1] if keys else "all"] = line["reason"]
        elif line["state"] == "done":
            probe["seconds"] = round(probe["seconds"] + line["seconds"], 3)
            _put(probe, keys, line["values"])
    if reason and under_way:
        probe, keys = under_way
        probe["skipped"][keys[-1] if keys else "all"] = reason
    return {name: _complete(probe) for name, probe in probes.items()}


def _put(table: Dict[str, Any], keys: List[str], values: Any) -> None:
    if not keys:
        table.update(values)
        return
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    table[keys[-1]] = values


def _complete(probe: Dict[str, Any]) -> Dict[str, Any]:
    """A probe of which nothing was measured is unavailable, for the first reason there was."""
    measured = probe.keys() - {"status", "seconds", "skipped", "control"}
    if not measured:
        return {"status": "unavailable", "reason": next(iter(probe["skipped"].values()))}
    if not probe["skipped"]:
        del probe["skipped"]
    return probe
