"""The report as annotations of a GitHub Actions run.

The step summary is the markdown report: ``--report markdown="$GITHUB_STEP_SUMMARY"``.
"""

from __future__ import annotations

from collections.abc import Sequence

from envlock.findings import Finding, Report, Result, Severity
from envlock.neutral import neutral
from envlock.report import wording

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render_github(reports: Sequence[Report], *, fail_on: Severity | None) -> str:
    """Workflow commands, after a line for the log. GitHub shows ten of each level in one step."""
    return "".join(f"{line}\n" for report in reports for line in _lines(report, fail_on))


def _lines(report: Report, fail_on: Severity | None) -> list[str]:
    word, sentence = wording.verdict(report, fail_on)
    headline = f"{word} {wording.title(report)}: {sentence}; {wording.coverage(report)}"
    lines = [headline]
    if report.result(fail_on) is Result.NOTHING:
        lines.append(f"::error title={_property(word)}::{_data(headline)}")
    lines.extend(_annotation(finding) for finding in report.findings)
    return lines


def _annotation(finding: Finding) -> str:
    change = wording.change(finding)
    title = f"{neutral(finding.code)} {wording.subject_name(finding.subject)}"
    body = [wording.message(finding.message)]
    if finding.hint:
        body.append(f"To do: {wording.message(finding.hint)}")
    if finding.folded:
        body.append(f"{wording.follow_words(finding)}: {wording.follow_names(finding)}")
    return (
        f"::{_COMMANDS[finding.severity]}"
        f" title={_property(f'{title}: {change}' if change else title)}"
        f"::{_data(chr(10).join(body))}"
    )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
