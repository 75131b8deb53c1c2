"""Behaviour records to judge: a clean one, and what replaces a part of it."""

from __future__ import annotations

from typing import Any

from envlock.findings import Finding, Severity
from envlock.lock.behaviour import BehaviourRecord
from envlock.rules.behaviour import Judged, judge_behaviour

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


def judge(recorded: dict[str, Any] | None, measured: dict[str, Any]) -> Judged:
    load = BehaviourRecord.read
    return judge_behaviour(load(recorded) if recorded else None, load(measured))


def faults(recorded: dict[str, Any] | None, measured: dict[str, Any]) -> list[Finding]:
    """Leading findings that are more than a note."""
    return [f for f in judge(recorded, measured)[0] if f.severity is not Severity.INFO]


def codes(found: list[Finding]) -> list[str]:
    return [f.code for f in found]
