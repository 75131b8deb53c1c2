"""Findings without a rule: plain differences, unknowns, checks that could not be made."""

from __future__ import annotations

from collections.abc import Iterable

from envlock.diff.compare import Delta, DeltaKind
from envlock.diff.finish import shown
from envlock.findings import Evidence, Finding, Side
from envlock.rules import plain
from envlock.rules.base import HERE, REFERENCE, Pair, Rule
from envlock.rules.wording import say

_NAMED = 6
"""How many unknown subjects a message names; the report lists all."""


def is_spoken_of(subject: str, spoken: set[str]) -> bool:
    """Whether a finding is about this fact or about what it belongs to."""
    if subject in spoken:
        return True
    parts = subject.split(".")
    return any(".".join(parts[:end]) in spoken for end in range(2, len(parts)))


def difference(delta: Delta) -> Finding:
    rule = plain.BY_SECTION[delta.subject.partition(".")[0]]
    texts = {
        DeltaKind.CHANGED: f"{REFERENCE} has {say(delta.left)}, {HERE} has {say(delta.right)}",
        DeltaKind.ONLY_LEFT: f"{REFERENCE} has {say(delta.left)}, {HERE} has none",
        DeltaKind.ONLY_RIGHT: f"{HERE} has {say(delta.right)}, {REFERENCE} has none",
    }
    return Finding(
        code=rule.code,
        severity=rule.severity,
        subject=delta.subject,
        message=f"{texts[delta.kind]}; no effect of this difference is known.",
        left=delta.left,
        right=delta.right,
        evidence=(
            Evidence(side=Side.LEFT, path=delta.subject, value=delta.left),
            Evidence(side=Side.RIGHT, path=delta.subject, value=delta.right),
        ),
    )


def unknowns(subjects: Iterable[str], pair: Pair) -> list[Finding]:
    """One finding for each part of the observation that only one side knows."""
    sections: dict[str, list[str]] = {}
    for subject in subjects:
        sections.setdefault(subject.partition(".")[0], []).append(subject)
    return [_unknown(section, names, pair) for section, names in sorted(sections.items())]


def _unknown(section: str, names: list[str], pair: Pair) -> Finding:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    count = "1 fact is" if len(names) == 1 else f"{len(names)} facts are"
    whole = names == [section]
    return Finding(
        code=plain.UNKNOWN.code,
        severity=plain.UNKNOWN.severity,
        subject=section,
        message=f"{count} known on one side only, so not compared: "
        f"{', '.join(names[:_NAMED])}{more}.",
        hint="envlock capture on the side that does not say, then compare the two locks",
        left=shown(pair.left, section) if whole else None,
        right=shown(pair.right, section) if whole else None,
    )


def undecided(rule: Rule, path: str, pair: Pair) -> Finding:
    return Finding(
        code=plain.UNDECIDED.code,
        severity=plain.UNDECIDED.severity,
        subject=path,
        message=f"{path} is known on one side only, so {rule.code} could not be decided "
        f"({rule.title.rstrip('.')}).",
        hint="envlock capture on the side that does not say, then compare the two locks",
        left=shown(pair.left, path),
        right=shown(pair.right, path),
        evidence=(
            Evidence(side=Side.LEFT, path=path, value=shown(pair.left, path)),
            Evidence(side=Side.RIGHT, path=path, value=shown(pair.right, path)),
        ),
    )


def crashed(rule: Rule, error: Exception) -> Finding:
    return Finding(
        code=plain.CRASHED.code,
        severity=plain.CRASHED.severity,
        subject=rule.code,
        message=f"Rule {rule.code} failed with {type(error).__name__}; what it checks is unchecked.",
        hint="report this as a bug of envlock",
    )
