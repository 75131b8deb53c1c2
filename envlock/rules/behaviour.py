"""Judge what the smoke test measured: by itself, and against a record. Pure.

``judge_behaviour`` is the entrance. Figures are compared only where both sides have them and the
two records are of the same thing; everything else is named as unknown.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from envlock.facts import changes_between
from envlock.findings import Evidence, Finding, Severity, Side
from envlock.lock.behaviour import BehaviourRecord, Measured, Probes, Unavailable
from envlock.lock.observation import value_of
from envlock.rules import behaviour_gpu as gpu
from envlock.rules import behaviour_kernels as kernels
from envlock.rules import behaviour_machine as machine
from envlock.rules import behaviour_memory as memory
from envlock.rules import behaviour_numerics as numerics
from envlock.rules import plain
from envlock.rules.base import Rule, page
from envlock.rules.behaviour_base import BehaviourRule, Records, Verdict
from envlock.rules.behaviour_tolerances import Tolerance, tolerances

RULES: tuple[BehaviourRule, ...] = (
    gpu.neighbours,
    kernels.precision,
    memory.leak,
    memory.attention_kernel,
    machine.killed_for_memory,
    machine.shared_memory,
    gpu.allocator_retries,
    gpu.reserved_peak,
    gpu.outside_allocator,
    gpu.workspaces,
    gpu.pinned_memory,
    gpu.headroom,
    memory.bytes_left,
    numerics.loss_is_finite,
    numerics.gradient_norm,
    numerics.update_ratio,
    numerics.loss_trajectory,
    kernels.half_range,
    memory.optimizer_peak,
    memory.tensor_peak,
    memory.allocator_peak,
    gpu.predicted_memory,
    gpu.model_replay,
    kernels.random_stream,
    machine.memory_limit,
    kernels.compile_graphs,
    memory.allocation_pattern,
    numerics.final_parameters,
    gpu.repeatable,
    machine.blind_probe,
)
"""Where two findings are equally severe, the one whose rule stands first leads."""

NOT_COMPARABLE = page(
    "EL890",
    Severity.WARNING,
    """
    The record is of something else, so the figures were not compared.

    Two behaviour records are comparable when they are of the same workloads (battery), on the same
    class of device, with the same number of threads. CPU figures are never compared with GPU
    figures. The checks that need no record were made all the same.

    To do: record again with this version of envlock: `envlock smoke --record FILE`.
    """,
)

NO_RECORD = page(
    "EL891",
    Severity.INFO,
    """
    There is no behaviour record to compare with.

    Only what shows by itself was checked: leaks, memory that stays behind, losses that are no
    numbers. Peaks, losses and random streams were measured, but with nothing to hold them against.

    To do: record where the code works: `envlock capture --smoke`.
    """,
)

UNAVAILABLE = page(
    "EL892",
    Severity.WARNING,
    """
    A probe could not run here, so what it checks is unknown.

    Unavailable is never a pass. It is a warning where the other side has the figures, and info
    where nobody has.

    To do: the reason says what was missing.
    """,
)

OVERRIDDEN = page(
    "EL894",
    Severity.INFO,
    """
    Tolerances were changed by a file of yours.

    The verdict is by those limits and not by envlock's own, which come from experiments.

    To do: nothing.
    """,
)

PAGES: tuple[Rule, ...] = (
    *(page(rule.code, rule.severity, rule.manual) for rule in RULES),
    NOT_COMPARABLE,
    NO_RECORD,
    UNAVAILABLE,
    OVERRIDDEN,
)
"""For ``envlock explain``."""

_ABSOLUTE = ("leak", "shm", "limits", "neighbours", "snapshot")
"""Probes whose figures are judged by themselves; a record adds nothing."""
_NO_RECORD = "there is nothing to compare with"
_MEMORY = ("tensor_peak", "alloc_peak", "optimizer")


class Judged(NamedTuple):
    findings: tuple[Finding, ...]
    """The leading one first, consequences folded under their cause."""
    checked: int
    """Checks and comparisons that were decided."""
    unknown: tuple[str, ...]
    """Subjects that could not be decided."""


def judge_behaviour(
    recorded: BehaviourRecord | None,
    measured: BehaviourRecord,
    limits: Mapping[str, Tolerance] | None = None,
) -> Judged:
    """``recorded`` is the left side of every finding, ``measured`` the right."""
    reason = None if recorded is None else _not_comparable(recorded, measured)
    records = Records(
        recorded=None if reason else recorded,
        measured=measured,
        limits=tolerances() if limits is None else limits,
    )
    found: list[Finding] = []
    checked = 0
    for rule in RULES:
        for verdict in rule.run(records):
            checked += 1
            if verdict.severity is not None:
                found.append(_finding(rule.code, verdict.severity, verdict))
    unknown = dict(_unknown(records))
    found += _notes(records, unknown, recorded, reason)
    found.sort(key=lambda finding: finding.severity.rank)  # stable: rules stand in order
    return Judged(_fold(_with_known_changes(records, found)), checked, tuple(unknown))


def _not_comparable(one: BehaviourRecord, other: BehaviourRecord) -> str | None:
    for what, left, right in (
        ("device class", one.device_class, other.device_class),
        ("threads", one.threads, other.threads),
        ("battery", one.battery, other.battery),
    ):
        if left != right:
            return f"{what}: recorded {left}, measured {right}"
    return None


def _finding(code: str, severity: Severity, verdict: Verdict) -> Finding:
    rows = ((verdict.subject, verdict.left, verdict.right), *verdict.details)
    return Finding(
        code=code,
        severity=severity,
        subject=verdict.subject,
        message=verdict.message,
        hint=verdict.hint,
        left=verdict.left,
        right=verdict.right,
        evidence=tuple(
            Evidence(side=side, path=path, value=value)
            for path, left, right in rows
            for side, value in ((Side.LEFT, left), (Side.RIGHT, right))
            if value is not None
        ),
        sources=verdict.sources,
        folded=verdict.folded,
        explains=verdict.explains,
    )


def _unknown(records: Records) -> Iterator[tuple[str, str]]:
    """Subject -> why, for all that one side or both did not measure."""
    for name in Probes.defaults:
        here = getattr(records.measured.probes, name)
        there = getattr(records.recorded.probes, name) if records.recorded else None
        yield from _missing(records, name, here, "here")
        if records.recorded is None:
            if isinstance(here, Measured) and name not in _ABSOLUTE:
                yield records.subject(name), _NO_RECORD
        elif isinstance(here, Measured) and not isinstance(there, Measured):
            yield records.subject(name), _why(there, "in the record")
        elif isinstance(there, Measured) and not isinstance(here, Measured):
            yield records.subject(name), _why(here, "here")
        elif isinstance(here, Measured) and isinstance(there, Measured):
            yield from _missing(records, name, there, "in the record")
            yield from _one_sided(records, name, here, there)


def _why(probe: object, where: str) -> str:
    if isinstance(probe, Unavailable):
        return f"unavailable {where}: {probe.reason}"
    return f"not measured {where}"


def _missing(records: Records, name: str, probe: object, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(probe, Unavailable):
        yield records.subject(name), _why(probe, where)
    elif isinstance(probe, Measured):
        for item, reason in probe.skipped.items():
            yield records.subject(name, item), f"unavailable {where}: {reason}"


def _one_sided(
    records: Records, name: str, here: Measured, there: Measured
) -> Iterator[tuple[str, str]]:
    one, other = getattr(there, "values", None), getattr(here, "values", None)
    if isinstance(one, dict) and isinstance(other, dict):
        for item in sorted(one.keys() ^ other.keys()):
            if item not in here.skipped and item not in there.skipped:
                where = "here" if item in one else "in the record"
                yield records.subject(name, item), f"not measured {where}"


def _notes(
    records: Records,
    unknown: Mapping[str, str],
    recorded: BehaviourRecord | None,
    reason: str | None,
) -> Iterator[Finding]:
    if reason:
        yield Finding(
            code=NOT_COMPARABLE.code,
            severity=Severity.WARNING,
            subject=records.subject(),
            message=f"The behaviour record is not comparable ({reason}): nothing was compared "
            "with it, only the checks that need no record were made.",
            hint="record again where the code works: envlock smoke --record FILE",
        )
    elif recorded is None:
        yield Finding(
            code=NO_RECORD.code,
            severity=Severity.INFO,
            subject=records.subject(),
            message="There is no behaviour record for this device class: peaks, losses and random "
            "streams were measured, but with nothing to compare them with.",
            hint="record where the code works: envlock capture --smoke",
        )
    changed = [
        f"{name} ({row.limits_text()})"
        for name, row in sorted(records.limits.items())
        if row.overridden
    ]
    if changed:
        yield Finding(
            code=OVERRIDDEN.code,
            severity=Severity.INFO,
            subject=records.subject("tolerances"),
            message=f"These tolerances were changed by a file of yours: {', '.join(changed)}.",
        )
    for subject, why in unknown.items():
        if why == _NO_RECORD:
            continue
        missed = records.recorded is not None and "here" in why
        yield Finding(
            code=UNAVAILABLE.code,
            severity=Severity.WARNING if missed else Severity.INFO,
            subject=subject,
            message=f"Not checked, {why.rstrip('.')}.",
        )


def _with_known_changes(records: Records, found: list[Finding]) -> list[Finding]:
    """Under the first finding on memory, and on numbers: what is known of the two releases."""
    if records.recorded is None:
        return found
    versions = [value_of(side.env.torch) for side in (records.recorded, records.measured)]
    if None in versions:
        return found
    changes = changes_between("torch", str(versions[0]), str(versions[1]))
    for kind, probes in (("memory", _MEMORY), ("numerics", ("numerics",))):
        patterns = [records.subject(probe, "*") for probe in probes]
        notes = tuple(
            _known(change.since, change.effect, change.remedy, change.source, records)
            for change in changes
            if change.kind == kind
        )
        at = next((i for i, f in enumerate(found) if _matches(f.subject, patterns)), None)
        if at is not None and notes and found[at].severity is not Severity.INFO:
            found[at] = replace(found[at], folded=(*found[at].folded, *notes))
    return found


def _known(
    since: str, effect: str, remedy: str, sources: tuple[str, ...], records: Records
) -> Finding:
    return Finding(
        code=plain.CHANGE.code,
        severity=Severity.INFO,
        subject=records.subject(),
        message=f"Known since torch {since}: {effect}.",
        hint=remedy,
        sources=sources,
    )


def _matches(subject: str, patterns: list[str] | tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(subject, pattern) for pattern in patterns)


def _fold(found: list[Finding]) -> tuple[Finding, ...]:
    """Consequences under the first finding that explains them, and the same fault in further loops
    under the first loop that shows it."""
    leads: list[_Lead] = []
    for finding in found:
        lead = next((lead for lead in leads if lead.takes(finding)), None)
        if lead is None:
            leads.append(_Lead(finding))
        else:
            lead.under.append(finding)
    return tuple(lead.finished() for lead in leads)


class _Lead:
    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.under: list[Finding] = []

    def takes(self, other: Finding) -> bool:
        if other.code == self.finding.code:
            notes = {f.severity is Severity.INFO for f in (self.finding, other)}
            single = {UNAVAILABLE.code, machine.blind_probe.code}
            return len(notes) == 1 and other.code not in single
        explains = [*self.finding.explains, *(p for f in self.under for p in f.explains)]
        return _matches(other.subject, explains)

    def finished(self) -> Finding:
        alike = [f.subject for f in self.under if f.code == self.finding.code]
        message = self.finding.message
        if alike:
            names = [subject.split(".")[-2:] for subject in alike[:4]]
            more = f" and {len(alike) - 4} more" if len(alike) > 4 else ""
            message += f" The same shows in {', '.join('.'.join(n) for n in names)}{more}."
        folded = (*self.under, *self.finding.folded)  # what is known of the releases comes last
        return replace(self.finding, message=message, folded=folded)
