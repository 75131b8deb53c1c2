"""The list of checks and the verdict of ``requires``, as people read them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from envlock.diff.judge import Status, judge_one
from envlock.diff.one_page import checklist, verdict_page
from envlock.diff.requires import Machine, on_machine
from envlock.rules.registry import RULES
from tests.unit.envs import Facts, codes, env, one
from tests.unit.healthy import CUDA_TORCH

FAMILIES = ("driver", "libraries", "packages", "preflight", "system", "torch")
CHECKS = [rule.code for rule in RULES if rule.one is not None]
LOCK = env(CUDA_TORCH)


def _cases() -> list[tuple[str, Facts]]:
    """(code, environment that trips it) of every family's own tests."""
    found: list[tuple[str, Facts]] = []
    for family in FAMILIES:
        trips: dict[str, tuple[Any, ...]] = importlib.import_module(
            f"tests.unit.test_rules_{family}"
        ).TRIPS
        found += [(case[1], case[0]) for case in trips.values()]
    return found


def test_at_least_forty_checks_and_each_has_a_case_that_trips_it() -> None:
    outcomes = judge_one(LOCK).outcomes
    assert len(outcomes) == len(CHECKS) >= 40
    tripped = set()
    for code, facts in _cases():
        judged = one(facts)
        seen = {o.code for o in judged.outcomes if o.status in {Status.FAILED, Status.NOTED}}
        assert code in seen, code
        assert f"  {code}  " in checklist(judged.outcomes, verbose=False)
        tripped.add(code)
    assert set(CHECKS) - tripped == set()


def test_forty_are_decided_on_a_full_capture() -> None:
    decided = [o for o in judge_one(LOCK).outcomes if o.status is Status.PASSED]
    assert len(decided) >= 40


def test_the_short_list_counts_and_the_long_one_names_all() -> None:
    outcomes = one({**CUDA_TORCH, "driver/version": "470.182.03"}).outcomes
    short, long = (checklist(outcomes, verbose=v) for v in (False, True))
    assert short.startswith(f"{len(CHECKS)} checks: ")
    assert "EL401" in short
    assert "EL501" not in short
    assert all(f"  {code}  " in long for code in CHECKS)


def test_what_could_not_be_checked_says_why() -> None:
    text = checklist(one({"torch/version": "2.3.0+cu121"}).outcomes, verbose=True)
    part = text.partition("not checkable: whether")[2].partition("passed: ")[0]
    lines = part.splitlines()[1:-1]
    assert len(lines) > 20
    assert all(line.startswith("         ") for line in lines[1::2])
    assert any("not recorded" in line for line in lines)


def test_a_hostile_reason_stays_one_line() -> None:
    facts: Facts = {"driver/version": {"unknown": "\x1b[2J\n::error::x"}}
    text = checklist(one(facts).outcomes, verbose=True)
    assert "\x1b" not in text
    assert "\n::error" not in text


@pytest.mark.parametrize(
    ("machine", "begins"),
    [
        (Machine(), "REQUIREMENTS  a.lock\n"),
        (Machine(gpu="sm_86"), "CAN RUN  a.lock on GPU sm_86\n"),
        (Machine(gpu="RTX 5090"), "CANNOT RUN  a.lock on GPU RTX 5090\n"),
        (Machine(gpu="Radeon 9700"), "UNDECIDED  a.lock on GPU Radeon 9700\n"),
    ],
)
def test_the_verdict_comes_first(machine: Machine, begins: str) -> None:
    page = verdict_page("a.lock", on_machine(LOCK, machine), machine)
    assert page.startswith(begins)
    assert "525.60.13" in page


def test_an_error_decides_even_where_another_question_stays_open() -> None:
    machine = Machine(gpu="Radeon 9700", glibc="2.12")
    judged = on_machine(LOCK, machine)
    assert judged.checked > 0
    assert codes(judged)[0] == "EL601"
    assert "Radeon" in "".join(judged.unknown)
    assert on_machine(LOCK, Machine(gpu="Radeon 9700")).checked == 0
