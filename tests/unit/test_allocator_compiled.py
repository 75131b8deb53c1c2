"""The model against torch's own compiled allocators, release by release and setting by setting.

The expected answers were recorded without a GPU; ``data/allocator/README.md`` says how.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from envlock.allocator.device import Device
from envlock.allocator.model import CONTEXT, FREE, Allocator, Placed
from envlock.allocator.rules import CHECKED_RELEASES, Rules, Ties, rules_for
from envlock.allocator.segments import Context, OutOfDeviceMemoryError
from envlock.allocator.settings import parse_settings

DATA = Path(__file__).parent / "data/allocator/compiled/decisions.json.gz"
CASES: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))["cases"]


class NumberedDevice(Device):
    """Says which segment an address belongs to, in the order in which they came."""

    def __init__(self, capacity: int | None, *, alternate: bool) -> None:
        super().__init__(capacity)
        self.bases: list[int] = []
        self._alternate = alternate
        self._lowest = 1 << 46
        if alternate:
            self._next = 1 << 46

    def reserve_addresses(self, size: int) -> int:
        """As the driver of the recipe: every second one below all others, if so asked."""
        base = super().reserve_addresses(size)
        if self._alternate and len(self.bases) % 2:
            self._lowest -= -(-size // (2 << 20)) * (2 << 20) + (2 << 20)
            base = self._lowest
        self.bases.append(base)
        return base

    def place(self, address: int) -> list[int]:
        base = max(base for base in self.bases if base <= address)
        return [self.bases.index(base), address - base]


def play(case: dict[str, Any], rules: Rules) -> tuple[list[list[int]], list[int]]:
    """Places of a case's allocations (empty: out of memory) and the figures at its end."""
    settings = parse_settings(case["settings"], Version(case["torch"]))
    if case["fraction"] is not None:
        settings = replace(settings, fraction=case["fraction"])
    device = NumberedDevice(
        case["card"] or None, alternate=case["alternate"] and rules.ties is Ties.ADDRESS
    )
    streams = sorted({0, *(row[2] for row in case["operations"] if len(row) == 3)})
    allocator = Allocator(rules, settings, device, [Context(stream=one) for one in streams])
    places: list[list[int]] = []
    sizes: dict[int, int] = {}
    peak = 0
    for operation in case["operations"]:
        if not operation:
            allocator.empty_cache()
        elif len(operation) == 1:
            if sizes.pop(operation[0], 0):
                allocator.run([(operation[0], FREE)])
        else:
            block, size, stream = operation
            placed: list[Placed] = []
            try:
                allocator.run([(streams.index(stream), CONTEXT), (block, size)], placed)
            except OutOfDeviceMemoryError:
                places.append([])
                continue
            begin, end, _ = placed[0]
            places.append(device.place(begin))
            sizes[block] = end - begin
            peak = max(peak, sum(sizes.values()))
    held = allocator.segments
    final = [held.peak_reserved, held.reserved, peak, allocator.allocated, held.retries, held.ooms]
    return places, final


def agrees(case: dict[str, Any], rules: Rules) -> bool:
    """Whether the model decides as the compiled allocator did."""
    places, final = play(case, rules)
    if not case["final"]:  # torch ended by itself: the model must run out of memory right there
        seen = len(case["places"])
        return bool(places[: seen + 1] == [*case["places"], []])
    return bool(places == case["places"] and final == case["final"])


def name_of(case: dict[str, Any]) -> str:
    return f"{case['torch']}-{case['settings'] or 'default'}-{case['card'] >> 20}MiB"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_decides_as_the_compiled_allocator(case: dict[str, Any]) -> None:
    assert agrees(case, rules_for(Version(case["torch"])))


def test_the_cases_reach_what_they_are_for() -> None:
    finals = [case["final"] for case in CASES]
    assert sum(not final for final in finals) >= 2, "torch's own internal error"
    assert sum(bool(final) and final[4] > 0 for final in finals) >= 40, "retries"
    assert sum(bool(final) and final[5] > 0 for final in finals) >= 20, "out of memory"
    releases = {case["torch"] for case in CASES}
    assert releases <= set(CHECKED_RELEASES)
    assert {"2.0.1", "2.3.0", "2.6.0", "2.15.0"} <= releases


@pytest.mark.parametrize(
    ("torch", "change"),
    [
        ("2.3.0", {"one_division_rounds": True}),
        ("2.4.1", {"one_division_rounds": False}),
        ("2.4.1", {"oversize_release_fails": False}),
        ("2.6.0", {"oversize_release_fails": True}),
        ("2.9.1", {"full_fraction_limits": False}),
        ("2.10.0", {"full_fraction_limits": True}),
        ("2.11.0", {"ties": Ties.SEGMENT_AGE}),
        ("2.13.0", {"ties": Ties.ADDRESS}),
    ],
)
def test_a_rule_of_another_release_is_noticed(torch: str, change: dict[str, Any]) -> None:
    rules = replace(rules_for(Version(torch)), **change)
    assert not all(agrees(case, rules) for case in CASES if case["torch"] == torch)
