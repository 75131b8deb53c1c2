"""The vocabulary that diff, doctor, verify and smoke share: findings and the report they make.

``code`` never changes meaning. ``subject`` is a dotted path into the observation
(``torch.cuda``, ``packages.numpy``). Values are plain JSON values.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]


class Severity(enum.Enum):
    """error: it will fail, or give other results or other memory use, for a reason that facts
    establish. warning: it may. info: a recorded difference without known effect."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 is the most severe."""
        return list(Severity).index(self)


class Side(enum.Enum):
    """Which environment a piece of evidence was read from."""

    LEFT = "left"
    RIGHT = "right"


class Result(enum.Enum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One fact a finding rests on."""

    side: Side
    path: str
    """Dotted path into that side's observation."""
    value: JsonValue
    """The fact as recorded: a value, ``{"absent": true}`` or ``{"unknown": why}``."""
    read_from: str = ""
    """Where it was read (a file, a library call), when the probe says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    code: str
    severity: Severity
    subject: str
    message: str
    """What it means, for memory, numbers or crashes; not only that two values differ."""
    hint: str = ""
    """What to do: preferably a command that can be run."""
    left: JsonValue = None
    right: JsonValue = None
    evidence: tuple[Evidence, ...] = ()
    sources: tuple[str, ...] = ()
    folded: tuple[Finding, ...] = ()
    waived: str = ""
    """Why a policy accepts it, and until when; empty: it counts. It is shown all the same."""
    explains: tuple[str, ...] = ()
    """Subjects (``fnmatch`` patterns) that follow from this cause; they fold under it."""

    def fails(self, fail_on: Severity | None) -> bool:
        """Whether it fails a check at this threshold."""
        return fail_on is not None and not self.waived and self.severity.rank <= fail_on.rank


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What one command found. ``findings`` are in order: the leading one first."""

    command: str
    left: str
    right: str
    findings: tuple[Finding, ...]
    checked: int
    """Comparisons and checks that had both values and were decided."""
    unknown: tuple[str, ...] = field(default=())
    """Subjects that could not be decided, by name."""

    def result(self, fail_on: Severity | None) -> Result:
        """The verdict at a threshold; ``None`` never fails. Nothing checked is never a pass."""
        if self.checked == 0:
            return Result.NOTHING
        return Result.FAIL if any(f.fails(fail_on) for f in self.findings) else Result.PASS
