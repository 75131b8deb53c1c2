"""What the rules on behaviour share: two records, and what one check comes to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from envlock.findings import Finding, JsonValue, Severity
from envlock.lock.behaviour import BehaviourRecord, Measured
from envlock.lock.observation import value_of
from envlock.rules.behaviour_tolerances import Tolerance, tolerances

P = TypeVar("P", bound=Measured)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """What was recorded (left), where anything was, and what was measured now (right)."""

    recorded: BehaviourRecord | None
    measured: BehaviourRecord
    limits: Mapping[str, Tolerance] = field(default_factory=tolerances)

    def here(self, probe: str, kind: type[P]) -> P | None:
        """A probe's figures of this environment, where it could run."""
        found = getattr(self.measured.probes, probe)
        return found if isinstance(found, kind) else None

    def both(self, probe: str, kind: type[P]) -> tuple[P, P] | None:
        """A probe's figures on both sides, where both have them."""
        one = getattr(self.recorded.probes, probe) if self.recorded else None
        other = self.here(probe, kind)
        return (one, other) if isinstance(one, kind) and other is not None else None

    @property
    def same(self) -> bool:
        """Whether the figures have to be equal: one build on one kind of processor."""
        if self.recorded is None:
            return False
        one, other = _build(self.recorded), _build(self.measured)
        return None not in one and one == other

    def subject(self, *parts: str) -> str:
        return ".".join(("behaviour", self.measured.device_class, *parts))


def _build(record: BehaviourRecord) -> tuple[object, ...]:
    """What has to agree for equal bits; None where it is unknown."""
    env = record.env
    processor = env.processor if record.device_class == "cpu" else env.gpu
    libraries = tuple(sorted(env.libs.items()))
    return (value_of(env.torch), value_of(env.isa), value_of(processor), libraries)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What one comparison or check came to; without a severity it passed."""

    subject: str
    severity: Severity | None = None
    message: str = ""
    hint: str = ""
    left: JsonValue = None
    right: JsonValue = None
    explains: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    folded: tuple[Finding, ...] = ()
    details: tuple[tuple[str, JsonValue, JsonValue], ...] = ()
    """Further evidence: path, value on the left, value on the right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BehaviourRule:
    code: str
    severity: Severity
    """The worst it can say."""
    manual: str
    run: Callable[[Records], Iterable[Verdict]]


def rule(
    code: str, severity: Severity
) -> Callable[[Callable[[Records], Iterable[Verdict]]], BehaviourRule]:
    """The docstring is the manual page: what it means, why, what to do."""

    def register(function: Callable[[Records], Iterable[Verdict]]) -> BehaviourRule:
        text = inspect.cleandoc(function.__doc__ or "")
        return BehaviourRule(code=code, severity=severity, manual=text, run=function)

    return register


def common(one: Mapping[str, T], other: Mapping[str, T]) -> Iterator[tuple[str, T, T]]:
    """What both sides have, by name. What one side lacks is listed as unknown elsewhere."""
    for name in sorted(one.keys() & other.keys()):
        yield name, one[name], other[name]


def relative(left: float, right: float) -> float:
    """|right - left| / |left|; any difference from zero, infinity or nan is infinite."""
    if left == right or (left != left and right != right):  # noqa: PLR0124  nan on both sides
        return 0.0
    return abs(right - left) / abs(left) if left else float("inf")


def percent(left: float, right: float) -> str:
    """``+5.7 %``, or both numbers where there is no ratio."""
    if not left:
        return f"from {left:g} to {right:g}"
    return f"{100 * (right - left) / left:+.3g} %"


def size(count: float) -> str:
    """Bytes for people: ``18.5 MB``."""
    for unit in ("B", "kB", "MB"):
        if abs(count) < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"
