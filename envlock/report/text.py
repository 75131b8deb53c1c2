"""The report for a terminal, readable in one minute: verdict, leading cause, remedy, the rest."""

from __future__ import annotations

import copy
import io
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from envlock.findings import Evidence, Finding, Report, Result, Severity, Side
from envlock.neutral import neutral, quiet_line
from envlock.report import wording

if TYPE_CHECKING:
    from rich.text import Text
    from typing_extensions import Self

NOTES_SHOWN = 12
"""Notes printed without ``--verbose``; a minute has no room for more."""
MIN_WIDTH = 40
GUTTER = "│ "

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "cyan"}
_VERDICT_STYLES = {
    Result.PASS: "bold green",
    Result.FAIL: "bold red",
    Result.NOTHING: "bold yellow",
}


def render_text(
    report: Report, *, fail_on: Severity | None, verbose: bool, colour: bool, width: int
) -> str:
    page = (_ColouredPage if colour else _Page)(width=max(width, MIN_WIDTH))
    word, sentence = wording.verdict(report, fail_on)
    style = _VERDICT_STYLES[report.result(fail_on)]
    page.line((word, style), f"  {wording.title(report)}: {sentence}")

    lead = wording.leading(report)
    rest = [finding for finding in report.findings if finding is not lead]
    if lead is not None:
        page.gap()
        _lead(page, lead, report, verbose=verbose)
    for severity in (Severity.ERROR, Severity.WARNING):
        more = "more " if lead is not None and lead.severity is severity else ""
        group = [finding for finding in rest if finding.severity is severity]
        _group(page, f"{more}{severity.value}", group, verbose=verbose)
    _notes(page, [f for f in rest if f.severity is Severity.INFO], verbose=verbose)
    _footer(page, report, verbose=verbose)
    return page.text()


def _lead(page: _Page, lead: Finding, report: Report, *, verbose: bool) -> None:
    box = page.inside(GUTTER, _STYLES[lead.severity])
    box.line(
        (f"{lead.severity.value} {neutral(lead.code)}", _STYLES[lead.severity]),
        "  ",
        (wording.subject_name(lead.subject), "bold"),
    )
    box.gap()
    _sides(box, lead, report)
    box.line(wording.message(lead.message))
    if lead.hint:
        box.gap()
    _hint(box, lead.hint, heading="To do: ")
    if lead.folded:
        box.gap()
        _folded(box, lead, verbose=verbose)
    box.gap()
    _proof(box, lead, verbose=verbose)
    box.line((f"Why, and what else helps: envlock explain {neutral(lead.code)}", "dim"))


def _group(page: _Page, kind: str, findings: list[Finding], *, verbose: bool) -> None:
    if not findings:
        return
    style = _STYLES[findings[0].severity]
    page.gap()
    page.line((wording.plural(len(findings), kind, f"{kind}s"), style))
    for finding in findings:
        page.gap()
        change = wording.change(finding)
        page.line(
            (neutral(finding.code), style),
            "  ",
            (wording.subject_name(finding.subject), "bold"),
            f": {change}" if change else "",
        )
        body = page.inside("  ")
        body.line(wording.message(finding.message))
        _hint(body, finding.hint, heading="To do: ")
        if finding.folded:
            _folded(body, finding, verbose=verbose)
        _proof(body, finding, verbose=verbose)


def _notes(page: _Page, notes: list[Finding], *, verbose: bool) -> None:
    if not notes:
        return
    page.gap()
    page.line(
        (wording.plural(len(notes), "note", "notes"), _STYLES[Severity.INFO]),
        ": recorded differences without known effect",
    )
    body = page.inside("  ")
    shown = notes if verbose else notes[:NOTES_SHOWN]
    column = max(len(wording.subject_name(note.subject)) for note in shown)
    for note in shown:
        name = wording.subject_name(note.subject)
        what = wording.note(note)
        body.line(neutral(note.code), "  ", name.ljust(min(column, 34)), "  ", what)
        if verbose and what != wording.message(note.message):
            body.inside("       ").line((wording.message(note.message), "dim"))
    if len(shown) < len(notes):
        body.line((f"and {len(notes) - len(shown)} more (--verbose)", "dim"))


def _sides(page: _Page, finding: Finding, report: Report) -> None:
    """Both values under each other, where they are easiest to compare."""
    names = [
        (wording.short_name(name), wording.value(fact, finding.subject))
        for name, fact in ((report.left, finding.left), (report.right, finding.right))
        if fact is not None
    ]
    column = max((len(name) for name, _ in names), default=0)
    for name, shown in names:
        page.inside("  ").line((name.ljust(column), "dim"), "  ", (shown, "bold"))
    if names:
        page.gap()


def _hint(page: _Page, hint: str, *, heading: str) -> None:
    if not hint:
        return
    if wording.is_command(hint):
        # Unbroken, so that it can be copied; the terminal folds it without adding a newline.
        page.line((heading.rstrip(), "bold"))
        page.unbroken("  ", (wording.message(hint), "cyan"))
    else:
        page.line((heading, "bold"), wording.message(hint))


def _folded(page: _Page, finding: Finding, *, verbose: bool) -> None:
    heading = wording.follow_words(finding)
    if not verbose:
        page.line(f"{heading}: ", (wording.follow_names(finding), "dim"))
        return
    page.line(f"{heading}:")
    column = max(len(wording.subject_name(folded.subject)) for folded in finding.folded)
    for folded in finding.folded:
        name = wording.subject_name(folded.subject).ljust(min(column, 34))
        page.inside("  ").line(name, "  ", (wording.change(folded), "dim"))


def _proof(page: _Page, finding: Finding, *, verbose: bool) -> None:
    if not verbose:
        return
    for evidence in finding.evidence:
        page.line((_evidence(evidence), "dim"))
    for source in finding.sources:
        page.line((f"source: {neutral(source)}", "dim"))


def _evidence(evidence: Evidence) -> str:
    side = "left" if evidence.side is Side.LEFT else "right"
    where = f", read from {neutral(evidence.read_from)}" if evidence.read_from else ""
    fact = wording.value(evidence.value, evidence.path, brief=False)
    return f"evidence ({side}): {neutral(evidence.path)} = {fact}{where}"


def _footer(page: _Page, report: Report, *, verbose: bool) -> None:
    page.gap()
    page.line((wording.coverage(report, names_hint="" if verbose else "names: --verbose"), "dim"))
    if verbose and report.unknown:
        names = ", ".join(neutral(subject) for subject in report.unknown)
        page.line((f"unknown: {names}", "dim"))


Part = str | tuple[str, str]
"""Literal text, or literal text and its style. Never markup."""


class _Page:
    """Lines of literal text, wrapped, behind a prefix. Plain: for files and pipes."""

    def __init__(self, *, width: int) -> None:
        self._out = io.StringIO()
        self._width = width
        self._prefix: tuple[Part, ...] = ()

    def inside(self, prefix: str, style: str = "") -> Self:
        """The same page, further in."""
        page = copy.copy(self)
        page._prefix = (*self._prefix, (prefix, style))  # noqa: SLF001 - it is this class's own
        return page

    def line(self, *parts: Part) -> None:
        room = max(self._width - len(_plain(self._prefix)), 20)
        for wrapped in _wrapped(_plain(parts), room):
            self.unbroken(wrapped)

    def unbroken(self, *parts: Part) -> None:
        self._out.write(quiet_line(_plain([*self._prefix, *parts]).rstrip()) + "\n")

    def gap(self) -> None:
        self.unbroken()

    def text(self) -> str:
        return self._out.getvalue()


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(
        text, room, break_on_hyphens=False, replace_whitespace=False, expand_tabs=False
    )


def _plain(parts: Iterable[Part]) -> str:
    return "".join(part if isinstance(part, str) else part[0] for part in parts)


class _ColouredPage(_Page):
    """For a terminal, by rich, which is worth loading there only."""

    def __init__(self, *, width: int) -> None:
        from rich.console import Console  # noqa: PLC0415

        super().__init__(width=width)
        self._console = Console(
            file=self._out,
            width=width,
            force_terminal=True,
            color_system="standard",
            legacy_windows=False,
        )

    def line(self, *parts: Part) -> None:
        room = max(self._width - _coloured(self._prefix).cell_len, 20)
        for wrapped in _coloured(parts).wrap(self._console, room):
            self._print(wrapped)

    def unbroken(self, *parts: Part) -> None:
        self._print(_coloured(parts))

    def _print(self, text: Text) -> None:
        line = _coloured(self._prefix) + text
        line.rstrip()
        if quiet_line(line.plain) != line.plain:
            line = _coloured([quiet_line(line.plain)])
        self._console.print(line, soft_wrap=True)


def _coloured(parts: Iterable[Part]) -> Text:
    from rich.text import Text  # noqa: PLC0415

    return Text.assemble(*parts)
