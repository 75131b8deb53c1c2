"""The behaviour record and its rules: every rule trips on its fault, and not on its near miss."""

from __future__ import annotations

from typing import Any

import pytest

from envlock.errors import InputError
from envlock.findings import Severity
from envlock.lock.behaviour import Behaviour, BehaviourRecord
from envlock.lock.shape import ShapeError
from envlock.rules.behaviour import PAGES, judge_behaviour
from envlock.rules.behaviour_machine import KILLED
from envlock.rules.behaviour_memory import operator_changes
from envlock.rules.behaviour_tolerances import tolerances, with_overrides
from envlock.targets.base import PROBES
from tests.unit.behaviour_cases import CASES, LEAK_OK, LOADER_DIED, on_gpu, probe, shm
from tests.unit.behaviour_samples import (
    FLASH,
    OTHER_DIGEST,
    codes,
    faults,
    figures,
    judge,
    numerics,
    on_torch,
    record,
    tensors,
)


def test_equal_records_pass_and_count_what_was_checked() -> None:
    found, checked, unknown = judge(record(), record())
    assert found == ()
    assert unknown == ()
    # losses, norms, ratios, parameters, finite: 5 x 2; leak 3; left 2; tensors 2 + attention 1;
    # allocator 2; optimizer 1; the control of the leak 1
    assert checked == 22


def test_every_code_has_a_manual_with_a_next_step() -> None:
    names = [page.code for page in PAGES]
    assert len(set(names)) == len(names)
    for page in PAGES:
        assert page.code.startswith("EL8")
        assert page.title.endswith(".")
        assert "To do:" in page.manual


def test_every_tolerance_widens_from_info_to_error_and_says_where_it_is_from() -> None:
    for name, row in tolerances().items():
        assert row.source, name
        for column in (row.same, row.other):
            levels = [column[level] for level in ("info", "warn", "fail") if level in column]
            assert levels, name
            assert levels == sorted(levels), name


@pytest.mark.parametrize("code", CASES)
def test_a_rule_leads_on_its_fault_and_is_silent_on_the_near_miss(code: str) -> None:
    recorded, faulty, near = CASES[code]
    found = faults(recorded, faulty)
    assert codes(found)[:1] == [code]
    assert faults(recorded, near) == []


@pytest.mark.parametrize("code", CASES)
def test_a_finding_has_both_values_as_evidence(code: str) -> None:
    recorded, faulty, _ = CASES[code]
    leading = faults(recorded, faulty)[0]
    sides = {e.side.value for e in leading.evidence if e.path == leading.subject}
    assert sides == ({"left", "right"} if recorded else {"right"})


def test_every_rule_has_a_case() -> None:
    notes = {"EL890", "EL891", "EL892", "EL894"}
    assert {page.code for page in PAGES} - notes == CASES.keys() | {"EL828"}


def test_a_doubled_learning_rate_leads_with_the_update_and_folds_the_losses() -> None:
    (leading,) = faults(*CASES["EL802"][:2])
    assert leading.subject == "behaviour.cpu.numerics.lm_fp32.update_ratio"
    assert "+100 %" in leading.message
    assert "learning rate" in leading.message
    assert leading.hint
    assert [f.code for f in leading.folded] == ["EL801"]


def test_a_leak_leads_and_folds_what_follows_from_it() -> None:
    measured = record(
        leak={**LEAK_OK, "values": {"malloc": 45_703, "tensor": 4, "grad_fn": 1}},
        tensor_peak={"status": "ok", "values": {"lm_fp32": tensors(peak=1_000_012, left=12)}},
    )
    (leading,) = faults(record(), measured)
    assert leading.code == "EL805"
    assert "45.7 kB" in leading.message
    assert sorted(f.code for f in leading.folded) == ["EL806", "EL808"]


def test_the_same_fault_in_further_loops_is_one_finding() -> None:
    doubled = figures(update_ratio=(0.03).hex())
    (leading,) = faults(record(), numerics(lm_fp32=doubled, lm_bf16=doubled))
    assert leading.code == "EL802"
    assert "The same shows in lm_fp32.update_ratio." in leading.message


def test_a_loop_that_needs_less_is_not_the_same_as_one_that_needs_more() -> None:
    both = {"conv": tensors(peak=2_000_000), "lstm": tensors(peak=500_000)}
    one = record(tensor_peak={"status": "ok", "values": {"conv": tensors(), "lstm": tensors()}})
    other = record(tensor_peak={"status": "ok", "values": both})
    found = [f for f in judge(one, other).findings if f.code == "EL806"]
    assert [(f.severity, f.subject.split(".")[3]) for f in found] == [
        (Severity.ERROR, "conv"),
        (Severity.INFO, "lstm"),
    ]


def test_a_small_dev_shm_is_told_before_it_kills() -> None:
    (warning,) = faults(None, shm(free=60 << 20))
    assert (warning.code, warning.severity) == ("EL814", Severity.WARNING)
    assert faults(None, shm(free=1 << 30)) == []


def test_a_worker_killed_by_the_memory_limit_is_not_blamed_on_shm() -> None:
    (error,) = faults(None, shm(batches=1, failure=LOADER_DIED, oom_kills=1))
    assert error.code == "EL815"


def test_a_probe_killed_by_the_memory_limit_is_an_error_and_not_only_unknown() -> None:
    reason = f"the process was ended by SIGKILL ({KILLED} 1)"
    killed = record(numerics={"status": "unavailable", "reason": reason})
    (error,) = faults(record(), killed)
    assert (error.code, error.severity) == ("EL815", Severity.ERROR)
    assert [f.code for f in error.folded] == ["EL892"]


def test_the_probe_and_the_rule_say_killed_in_the_same_words() -> None:
    assert KILLED in (PROBES / "smoke.py").read_text()


def test_coarse_products_are_told_without_a_record() -> None:
    made = probe("precision", values={"matmul": 3e-4}, control={"matmul": 2e-3})
    (warning,) = faults(None, made)
    assert (warning.code, warning.severity) == ("EL810", Severity.WARNING)
    assert "TF32" in warning.message


def test_a_range_that_grew_is_a_warning() -> None:
    one = probe("fp16_range", values={"float16": {"sdpa": 28}})
    other = probe("fp16_range", values={"float16": {"sdpa": 64}})
    (warning,) = faults(one, other)
    assert (warning.code, warning.severity) == ("EL811", Severity.WARNING)


def test_random_streams_of_another_release_are_a_warning() -> None:
    one = probe("rng", values={"dropout": "0" * 16, "rand": "0" * 16}, control_changed=2)
    other = probe("rng", values={"dropout": "1" * 16, "rand": "0" * 16}, control_changed=2)
    (warning,) = faults(one, on_torch("2.13.0+cpu", other))
    assert (warning.code, warning.severity) == ("EL812", Severity.WARNING)
    assert "dropout" in warning.subject


def test_a_run_that_does_not_repeat_is_told() -> None:
    made = on_gpu({**record(), "noise": {"repeat_equal": False}})
    assert "EL828" in [f.code for f in judge(None, made).findings]


def test_other_releases_have_wider_limits() -> None:
    rounding = numerics(lm_fp32=figures(loss=[6.5, 6.0, 5.5 * (1 + 2e-7)], parameters=OTHER_DIGEST))
    assert codes(faults(record(), rounding)) == ["EL801"]
    assert faults(record(), on_torch("2.6.0+cpu", rounding)) == []
    drift = numerics(lm_fp32=figures(loss=[6.5, 6.0, 5.5 * (1 + 2e-3)]))
    (error,) = faults(record(), on_torch("2.6.0+cpu", drift))
    assert error.severity is Severity.ERROR


def test_bf16_has_limits_of_its_own() -> None:
    drift = {"loss": [6.5, 6.0, 5.5 * (1 + 6e-4)]}
    bf16 = numerics(lm_bf16=figures(**drift))
    fp32 = numerics(lm_fp32=figures(**drift))
    assert faults(record(), on_torch("2.6.0", bf16)) == []
    assert codes(faults(record(), on_torch("2.6.0", fp32))) == ["EL801"]


def test_an_unknown_processor_is_not_the_same_processor() -> None:
    one, other = numerics(lm_fp32=figures(loss=[6.5, 6.0, 5.5 * (1 + 2e-7)])), record()
    del one["env"]["processor"], other["env"]["processor"]
    assert faults(other, one) == []


def test_a_peak_that_fell_is_told_but_no_fault() -> None:
    less = record(tensor_peak={"status": "ok", "values": {"lm_fp32": tensors(peak=900_000)}})
    found, _, _ = judge(record(), less)
    assert [(f.code, f.severity) for f in found] == [("EL806", Severity.INFO)]


def test_a_moved_peak_is_explained_by_operators_and_known_changes() -> None:
    measured = record(
        tensor_peak={
            "status": "ok",
            "values": {"lm_fp32": tensors(peak=1_200_000, ops=["mul.Tensor x3", FLASH])},
        }
    )
    (leading,) = faults(record(), on_torch("2.9.0+cpu", measured))
    ops = {e.side.value: e.value for e in leading.evidence if e.path.endswith(".ops")}
    assert ops == {"left": ["add.Tensor x12"], "right": ["mul.Tensor x3"]}
    assert any("conv3d" in f.message for f in leading.folded)


def test_operators_that_are_new_or_gone_come_before_those_that_moved() -> None:
    one, other = ["add x9", "mul x1", "old x1"], ["add x2", "mul x2", "new x1"]
    assert operator_changes(one, other) == (["old x1", "add x7"], ["new x1", "mul x1"])


@pytest.mark.parametrize(
    "change",
    [{"battery": OTHER_DIGEST}, {"threads": 2}, {"device_class": "cuda"}],
    ids=lambda change: next(iter(change)),
)
def test_records_of_something_else_are_not_compared(change: dict[str, Any]) -> None:
    faulty = numerics(lm_fp32=figures(loss=[9.0, 9.0, 9.0]))
    found, checked, unknown = judge({**record(), **change}, faulty)
    assert [(f.code, f.severity) for f in found] == [("EL890", Severity.WARNING)]
    assert checked == 8  # finite losses, leaks and their control, bytes left
    assert "behaviour.cpu.numerics" in unknown


def test_without_a_record_only_absolute_checks_are_made_and_it_is_said() -> None:
    found, checked, unknown = judge(None, record())
    assert [(f.code, f.severity) for f in found] == [("EL891", Severity.INFO)]
    assert checked == 8
    assert "behaviour.cpu.tensor_peak" in unknown


def test_what_could_not_run_is_unknown_and_never_a_pass() -> None:
    gone = {"status": "unavailable", "reason": "killed by SIGKILL"}
    found, checked, unknown = judge(record(), record(numerics=gone))
    assert unknown == ("behaviour.cpu.numerics",)
    assert [(f.code, f.severity) for f in found] == [("EL892", Severity.WARNING)]
    assert "SIGKILL" in found[0].message
    assert checked == 12


def test_a_workload_that_one_side_lacks_is_unknown() -> None:
    _, _, unknown = judge(
        record(), record(numerics={"status": "ok", "values": {"lm_bf16": figures()}})
    )
    assert unknown == ("behaviour.cpu.numerics.lm_fp32",)


def test_a_skipped_workload_gives_its_reason() -> None:
    skipped = {"status": "ok", "values": {"lm_bf16": figures()}, "skipped": {"lm_fp32": "no sdpa"}}
    found, _, _ = judge(record(), record(numerics=skipped))
    assert ["no sdpa" in f.message for f in found] == [True]


def test_nothing_measured_checks_nothing() -> None:
    empty = {**record(), "probes": {}}
    assert judge(None, empty)[1] == 0


@pytest.mark.parametrize(
    "spoil",
    [
        {"threads": "1"},
        {"schema": "envlock.behaviour/2"},
        {"battery": "sha256:00"},
        {"surprise": 1},
        {"created": "x" * 3000},
        {"probes": {"leak": {"status": "fine"}}},
        {"probes": {"numerics": {"status": "ok", "values": {"Bad Name": figures()}}}},
        {"probes": {"numerics": {"status": "ok", "values": {"a": figures(grad_norm="1.5")}}}},
        {"probes": {"tensor_peak": {"status": "ok", "values": {"a": tensors(peak=-1)}}}},
        {"probes": {"tensor_peak": {"status": "ok", "values": {"a": tensors(ops=["x"] * 10_001)}}}},
    ],
    ids=lambda spoil: str(spoil)[:40],
)
def test_a_record_that_does_not_fit_is_refused(spoil: dict[str, Any]) -> None:
    with pytest.raises(ShapeError):
        BehaviourRecord.read({**record(), **spoil})


def test_a_record_survives_the_lock_file() -> None:
    once = Behaviour.read({"cpu": record()})
    dumped = once.plain()
    assert dumped["cpu"]["schema"] == "envlock.behaviour/1"
    assert Behaviour.read(dumped) == once
    assert once.cuda is None


def test_a_users_file_changes_limits_and_the_report_says_so() -> None:
    strict = with_overrides("[leak_malloc]\nother = { fail = 2048 }", "budget.toml")
    measured = BehaviourRecord.read(record(leak={**LEAK_OK, "values": {"malloc": 4144}}))
    assert "EL805" not in [f.code for f in judge_behaviour(None, measured).findings]
    found = {f.code: f for f in judge_behaviour(None, measured, strict).findings}
    assert found["EL805"].severity is Severity.ERROR
    assert "leak_malloc (same: fail 8192; other: fail 2048)" in found["EL894"].message
    assert not tolerances()["leak_malloc"].overridden


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tensor_pek]\nsame = { fail = 1 }", "no tolerance 'tensor_pek'"),
        ("[tensor_peak]\nsome = { fail = 1 }", "'some' is not a column"),
        ("[tensor_peak]\nsame = { bad = 1 }", "'bad' is not a level"),
        ("[tensor_peak]\nsame = { fail = nan }", "same.fail: not a number"),
        ("[tensor_peak]\nsame = { fail = -1 }", "same.fail: not a number"),
        ("[tensor_peak]\nsame = { fail = true }", "same.fail: not a number"),
        ("[tensor_peak]\nsame = 3", "tensor_peak.same: not a table"),
        ("tensor_peak = 3", "tensor_peak: 'a plain value' is not a column"),
        ("[tensor_peak", "budget.toml is not TOML"),
    ],
)
def test_a_users_file_with_a_fault_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        with_overrides(text, "budget.toml")
    assert said in caught.value.message
