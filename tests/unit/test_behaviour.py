"""The behaviour record and its rules: every rule trips on its fault, and not on its near miss."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from envlock.findings import Finding, Severity
from envlock.lock.behaviour import Behaviour, BehaviourRecord
from envlock.rules.behaviour import PAGES, judge_behaviour
from envlock.rules.behaviour_base import tolerances
from envlock.rules.behaviour_memory import operator_changes

DIGEST = "sha256:" + "0" * 64
OTHER_DIGEST = "sha256:" + "1" * 64
FLASH = "_scaled_dot_product_flash_attention_for_cpu x3"
MATH = "_scaled_dot_product_attention_math x3"
LOSS = [6.5, 6.0, 5.5]


def figures(**changes: Any) -> dict[str, Any]:
    loss = changes.pop("loss", LOSS)
    made = {
        "loss": [float(value).hex() for value in loss],
        "grad_norm": (1.5).hex(),
        "update_ratio": (0.015).hex(),
        "parameters": DIGEST,
    }
    return {**made, **changes}


def tensors(**changes: Any) -> dict[str, Any]:
    made = {"peak": 1_000_000, "step_end": 500_000, "left": 0, "ops": ["add.Tensor x12", FLASH]}
    return {**made, **changes}


def step(**changes: Any) -> dict[str, Any]:
    made = {
        "count": 10,
        "total": 4096,
        "multiset": DIGEST,
        "largest": [{"size": 1024, "count": 4}],
    }
    return {**made, **changes}


def record(**probes: Any) -> dict[str, Any]:
    """A clean CPU record; keyword arguments replace whole probes, None leaves one out."""
    made: dict[str, Any] = {
        "numerics": {"status": "ok", "values": {"lm_fp32": figures(), "lm_bf16": figures()}},
        "tensor_peak": {"status": "ok", "values": {"lm_fp32": tensors()}},
        "alloc_peak": {
            "status": "ok",
            "values": {"lm_fp32": {"peak": 1_100_000, "left": 0, "step": step()}},
        },
        "optimizer": {"status": "ok", "values": {"adamw_loop": 17_500_000}},
        "leak": {
            "status": "ok",
            "values": {"malloc": 700, "tensor": 0, "grad_fn": 0},
            "control": {"malloc": 45_000, "tensor": 4, "grad_fn": 1},
        },
    }
    made.update(probes)
    return {
        "schema": "envlock.behaviour/1",
        "device_class": "cpu",
        "battery": DIGEST,
        "created": "2026-11-30T00:00:00Z",
        "threads": 1,
        "env": {"torch": "2.3.0+cu121", "isa": "AVX2", "processor": "AuthenticAMD 25 1"},
        "probes": {name: probe for name, probe in made.items() if probe is not None},
    }


def numerics(**workloads: Any) -> dict[str, Any]:
    values = {"lm_fp32": figures(), "lm_bf16": figures(), **workloads}
    return record(numerics={"status": "ok", "values": values})


def on_torch(version: str, made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "env": {**made["env"], "torch": version}}


def judge(
    recorded: dict[str, Any] | None, measured: dict[str, Any]
) -> tuple[tuple[Finding, ...], int, tuple[str, ...]]:
    load = BehaviourRecord.model_validate
    return judge_behaviour(load(recorded) if recorded else None, load(measured))


def faults(recorded: dict[str, Any] | None, measured: dict[str, Any]) -> list[Finding]:
    """Leading findings that are more than a note."""
    return [f for f in judge(recorded, measured)[0] if f.severity is not Severity.INFO]


def codes(found: list[Finding]) -> list[str]:
    return [f.code for f in found]


def test_equal_records_pass_and_count_what_was_checked() -> None:
    found, checked, unknown = judge(record(), record())
    assert found == ()
    assert unknown == ()
    # losses, norms, ratios, parameters, finite: 5 x 2; leak 3; left 2; tensors 2 + attention 1;
    # allocator 2; optimizer 1
    assert checked == 21


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


# What trips and what must not, per rule: (code, recorded, measured) and the near miss.
LEAK_OK = {"status": "ok", "control": {"malloc": 45_000}}
CASES: dict[str, tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any]]] = {
    "EL801": (
        record(),
        numerics(lm_fp32=figures(loss=[6.5 * 1.001, 6.0, 5.5])),
        numerics(),
    ),
    "EL802": (
        record(),
        numerics(lm_fp32=figures(update_ratio=(0.03).hex(), loss=[6.5, 5.6, 5.0])),
        numerics(),
    ),
    "EL803": (
        record(),
        numerics(lm_fp32=figures(grad_norm=(0.4).hex(), loss=[6.5, 5.9, 5.4])),
        numerics(),
    ),
    "EL804": (
        None,
        numerics(lm_fp32=figures(loss=[6.5, float("nan"), float("nan")])),
        numerics(lm_fp32=figures(loss=[6.5, 1e30, 1e-30])),
    ),
    "EL805": (
        None,
        record(leak={**LEAK_OK, "values": {"malloc": 8193}}),
        record(leak={**LEAK_OK, "values": {"malloc": 8192, "tensor": 0, "grad_fn": 0}}),
    ),
    "EL806": (
        record(),
        record(
            tensor_peak={
                "status": "ok",
                "values": {"lm_fp32": tensors(peak=1_000_004, ops=["add.Tensor x13", FLASH])},
            }
        ),
        record(),
    ),
    "EL807": (
        record(),
        record(
            alloc_peak={
                "status": "ok",
                "values": {"lm_fp32": {"peak": 1_100_001, "left": 0, "step": step()}},
            }
        ),
        record(),
    ),
    "EL808": (
        None,
        record(tensor_peak={"status": "ok", "values": {"lm_fp32": tensors(left=4)}}),
        record(),
    ),
    "EL809": (
        record(),
        record(
            tensor_peak={
                "status": "ok",
                "values": {"lm_fp32": tensors(peak=1_900_000, ops=["add.Tensor x12", MATH])},
            }
        ),
        record(
            tensor_peak={
                "status": "ok",
                "values": {"lm_fp32": tensors(ops=["add.Tensor x40", FLASH])},
            }
        ),
    ),
    "EL813": (
        record(),
        record(optimizer={"status": "ok", "values": {"adamw_loop": 20_000_000}}),
        record(optimizer={"status": "ok", "values": {"adamw_loop": 17_000_000}}),
    ),
    "EL819": (
        record(),
        record(
            alloc_peak={
                "status": "ok",
                "values": {
                    "lm_fp32": {
                        "peak": 1_100_000,
                        "left": 0,
                        "step": step(multiset=OTHER_DIGEST, count=11),
                    }
                },
            }
        ),
        record(),
    ),
    "EL829": (record(), numerics(lm_fp32=figures(parameters=OTHER_DIGEST)), numerics()),
}


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
    notes = {"EL890", "EL891", "EL892"}
    assert {page.code for page in PAGES} - notes == CASES.keys()


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
    assert checked == 7  # finite losses, leaks, bytes left
    assert "behaviour.cpu.numerics" in unknown


def test_without_a_record_only_absolute_checks_are_made_and_it_is_said() -> None:
    found, checked, unknown = judge(None, record())
    assert [(f.code, f.severity) for f in found] == [("EL891", Severity.INFO)]
    assert checked == 7
    assert "behaviour.cpu.tensor_peak" in unknown


def test_what_could_not_run_is_unknown_and_never_a_pass() -> None:
    gone = {"status": "unavailable", "reason": "killed by SIGKILL"}
    found, checked, unknown = judge(record(), record(numerics=gone))
    assert unknown == ("behaviour.cpu.numerics",)
    assert [(f.code, f.severity) for f in found] == [("EL892", Severity.WARNING)]
    assert "SIGKILL" in found[0].message
    assert checked == 11


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
    with pytest.raises(ValidationError):
        BehaviourRecord.model_validate({**record(), **spoil})


def test_a_record_survives_the_lock_file() -> None:
    once = Behaviour.model_validate({"cpu": record()})
    dumped = once.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert Behaviour.model_validate(dumped) == once
    assert once.cuda is None
