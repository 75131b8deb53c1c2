"""An error message moves its cause to the top."""

from __future__ import annotations

import pytest

from envlock.diff.error_text import led_by_error
from envlock.facts import error_messages
from envlock.rules.errors import CAUSES
from envlock.rules.registry import all_codes
from tests.unit.envs import Facts, codes, gpu, one, pair, torch

TWO_FAULTS: Facts = {
    **torch("2.8.0+cu128", "12.8"),
    "driver/version": "470.182.03",
    "gpus": [gpu("6.1", "NVIDIA GeForce GTX 1080 Ti")],
    "system/os": "linux",
}


def test_every_known_message_has_an_entry_and_every_code_exists() -> None:
    assert set(CAUSES) == {message.id for message in error_messages()}
    assert {code for found in CAUSES.values() for code in found} <= set(all_codes())


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("CUDA error: no kernel image is available for execution on the device", "EL501"),
        ("The NVIDIA driver on your system is too old (found version 11040)", "EL401"),
    ],
)
def test_the_cause_of_the_error_leads(text: str, first: str) -> None:
    judged = one(TWO_FAULTS)
    assert sorted(codes(judged)) == ["EL401", "EL501"]
    led = led_by_error(judged, f"Traceback (most recent call last):\n  ...\nRuntimeError: {text}\n")
    assert codes(led)[0] == first
    assert sorted(codes(led)) == ["EL401", "EL501"]  # nothing is lost


def test_out_of_memory_leads_to_the_build_even_after_a_worse_looking_fault() -> None:
    left = {**torch("2.3.0+cu121", "12.1"), "python/bits": 64}
    right = {**torch("2.4.0+cu118", "11.8"), "python/bits": 32}
    judged = pair(left, right)
    assert codes(judged)[0] == "EL103"
    assert (
        codes(
            led_by_error(judged, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate")
        )[0]
        == "EL201"
    )


def test_a_known_error_without_a_finding_says_what_usually_causes_it() -> None:
    led = led_by_error(
        one({"python/version": "3.11.2"}), "forward compatibility was attempted on non supported HW"
    )
    assert codes(led)[0] == "EL931"
    assert "compat" in led.findings[0].message
    assert led.findings[0].sources


def test_an_unknown_error_is_said_to_be_unknown() -> None:
    assert codes(led_by_error(one(TWO_FAULTS), "KeyError: 'lr'"))[0] == "EL932"
