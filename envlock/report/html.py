"""The report as one HTML page that needs no network and, for the essentials, no JavaScript.

Every text is escaped by Jinja; the page's content policy allows no other script than its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

import envlock
from envlock.findings import Finding, JsonValue, Report, Severity
from envlock.neutral import neutral
from envlock.report import wording
from envlock.report.style import Extras, FactRow

TEMPLATE = "report.html.j2"
PROSE_LIMIT = 1024
_TAG = re.compile(r"<[^>]*>")
_ID = re.compile(r'\bid="|="#|\burl\(#')
"""Where an id stands in a drawing, or a reference to one."""


def render_html(
    reports: Sequence[Report], *, fail_on: Severity | None, extras: Sequence[Extras] = ()
) -> str:
    """One page for all reports; ``extras`` belong to the reports in order."""
    folder = _templates()
    script = (folder / "report.js").read_text("utf-8")
    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    views = [
        _report(number, report, fail_on, extra or Extras())
        for number, (report, extra) in enumerate(zip_longest(reports, extras[: len(reports)]))
    ]
    counts = [sum(view["counts"][severity.value] for view in views) for severity in Severity]
    return environment.get_template(TEMPLATE).render(
        css=Markup((folder / "report.css").read_text("utf-8")),  # noqa: S704  # our own file
        script=Markup(script),  # noqa: S704  # our own file
        script_hash=f"sha256-{digest}",
        version=envlock.__version__,
        reports=views,
        filtered=next((view for view in views if view["findings"]), None),
        filters=[
            {"severity": severity.value, "label": label, "count": count}
            for severity, label, count in zip(
                Severity, ("errors", "warnings", "notes"), counts, strict=True
            )
        ],
    )


def _templates() -> Path:
    """In the wheel inside the package, in a checkout beside it."""
    package = Path(envlock.__file__).parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def _report(
    number: int, report: Report, fail_on: Severity | None, extras: Extras
) -> Mapping[str, Any]:
    word, sentence = wording.verdict(report, fail_on)
    lead = wording.leading(report)
    names = [wording.short_name(name, 80) for name in (report.left, report.right) if name]
    findings = [_finding(finding, report) for finding in report.findings]
    return {
        "result": report.result(fail_on).value,
        "word": word,
        "sentence": sentence,
        "command": neutral(report.command),
        "names": names,
        "coverage": wording.coverage(report),
        "lead": None if lead is None else findings[0],
        "findings": findings if lead is None else findings[1:],
        "counts": {s.value: sum(f.severity is s for f in report.findings) for s in Severity},
        "unknown": [neutral(subject) for subject in report.unknown],
        "facts": [_fact(row) for row in extras.facts],
        "sections": [
            {
                "title": neutral(section.title),
                "summary": neutral(section.summary, PROSE_LIMIT),
                "drawings": [
                    Markup(_with_own_ids(svg, f"{number}-{place}-{at}-"))  # noqa: S704  # Section.drawings
                    for at, svg in enumerate(section.drawings)
                ],
            }
            for place, section in enumerate(extras.sections)
        ],
    }


def _finding(finding: Finding, report: Report) -> Mapping[str, Any]:
    return {
        "code": neutral(finding.code),
        "severity": finding.severity.value,
        "subject": wording.subject_name(finding.subject),
        "message": wording.code_spans(wording.message(finding.message)),
        "hint": wording.code_spans(wording.message(finding.hint)),
        "command": wording.message(finding.hint) if wording.is_command(finding.hint) else "",
        "sides": [
            (wording.short_name(name, 80), wording.value(fact, finding.subject))
            for name, fact in ((report.left, finding.left), (report.right, finding.right))
            if fact is not None
        ],
        "evidence": [
            {
                "side": e.side.value,
                "path": neutral(e.path),
                "value": wording.value(e.value, e.path, brief=False),
                "read_from": neutral(e.read_from),
            }
            for e in finding.evidence
        ],
        "sources": [
            {"text": neutral(source), "link": source if wording.is_web_page(source) else ""}
            for source in finding.sources
        ],
        "follow": wording.follow_words(finding) if finding.folded else "",
        "folded": [
            {"subject": wording.subject_name(f.subject), "change": wording.change(f)}
            for f in finding.folded
        ],
    }


def _with_own_ids(svg: str, prefix: str) -> str:
    """Every drawing numbers its elements alike, but the ids of a page are each there once."""
    return _TAG.sub(lambda tag: _ID.sub(rf"\g<0>{prefix}", tag[0]), svg)


def _fact(row: FactRow) -> Mapping[str, str]:
    return {
        "path": neutral(row.path),
        "left": wording.value(row.left, row.path),
        "right": wording.value(row.right, row.path),
        "state": _state(row.left, row.right),
    }


def _state(left: JsonValue, right: JsonValue) -> str:
    """Unknown never counts as equal."""
    if any(isinstance(side, Mapping) and side.keys() == {"unknown"} for side in (left, right)):
        return "unknown"
    return "same" if left == right else "differs"
