"""The smoke test by itself: in this environment or inside an image, against a record or alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from envlock.errors import InputError
from envlock.findings import Report
from envlock.lock.behaviour import Behaviour, BehaviourRecord
from envlock.lock.model import Lock
from envlock.rules.behaviour import judge_behaviour
from envlock.targets.references import Reading, open_target
from envlock.targets.smoke import measure

DeviceClass = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeOptions:
    reference: str
    """``env``, ``python:PATH`` or ``image:NAME``."""
    reading: Reading
    device: DeviceClass = "cpu"
    lock: Lock | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeResult:
    record: BehaviourRecord
    report: Report


def run_smoke(options: SmokeOptions) -> SmokeResult:
    """Raises InputError for a lock without a record, TargetError when the target cannot run."""
    recorded = None
    if options.lock is not None:
        recorded = record_of(options.lock, options.device)
        if recorded is None:
            raise InputError(
                f"the lock has no behaviour record for {options.device}",
                hint="record one where the lock was captured: envlock capture --smoke",
            )
    with open_target(options.reference, options.reading) as target:
        measured = measure(target, device=options.device, progress=options.reading.say)
        label = target.describe()
    findings, checked, unknown = judge_behaviour(recorded, measured)
    report = Report(
        command="smoke",
        left="the lock's record" if recorded else "absolute limits",
        right=label,
        findings=findings,
        checked=checked,
        unknown=unknown,
    )
    return SmokeResult(record=measured, report=report)


def record_of(lock: Lock, device: DeviceClass) -> BehaviourRecord | None:
    behaviour = Behaviour.model_validate_json(json.dumps(lock.table.behaviour))
    return behaviour.cpu if device == "cpu" else behaviour.cuda
