from __future__ import annotations

import pytest

from envlock.findings import JsonValue
from envlock.report import wording
from tests.unit import report_samples as samples


@pytest.mark.parametrize(
    ("fact", "subject", "shown"),
    [
        ("12.1", "", "12.1"),
        ("", "", "(empty)"),
        (None, "", "-"),
        (True, "x_bytes", "true"),
        (0.5, "", "0.5"),
        ({"absent": True}, "", "absent"),
        ({"unknown": "not recorded"}, "", "unknown (not recorded)"),
        (["sm_80", "sm_90"], "", '["sm_80", "sm_90"]'),
        (["sm_80"] * 40, "", "40 entries"),
        (512, "limits.shm_bytes", "512 bytes"),
        (67108864, "limits.shm_bytes", "64 MiB"),
        (25757220864, "gpus.0.memory_bytes", "23.99 GiB"),
        (25757220864, "gpus.0.name", "25757220864"),
        (1 << 50, "system.memory_bytes", "1024 TiB"),
    ],
)
def test_values_for_people(fact: JsonValue, subject: str, shown: str) -> None:
    assert wording.value(fact, subject) == shown


def test_evidence_shows_what_a_table_holds() -> None:
    assert wording.value(["sm_80"] * 40, brief=False).startswith('["sm_80", ')


def test_change_of_equal_values_is_one_value() -> None:
    same = samples.finding("EL321", "info", "toolkit.nvcc", "x", left="13.0", right="13.0")
    assert wording.change(same) == "13.0"
    assert wording.change(samples.LEAD) == "2.3.0+cu121 → 2.4.0+cu118"


def test_consequences_are_named_once() -> None:
    again = samples.finding("EL299", "info", "torch.release", "A change.")
    cause = samples.finding("EL203", "error", "torch.release", "x", folded=(again,) * 48)
    assert wording.follow_names(cause) == "torch.release (48)"
    few = samples.finding("EL1", "error", "a", "b", folded=samples.FOLDED[:2])
    assert wording.follow_names(few) == "nvidia-cublas-cu12, nvidia-cudnn-cu12"


@pytest.mark.parametrize(
    ("hint", "answer"),
    [
        ("pip install torch==2.3.0", True),
        ("export A=b", True),
        ("uv pip install 'torch==2.3.0+cu121' --index-url https://wheels.example", True),
        ("export CUDA_VISIBLE_DEVICES=0, or unset it", False),
        ("pip uninstall torch until it is gone", False),
        ("docker run --shm-size=8g (or --ipc=host)", False),
        ("Update the driver.", False),
        ("pip install `x` or y", False),
        ("", False),
    ],
)
def test_commands_are_told_from_advice(hint: str, answer: object) -> None:
    assert wording.is_command(hint) is answer


def test_long_names_keep_their_end() -> None:
    assert wording.short_name("a" * 100 + "/pylock.env.toml").endswith("/pylock.env.toml")
    assert len(wording.short_name("a" * 100)) == wording.NAME_LIMIT


def test_unpaired_backticks_are_text() -> None:
    assert wording.code_spans("use `a b` or `c") == [
        (False, "use "),
        (True, "a b"),
        (False, " or `c"),
    ]
