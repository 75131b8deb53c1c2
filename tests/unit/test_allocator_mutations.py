"""Every constant of the allocator matters: changing any one must make an answer wrong.

A rule that is added without an entry here, or that nothing depends on, fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from envlock.allocator import device
from envlock.allocator.device import Device
from envlock.allocator.history import History
from envlock.allocator.model import EMPTY_CACHE, FREE, Allocator, Operation, Placed
from envlock.allocator.recording import read_recording
from envlock.allocator.replay import replay, score
from envlock.allocator.rules import MIB, Rules, Ties, rules_for
from envlock.allocator.segments import OutOfDeviceMemoryError
from envlock.allocator.settings import parse_settings
from envlock.errors import InputError
from tests.unit.test_allocator_compiled import CASES, agrees
from tests.unit.test_allocator_model import SIZES

DATA = Path(__file__).parent / "data/allocator"

BY_RECORDINGS: dict[str, list[Any]] = {
    "min_block": [256, 1024],
    "small_size": [MIB - 512, MIB + 512, 2 * MIB],
    "small_segment": [MIB, 4 * MIB],
    "min_large": [8 * MIB, 10 * MIB - 512, 10 * MIB + 512, 20 * MIB],
    "large_segment": [18 * MIB, 22 * MIB],
    "round_large": [MIB, 4 * MIB],
    "small_rest": [1024, 1 << 20],
    "large_rest": [512, 2 * MIB, 1 << 40],
    "ties": [Ties.SEGMENT_AGE],
}
"""Wrong values that recordings of real GPUs notice, or (by a few bytes off) known answers."""

BY_COMPILED: dict[str, list[Any]] = {
    "non_split_rounding": [10 * MIB, 40 * MIB],
    "roundup_start": [2 * MIB],
    "one_division_rounds": [False],
    "full_fraction_limits": [True],
    "oversize_release_fails": [True],
}
"""Wrong values that only settings show: noticed by what compiled allocators decided."""

BY_KNOWN_ANSWERS: dict[str, list[Any]] = {
    "address_space": [Fraction(1), Fraction(5, 4)],
    "rest_keeps_last": [False],
    "least_option_mb": [21],
    "zero_divisions": [False],
}


@cache
def recordings() -> tuple[History, ...]:
    return tuple(read_recording(path) for path in sorted(DATA.glob("trace-*.json.gz")))


def all_right(rules: Rules) -> bool:
    for history in recordings():
        found = replay(history, rules)
        result = score(history, found)
        totals = (found.peak_reserved, found.final_reserved)
        recorded = (history.decisions.peak_reserved, history.decisions.final_reserved)
        if (result.decisions_right, result.placements_right) != (result.allocations,) * 2:
            return False
        if totals != recorded:
            return False
    return True


def sizes_right(rules: Rules) -> bool:
    for requested, block, segment in SIZES:
        model = Allocator(rules, parse_settings(""), Device())
        placed: list[Placed] = []
        model.run([(1, requested)], placed)
        begin, end, _ = placed[0]
        if (end - begin, model.segments.reserved) != (block, segment):
            return False
    return True


def mutants(table: dict[str, list[Any]]) -> Iterator[tuple[str, Any]]:
    for name, values in table.items():
        yield from ((name, value) for value in values)


def test_every_rule_has_a_mutant() -> None:
    covered = BY_RECORDINGS.keys() | BY_COMPILED.keys() | BY_KNOWN_ANSWERS.keys()
    assert covered == {field.name for field in fields(Rules)}


def test_the_rules_as_they_are_are_right() -> None:
    assert all_right(Rules())
    assert sizes_right(Rules())


@pytest.mark.parametrize(("name", "value"), list(mutants(BY_RECORDINGS)))
def test_recordings_notice(name: str, value: Any) -> None:
    assert value != getattr(Rules(), name)
    rules = replace(Rules(), **{name: value})
    assert not (sizes_right(rules) and all_right(rules))


@pytest.mark.parametrize("name", BY_RECORDINGS)
def test_recordings_alone_notice_some_wrong_value_of_each(name: str) -> None:
    assert not all(all_right(replace(Rules(), **{name: value})) for value in BY_RECORDINGS[name])


@pytest.mark.parametrize(("name", "value"), list(mutants(BY_COMPILED)))
def test_compiled_allocators_notice(name: str, value: Any) -> None:
    def wrong(case: dict[str, Any]) -> bool:
        rules = rules_for(Version(case["torch"]))
        return getattr(rules, name) != value and not agrees(case, replace(rules, **{name: value}))

    assert any(wrong(case) for case in CASES)


@pytest.mark.parametrize("value", BY_KNOWN_ANSWERS["address_space"])
def test_the_length_of_an_address_range_shows_when_it_is_used_up(value: Fraction) -> None:
    def last_place(rules: Rules) -> int:
        """Two halves of a card alternate until the range ends and another one begins."""
        settings = parse_settings("expandable_segments:True")
        model = Allocator(rules, settings, Device(400 * MIB))
        placed: list[Placed] = []
        operations: list[Operation] = [(0, 180 * MIB), (1, 180 * MIB), (0, FREE), (0, EMPTY_CACHE)]
        model.run([*operations, (2, 2 * MIB), (3, 200 * MIB)], placed)
        return placed[-1][0]

    assert last_place(replace(Rules(), address_space=value)) != last_place(Rules())


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ("2.9.1", "max_split_size_mb:20"),
        ("2.3.0", "roundup_power2_divisions:[64:0,>:4]"),
    ],
)
def test_older_releases_refuse(release: str, text: str) -> None:
    parse_settings(text, Version("2.10.0"))
    with pytest.raises(InputError):
        parse_settings(text, Version(release))


def test_older_releases_extend_the_last_interval_over_the_one_before() -> None:
    text = "roundup_power2_divisions:[64:2,>:8]"
    assert parse_settings(text, Version("2.10.0")).divisions[6] == 2
    assert parse_settings(text, Version("2.9.1")).divisions[6] == 8


def test_the_page_of_the_driver_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def largest() -> int:
        model = Allocator(Rules(), parse_settings(""), Device(101 * MIB))
        for count in range(100):
            try:
                model.run([(count, 10 * MIB)])
            except OutOfDeviceMemoryError:
                return count
        return 100

    before = largest()
    monkeypatch.setattr(device, "PAGE", 16 * MIB)
    assert largest() != before
