"""What the command line may say about a report's looks, and what only the HTML report has room
for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envlock.findings import JsonValue, Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Drawings of the HTML report: memory over time, loss curves, layer sizes."""

    title: str
    drawings: Sequence[str]
    """Each one ``<svg>`` element, written by envlock and trusted: it goes into the page as it is. Names
    from outside must have been escaped when it was drawn. ``currentColor`` follows the theme.
    Empty: there was nothing to draw with, which ``summary`` says."""
    summary: str
    """What they show, in a sentence: for screen readers, and where no drawing is seen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FactRow:
    """One fact of both environments, in the form of ``Evidence.value``."""

    path: str
    left: JsonValue
    right: JsonValue


@dataclass(frozen=True, kw_only=True, slots=True)
class Extras:
    """What the HTML report shows beside the findings of one report."""

    facts: Sequence[FactRow] = ()
    sections: Sequence[Section] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """How reports are rendered; each format takes from it what it has a use for."""

    fail_on: Severity | None = Severity.ERROR
    """``None``: nothing fails."""
    verbose: bool = False
    colour: bool = False
    width: int = 80
    extras: Sequence[Extras] = ()
    """One for each report, in order; shorter is fine."""
