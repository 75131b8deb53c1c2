"""The smoke test by itself: in this environment or inside an image, against a record or alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from envlock.errors import InputError
from envlock.findings import Report
from envlock.lock.behaviour import Behaviour, BehaviourRecord
from envlock.lock.model import Lock
from envlock.rules.behaviour import judge_behaviour
from envlock.rules.behaviour_tolerances import Tolerance
from envlock.targets.references import Reading, open_target
from envlock.targets.smoke import CPU_BATTERY, CUDA_BATTERY, measure

DeviceClass = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeOptions:
    reference: str
    """``env``, ``python:PATH`` or ``image:NAME``."""
    reading: Reading
    device: DeviceClass = "cpu"
    lock: Lock | None = None
    compiling: bool = False
    """Whether ``torch.compile`` is measured too."""
    limits: Mapping[str, Tolerance] | None = None
    """None: envlock's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeResult:
    recorded: BehaviourRecord | None
    """The lock's, if there is a lock."""
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
    battery = CPU_BATTERY if options.device == "cpu" else CUDA_BATTERY
    if options.compiling:
        battery = (*battery, "compile")
    with open_target(options.reference, options.reading) as target:
        measured = measure(
            target, device=options.device, battery=battery, progress=options.reading.say
        )
        label = target.describe()
    findings, checked, unknown = judge_behaviour(recorded, measured, limits=options.limits)
    report = Report(
        command="smoke",
        left="the lock's record" if recorded else "absolute limits",
        right=label,
        findings=findings,
        checked=checked,
        unknown=unknown,
    )
    return SmokeResult(recorded=recorded, record=measured, report=report)


def record_of(lock: Lock, device: DeviceClass) -> BehaviourRecord | None:
    behaviour = Behaviour.read(lock.table.behaviour)
    return behaviour.cpu if device == "cpu" else behaviour.cuda
