"""The smoke probe's own functions, and what its text has to be."""

from __future__ import annotations

import ast
import hashlib
import json
import tokenize
from typing import Any

import pytest

from envlock.targets.base import PROBES
from envlock.targets.smoke import CPU_BATTERY, CUDA_BATTERY, SmokeCall
from tests.unit.probes import probe_module

FILES = sorted(PROBES.glob("smoke*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_python_3_8_in_ascii(path: Any) -> None:
    text = path.read_text(encoding="ascii")
    ast.parse(text, feature_version=(3, 8))


def test_the_program_carries_itself_for_its_children() -> None:
    source = SmokeCall(probe="smoke").source().decode("ascii")
    first, second = source.splitlines()
    program = ast.literal_eval(first.removeprefix("PROGRAM = "))
    assert second == "exec(PROGRAM)"
    assert all(path.stem in program for path in FILES)


def test_every_group_that_the_host_asks_for_exists() -> None:
    groups = probe_module("smoke_groups").GROUPS
    assert groups.keys() == {*CPU_BATTERY, *CUDA_BATTERY, "compile"}


PINNED = {1: "f86bca03d964"}
"""Battery version -> digest of the code that defines the workloads."""


def test_a_change_of_the_workloads_goes_with_a_new_battery_version() -> None:
    """Records of other workloads must not be compared. When this fails: if a figure moved, raise
    BATTERY_VERSION; in both cases write the new digest above."""
    with (PROBES / "smoke_workloads.py").open("rb") as file:
        code = [
            token.string
            for token in tokenize.tokenize(file.readline)
            if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING)
            and not token.string.startswith('"""')
        ]
    digest = hashlib.sha256(" ".join(code).encode()).hexdigest()[:12]
    assert {probe_module("smoke_workloads").BATTERY_VERSION: digest} == PINNED


def test_reasons_are_one_short_line_without_paths() -> None:
    scrub = probe_module("smoke_lines").scrub
    assert scrub("cannot open '/home/ana/x.so':\n  no file") == "cannot open '<path>': no file"
    assert scrub("1/2 of a thing") == "1/2 of a thing"
    assert len(scrub("x" * 1000)) == 300


def done(place: str, values: Any) -> dict[str, Any]:
    return {"place": place, "state": "done", "values": values, "seconds": 0.5}


def test_lines_become_probes() -> None:
    found = probe_module("smoke_lines").collect(
        [
            {"state": "import"},
            {"place": "numerics/values/lm", "state": "start"},
            done("numerics/values/lm", {"loss": 1}),
            {"place": "numerics/values/sdpa", "state": "failed", "reason": "no sdpa"},
            done("shm", {"free": 3}),
            {"state": "end"},
        ],
        None,
    )
    assert found == {
        "numerics": {
            "status": "ok",
            "seconds": 0.5,
            "values": {"lm": {"loss": 1}},
            "skipped": {"sdpa": "no sdpa"},
        },
        "shm": {"status": "ok", "seconds": 0.5, "free": 3},
    }


def test_a_kill_keeps_what_was_measured_and_names_the_step() -> None:
    found = probe_module("smoke_lines").collect(
        [done("a/values/one", 1), {"place": "a/values/two", "state": "start"}], "killed"
    )
    assert found["a"]["values"] == {"one": 1}
    assert found["a"]["skipped"] == {"two": "killed"}


def test_a_probe_without_figures_is_unavailable_even_with_a_control() -> None:
    found = probe_module("smoke_lines").collect(
        [
            {"place": "leak/values", "state": "failed", "reason": "no malloc"},
            done("leak/control", {"malloc": 1}),
        ],
        None,
    )
    assert found == {"leak": {"status": "unavailable", "reason": "no malloc"}}


def test_only_lines_with_the_token_are_read() -> None:
    out = b'noise\ntok {"state": "end"}\n{"state": "fake"}\n'
    assert probe_module("smoke_lines").parse_lines(out, "tok") == [{"state": "end"}]


@pytest.mark.parametrize(
    ("values", "slope"),
    [([1, 2, 3, 4], 1.0), ([5, 5, 5], 0.0), ([0, 0, 0, 900, 900, 900], 225.0), ([0, 9], 9.0)],
)
def test_the_slope_is_the_median_of_all_pairs(values: list[int], slope: float) -> None:
    assert probe_module("smoke_memory").theil_sen(values) == slope


def test_one_jump_in_many_steps_is_no_slope() -> None:
    assert probe_module("smoke_memory").theil_sen([0] * 11 + [1_000_000, 0]) == 0


def test_blocks_are_counted_without_regard_to_order() -> None:
    describe = probe_module("smoke_allocator").describe_blocks
    assert describe([4, 1, 4]) == describe([4, 4, 1])
    assert describe([4, 1, 4])["largest"] == [{"size": 4, "count": 2}, {"size": 1, "count": 1}]
    assert describe([4, 1])["multiset"] != describe([4, 1, 1])["multiset"]
    assert json.dumps(describe([]))
