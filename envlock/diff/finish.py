"""From what a rule found to a finding: code, severity, values, evidence, order, folding."""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from envlock.diff.compare import as_json
from envlock.facts import Change
from envlock.findings import Evidence, Finding, JsonValue, Severity, Side
from envlock.lock.observation import CondaPackage, Package, Unknown
from envlock.rules import plain
from envlock.rules.base import HERE, REFERENCE, Env, Fault, Pair, Rule


class Found(NamedTuple):
    order: int
    """Place of its rule: the first most likely explains a failure."""
    finding: Finding
    is_fault: bool = False
    """Of one environment by itself, and not of both."""
    on_both: bool = False
    """The same fault, from the same facts, on both sides."""
    moved: tuple[str, ...] = ()
    """Of a fault whose subject is the same on both sides: the other facts behind it that differ."""


def shown(env: Env, path: str) -> JsonValue:
    """The fact at a path as a finding shows it; of a distribution, its version."""
    try:
        fact: Any = env.find(path)
    except (AttributeError, KeyError):  # a subject that is no path, such as a rule's code
        return None
    if isinstance(fact, Package | CondaPackage) and not isinstance(fact.version, Unknown):
        fact = fact.version
    return as_json(fact)


def _evidence(paths: Iterable[str], *envs: Env) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            side=env.side,
            path=path,
            value=shown(env, path),
            read_from=env.observation.read_from.get(path, ""),
        )
        for path in dict.fromkeys(paths)
        for env in envs
    )


def _changes(fault: Fault, changes: Iterable[Change]) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            code=plain.CHANGE.code,
            severity=plain.CHANGE.severity,
            subject=fault.subject,
            message=f"Since {change.component} {change.since} ({change.kind}): {change.effect}. "
            f"Noticed by: {change.noticed_by}.",
            hint=change.remedy,
            sources=change.source,
        )
        for change in changes
    )


def _finding(rule: Rule, fault: Fault, severity: Severity) -> Finding:
    return Finding(
        code=rule.code,
        severity=severity,
        subject=fault.subject,
        message=fault.message,
        hint=fault.hint,
        sources=fault.sources,
        folded=_changes(fault, fault.changes),
        explains=fault.explains,
    )


class Standing(enum.Enum):
    """How a fault of one side relates to the other side."""

    ALONE = enum.auto()
    ON_BOTH = enum.auto()
    """The same fault from the same facts: it explains no difference."""
    ON_BOTH_OTHERWISE = enum.auto()
    """The other side has it too, from other facts: that it worked there was luck."""


def is_same_on_both(fault: Fault, pair: Pair) -> bool:
    """Whether every fact that proves a fault of the right side is the same on the left."""
    paths = (fault.subject, *fault.evidence)
    return all(shown(pair.left, path) == shown(pair.right, path) for path in paths)


def moved_facts(fault: Fault, pair: Pair) -> tuple[str, ...]:
    """What changed under a subject that did not: ``torch.release``, for a triton left behind."""
    if shown(pair.left, fault.subject) != shown(pair.right, fault.subject):
        return ()
    paths = dict.fromkeys(fault.evidence)
    return tuple(p for p in paths if shown(pair.left, p) != shown(pair.right, p))


def finish_one(
    rule: Rule,
    fault: Fault,
    env: Env,
    other: Env | None = None,
    standing: Standing = Standing.ALONE,
) -> Finding:
    """A fault of one environment; ``other`` is the one it is compared with."""
    finding = replace(
        _finding(rule, fault, fault.severity or rule.severity),
        evidence=_evidence((fault.subject, *fault.evidence), env),
        left=_value(fault, Side.LEFT, env, other),
        right=_value(fault, Side.RIGHT, env, other),
    )
    if standing is Standing.ON_BOTH_OTHERWISE:
        also = f" {REFERENCE.capitalize()} shows this too, with other values."
        return replace(finding, message=finding.message + also)
    if standing is Standing.ON_BOTH:
        note = "On both sides, so it does not explain a difference: "
    elif other is not None and env.side is Side.LEFT:
        note = f"Only {REFERENCE} shows this, not {HERE}: "
    else:
        return finding
    return replace(finding, severity=Severity.INFO, message=note + finding.message, explains=())


def _value(fault: Fault, side: Side, *envs: Env | None) -> JsonValue:
    return next((shown(env, fault.subject) for env in envs if env and env.side is side), None)


def finish_pair(rule: Rule, fault: Fault, pair: Pair, *, exact: bool) -> Finding:
    severity = fault.severity or rule.severity
    if exact and rule.strict is not None and rule.strict.rank < severity.rank:
        severity = rule.strict
    return replace(
        _finding(rule, fault, severity),
        left=shown(pair.left, fault.subject),
        right=shown(pair.right, fault.subject),
        evidence=_evidence((fault.subject, *fault.evidence), pair.left, pair.right),
    )


def in_order(found: Iterable[Found]) -> list[Found]:
    """Most severe first, then causes before consequences, the likeliest first, then by subject."""
    everything = list(found)

    def place(each: Found) -> tuple[int, bool, int, str]:
        follows = any(_follows(each, lead) for lead in everything)
        return each.finding.severity.rank, follows, each.order, each.finding.subject

    return sorted(everything, key=place)


def _follows(fault: Found, lead: Found) -> bool:
    """Whether a fault of one side came with a difference: all that changed for it is part of it."""
    if lead.is_fault or not fault.moved or lead.finding.severity.rank > fault.finding.severity.rank:
        return False
    return all(_covers(lead.finding, path) for path in (fault.finding.subject, *fault.moved))


def fold(found: list[Found]) -> tuple[Finding, ...]:
    """Consequences under their cause. Each folds once, under the first cause that explains it."""
    leads: list[Found] = []
    under: dict[int, list[Finding]] = {}
    for each in found:
        index = next((i for i, lead in enumerate(leads) if _explains(lead, each)), None)
        if index is None:
            leads.append(each)
        else:
            under.setdefault(index, []).append(each.finding)
    return tuple(
        replace(lead.finding, folded=(*lead.finding.folded, *under[i]))
        if i in under
        else lead.finding
        for i, lead in enumerate(leads)
    )


def _explains(lead: Found, each: Found) -> bool:
    if each.is_fault and not lead.is_fault:
        return _follows(each, lead)
    return _covers(lead.finding, each.finding.subject)


def _covers(lead: Finding, subject: str) -> bool:
    return any(fnmatch.fnmatchcase(subject, pattern) for pattern in lead.explains)
