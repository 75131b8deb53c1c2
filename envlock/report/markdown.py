"""The report as Markdown: step summaries, merge-request comments, issues.

Values stand in code spans, prose is escaped: neither becomes a link, an image, a mention or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envlock.findings import Finding, JsonValue, Report, Result, Severity
from envlock.neutral import neutral
from envlock.report import wording

_MARKS = {Result.PASS: "✅", Result.FAIL: "❌", Result.NOTHING: "⚠️"}
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
"""CommonMark 2.4: any ASCII punctuation may be escaped by a backslash."""


def render_markdown(
    reports: Sequence[Report], *, fail_on: Severity | None, verbose: bool = False
) -> str:
    blocks = [block for report in reports for block in _blocks(report, fail_on, verbose=verbose)]
    return "\n\n".join(blocks) + "\n"


def _blocks(report: Report, fail_on: Severity | None, *, verbose: bool) -> list[str]:
    word, sentence = wording.verdict(report, fail_on)
    mark = _MARKS[report.result(fail_on)]
    names = [code(wording.short_name(name)) for name in (report.left, report.right) if name]
    blocks = [
        f"## {mark} {word}: envlock {prose(neutral(report.command))} {' → '.join(names)}",
        f"{prose(sentence)}; {prose(wording.coverage(report))}",
    ]
    lead = wording.leading(report)
    if lead is not None:
        blocks.append(_lead(lead, report))
    rest = [f for f in report.findings if f is not lead and f.severity is not Severity.INFO]
    notes = [f for f in report.findings if f.severity is Severity.INFO]
    blocks.extend(_finding(finding) for finding in rest)
    if notes:
        items = "\n".join(f"- {_note(note)}" for note in notes)
        blocks.append(_details(f"{wording.plural(len(notes), 'note', 'notes')}", items))
    if verbose and report.unknown:
        items = "\n".join(f"- {code(neutral(subject))}" for subject in report.unknown)
        blocks.append(_details(f"{len(report.unknown)} unknown", items))
    return blocks


def _lead(lead: Finding, report: Report) -> str:
    rows = [
        f"| {cell(code(wording.short_name(name)))} | {cell(_value(fact, lead.subject))} |"
        for name, fact in ((report.left, lead.left), (report.right, lead.right))
        if fact is not None
    ]
    blocks = [f"### {_heading(lead, values=False)}"]
    if rows:
        blocks.append("\n".join(["| environment | value |", "| --- | --- |", *rows]))
    blocks.append(spans(wording.message(lead.message)))
    blocks.extend(_tail(lead))
    return "\n\n".join(blocks)


def _finding(finding: Finding) -> str:
    blocks = [f"#### {_heading(finding)}", spans(wording.message(finding.message))]
    return "\n\n".join([*blocks, *_tail(finding)])


def _tail(finding: Finding) -> list[str]:
    blocks = []
    if finding.hint:
        hint = wording.message(finding.hint)
        if wording.is_command(hint):
            blocks.append(f"**To do**\n\n{block(hint)}")
        else:
            blocks.append(f"**To do:** {spans(hint)}")
    if finding.folded:
        items = "\n".join(f"- {_heading(folded)}" for folded in finding.folded)
        blocks.append(_details(wording.follow_words(finding), items))
    return blocks


def _note(note: Finding) -> str:
    """In one line: the values where they say it, else the message."""
    if wording.note(note) == wording.change(note):
        return _heading(note)
    return f"{_heading(note, values=False)}: {spans(wording.message(note.message))}"


def _heading(finding: Finding, *, values: bool = True) -> str:
    name = code(wording.subject_name(finding.subject))
    head = f"{finding.severity.value} {prose(neutral(finding.code))} {name}"
    sides = [_value(s, finding.subject) for s in (finding.left, finding.right) if s is not None]
    return f"{head}: {' → '.join(sides)}" if values and sides else head


def _value(fact: JsonValue, subject: str) -> str:
    shown = wording.value(fact, subject)
    return prose(shown) if shown == "absent" else code(shown)


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def code(text: str) -> str:
    """A code span that nothing inside can end (CommonMark 6.1)."""
    runs = re.findall("`+", text)
    fence = "`" * (max((len(run) for run in runs), default=0) + 1)
    inner = f" {text} " if not text or text[0] in "` " or text[-1] in "` " else text
    return f"{fence}{inner}{fence}"


def cell(markdown: str) -> str:
    """Inside a table a pipe ends the cell even in a code span (GFM 4.10)."""
    return markdown.replace("|", "\\|")


def block(text: str) -> str:
    """A fenced block that nothing inside can end."""
    runs = re.findall("`+", text)
    fence = "`" * max(3, max((len(run) for run in runs), default=0) + 1)
    return f"{fence}sh\n{text}\n{fence}"


def spans(text: str) -> str:
    """Prose in which a rule marked commands with backticks."""
    return "".join(
        code(part) if is_code else prose(part) for is_code, part in wording.code_spans(text)
    )


def prose(text: str) -> str:
    """Text that stays text. ``@name`` and ``#1`` go into code spans, since GitHub finds mentions
    after Markdown, where no escape helps."""
    return "".join(
        code(part) if re.search(r"[@#]\w", part) else _PUNCTUATION.sub(r"\\\1", part)
        for part in re.split(r"(\s+)", text)
    )
