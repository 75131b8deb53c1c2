"""Run every rule over one observation or a pair, and say what leads. Pure.

In a pair, a fault of the right side alone is a real difference; a fault of both sides explains
nothing about their difference and is mentioned once; a fault of the left side alone is cured.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from envlock.diff import plain_findings
from envlock.diff.compare import Comparison, compare
from envlock.diff.finish import (
    Found,
    Standing,
    finish_one,
    finish_pair,
    fold,
    in_order,
    is_same_on_both,
    moved_facts,
)
from envlock.findings import Finding, Severity, Side
from envlock.lock.observation import Observation
from envlock.rules.base import (
    DoesNotApplyError,
    Env,
    Fault,
    OneSidedError,
    Pair,
    Rule,
    UndecidedError,
)
from envlock.rules.registry import RULES


class Status(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"
    NOT_CHECKABLE = "not checkable"
    DOES_NOT_APPLY = "does not apply"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one check on one environment."""

    code: str
    title: str
    status: Status
    why: str = ""
    """For a check that could not be made: the fact that is missing, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    findings: tuple[Finding, ...]
    """The leading one first; what follows from it is folded under it."""
    checked: int
    unknown: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = ()
    """Every check on the (right) environment, in the order of the rules."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ran:
    faults: tuple[Fault, ...]
    status: Status
    path: str = ""
    why: str = ""
    crash: Finding | None = None
    one_sided: bool = False


def _run(rule: Rule, faults: Iterable[Fault]) -> _Ran:
    """What a rule found before it ended, and how it ended."""
    found: list[Fault] = []
    status, path, why = Status.PASSED, "", ""
    crash, one_sided = None, False
    try:
        found.extend(faults)
    except UndecidedError as error:
        status, path, why = Status.NOT_CHECKABLE, error.path, f"{error.path}: {error.why}"
        one_sided = isinstance(error, OneSidedError)
    except DoesNotApplyError as error:
        status, why = Status.DOES_NOT_APPLY, str(error)
    except Exception as error:  # noqa: BLE001  one broken rule must not hide the others
        status, why = Status.NOT_CHECKABLE, "the rule failed"
        crash = plain_findings.crashed(rule, error)
    if found:
        harmless = all((one.severity or rule.severity) is Severity.INFO for one in found)
        status = Status.NOTED if harmless else Status.FAILED
    return _Ran(
        faults=tuple(found), status=status, path=path, why=why, crash=crash, one_sided=one_sided
    )


def _run_one(rule: Rule, env: Env) -> _Ran | None:
    """None for a rule that needs two environments."""
    return None if rule.one is None else _run(rule, _started(rule, env))


def _started(rule: Rule, env: Env) -> Iterable[Fault]:
    # A generator, so that a rule that is no generator itself also runs inside _run's try.
    if rule.one is not None:
        yield from rule.one(env)


def _started_pair(rule: Rule, pair: Pair) -> Iterable[Fault]:
    if rule.pair is not None:
        yield from rule.pair(pair)


def judge_one(observation: Observation) -> Judgement:
    """Everything that one environment shows by itself."""
    env = Env(observation, Side.RIGHT)
    found: list[Found] = []
    outcomes: list[Outcome] = []
    unknown: list[str] = []
    for order, rule in enumerate(RULES):
        ran = _run_one(rule, env)
        if ran is None:
            continue
        outcomes.append(_outcome(rule, ran))
        found += [Found(order, finish_one(rule, fault, env), is_fault=True) for fault in ran.faults]
        if ran.crash:
            found.append(Found(len(RULES), ran.crash))
        if ran.status is Status.NOT_CHECKABLE:
            unknown.append(ran.path or rule.code)
    decided = sum(o.status in {Status.PASSED, Status.FAILED} for o in outcomes)
    return Judgement(
        findings=fold(in_order(found)),
        checked=decided,
        unknown=tuple(dict.fromkeys(unknown)),
        outcomes=tuple(outcomes),
    )


def _outcome(rule: Rule, ran: _Ran) -> Outcome:
    return Outcome(code=rule.code, title=rule.title, status=ran.status, why=ran.why)


def judge_pair(left: Observation, right: Observation, *, exact: bool = False) -> Judgement:
    """What the differences mean, for the right side.

    ``exact``: the right side claims to be a rebuild of the left (``verify``), so any difference in
    what a lock pins is an error.
    """
    comparison = compare(left, right)
    pair = Pair(Env(left, Side.LEFT), Env(right, Side.RIGHT))
    found: list[Found] = []
    outcomes: list[Outcome] = []
    for order, rule in enumerate(RULES):
        if exact and not rule.in_rebuild:
            continue
        if rule.one is not None:
            ran = _run(rule, _started(rule, pair.right))
            outcomes.append(_outcome(rule, ran))
            found += _faults_of_sides(order, rule, ran, pair)
        elif rule.pair is not None:
            found += _differences(order, rule, pair, exact=exact)
    if not comparison.deltas:
        # Two equal environments do not differ by a fault that they share; doctor tells it.
        found = [f for f in found if not f.on_both]
    found += _plain(comparison, found, pair)
    decided = sum(o.status in {Status.PASSED, Status.FAILED} for o in outcomes)
    return Judgement(
        findings=fold(in_order(found)),
        checked=comparison.equal + len(comparison.deltas) + decided,
        unknown=comparison.unknown,
        outcomes=tuple(outcomes),
    )


def _faults_of_sides(order: int, rule: Rule, right: _Ran, pair: Pair) -> list[Found]:
    left = _run(rule, _started(rule, pair.left))
    here = {fault.subject: fault for fault in right.faults}
    there = {fault.subject: fault for fault in left.faults}
    found: list[Found] = []
    for subject, fault in here.items():
        standing = Standing.ALONE
        if subject in there:
            same = is_same_on_both(fault, pair)
            standing = Standing.ON_BOTH if same else Standing.ON_BOTH_OTHERWISE
        finding = finish_one(rule, fault, pair.right, pair.left, standing)
        on_both = standing is Standing.ON_BOTH
        moved = moved_facts(fault, pair) if standing is Standing.ALONE else ()
        found.append(Found(order, finding, is_fault=not on_both, on_both=on_both, moved=moved))
    for subject, fault in there.items():
        if subject not in here:
            found.append(Found(order, finish_one(rule, fault, pair.left, pair.right)))
    crash = right.crash or left.crash
    return [*found, Found(len(RULES), crash)] if crash else found


def _differences(order: int, rule: Rule, pair: Pair, *, exact: bool) -> list[Found]:
    ran = _run(rule, _started_pair(rule, pair))
    found = [Found(order, finish_pair(rule, fault, pair, exact=exact)) for fault in ran.faults]
    if ran.crash:
        found.append(Found(len(RULES), ran.crash))
    if ran.one_sided:
        found.append(Found(len(RULES), plain_findings.undecided(rule, ran.path, pair)))
    return found


def _plain(comparison: Comparison, found: list[Found], pair: Pair) -> list[Found]:
    """What no rule spoke of, after every rule has spoken."""
    both = {Side.LEFT, Side.RIGHT}
    telling = [
        f.finding for f in found if f.is_fault or {e.side for e in f.finding.evidence} == both
    ]
    spoken = {finding.subject for finding in telling}
    spoken |= {e.path for finding in telling for e in finding.evidence}
    order = len(RULES)
    rest = [d for d in comparison.deltas if not plain_findings.is_spoken_of(d.subject, spoken)]
    return [
        *(Found(order, plain_findings.difference(delta)) for delta in rest),
        *(Found(order + 1, f) for f in plain_findings.unknowns(comparison.one_sided, pair)),
    ]
