"""The list of rules as a whole: codes, manual, and that each has its cases."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from envlock.findings import Severity
from envlock.rules.base import Rule
from envlock.rules.registry import RULES, all_codes, manual

FAMILIES = {
    "allocator_settings": "7",
    "companions": "2",
    "containers": "4",
    "cuda_libraries": "3",
    "devices": "7",
    "domain_libraries": "2",
    "driver": "4",
    "gpu": "5",
    "gpu_state": "5",
    "installation": "1",
    "interpreter": "1",
    "library_versions": "3",
    "lock_state": "9",
    "packages": "1",
    "preflight": "6",
    "system": "6",
    "toolkit": "3",
    "torch_build": "2",
    "torch_state": "2",
    "variables": "7",
}
BY_CODE = {rule.code: rule for rule in RULES}


def test_no_code_is_used_twice() -> None:
    assert len(BY_CODE) == len(RULES)


def test_every_rule_that_is_written_is_listed() -> None:
    written = [
        value
        for name in FAMILIES
        for value in vars(importlib.import_module(f"envlock.rules.{name}")).values()
        if isinstance(value, Rule)
    ]
    assert len(written) >= len(RULES)
    assert {rule.code for rule in written} == BY_CODE.keys()


def test_all_codes_are_in_order_and_of_the_right_form() -> None:
    codes = all_codes()
    assert list(codes) == sorted(codes)
    assert all(re.fullmatch(r"EL[1-9]\d\d", code) for code in codes)
    assert set(BY_CODE) <= set(codes)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_belongs_to_its_file(rule: Rule) -> None:
    function = rule.one or rule.pair
    assert function is not None
    assert rule.code[2] == FAMILIES[function.__module__.rpartition(".")[2]]


@pytest.mark.parametrize("code", all_codes())
def test_every_code_has_a_manual_page(code: str) -> None:
    page = manual(code)
    assert page is not None
    assert page.title.endswith(".")
    assert "To do:" in page.text
    assert len(page.title) <= 100


def test_the_manual_takes_small_letters_and_knows_no_other_codes() -> None:
    assert manual("el201") == manual("EL201")
    assert manual("EL000") is None


def test_a_rebuild_is_never_judged_more_mildly() -> None:
    for rule in RULES:
        assert rule.strict in {None, Severity.ERROR}, rule.code


def test_every_rule_is_spoken_of_in_a_test() -> None:
    folder = Path(__file__).parent
    texts = "".join(p.read_text(encoding="utf-8") for p in folder.glob("test_*.py"))
    assert [rule.code for rule in RULES if f'"{rule.code}"' not in texts] == []
