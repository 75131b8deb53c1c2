"""The report as SARIF 2.1.0, for code-scanning pages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import envlock
from envlock.findings import Finding, Report, Result, Severity
from envlock.neutral import neutral
from envlock.report import wording
from envlock.report.as_json import encode

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render_sarif(reports: Sequence[Report], *, fail_on: Severity | None) -> str:
    runs = [_run(report, fail_on) for report in reports]
    return encode({"$schema": SCHEMA, "version": "2.1.0", "runs": runs})


def _run(report: Report, fail_on: Severity | None) -> dict[str, Any]:
    by_code: dict[str, Finding] = {}
    for finding in report.findings:
        by_code.setdefault(finding.code, finding)
    positions = {code: position for position, code in enumerate(by_code)}
    return {
        "tool": {
            "driver": {
                "name": "envlock",
                "version": envlock.__version__,
                "rules": [_rule(finding) for finding in by_code.values()],
            }
        },
        # Code scanning tells runs on several images apart by this.
        "automationDetails": {"id": f"envlock/{text(wording.title(report))}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report, fail_on)],
        "results": [_result(f, report, positions[f.code]) for f in report.findings],
    }


def _rule(finding: Finding) -> dict[str, Any]:
    code = text(neutral(finding.code))
    rule: dict[str, Any] = {
        "id": code,
        "help": {"text": f"What it means and what to do: envlock explain {code}"},
    }
    pages = [source for source in finding.sources if wording.is_web_page(source)]
    return rule | {"helpUri": pages[0]} if pages else rule


def _invocation(report: Report, fail_on: Severity | None) -> dict[str, Any]:
    notes: list[dict[str, Any]] = [
        {"level": "note", "message": {"text": f"could not be checked: {text(neutral(subject))}"}}
        for subject in report.unknown
    ]
    nothing = report.result(fail_on) is Result.NOTHING
    if nothing:
        _, sentence = wording.verdict(report, fail_on)
        notes.insert(0, {"level": "error", "message": {"text": f"nothing checked: {sentence}"}})
    return {
        "executionSuccessful": not nothing,
        "toolExecutionNotifications": notes,
        "properties": {"checked": report.checked, "result": report.result(fail_on).value},
    }


def _result(finding: Finding, report: Report, position: int) -> dict[str, Any]:
    subject = text(wording.subject_name(finding.subject))
    return {
        "ruleId": text(neutral(finding.code)),
        "ruleIndex": position,
        "level": _LEVELS[finding.severity],
        "message": {"text": text(_sentences(finding))},
        "locations": [
            {
                # Code scanning shows no result without a file; the reference is the nearest to one.
                "physicalLocation": {
                    "artifactLocation": {"uri": file_uri(report.left)},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"fullyQualifiedName": subject}],
            }
        ],
        "partialFingerprints": {"envlock/v1": _fingerprint(finding, report)},
        **({"suppressions": [_suppression(finding)]} if finding.waived else {}),
        "properties": _properties(finding),
    }


def _suppression(finding: Finding) -> dict[str, str]:
    return {
        "kind": "external",
        "status": "accepted",
        "justification": text(neutral(finding.waived)),
    }


def _sentences(finding: Finding) -> str:
    """SARIF viewers show little more than the message, so it says everything."""
    change = wording.change(finding)
    parts = [
        f"{wording.subject_name(finding.subject)}{': ' if change else ''}{change}.",
        wording.message(finding.message),
    ]
    if finding.hint:
        parts.append(f"To do: {wording.message(finding.hint)}")
    if finding.folded:
        parts.append(f"{wording.follow_words(finding)}: {wording.follow_names(finding)}")
    return "\n".join(parts)


def _properties(finding: Finding) -> Mapping[str, Any]:
    return {
        "left": wording.value(finding.left, finding.subject),
        "right": wording.value(finding.right, finding.subject),
        "hint": wording.message(finding.hint),
        "folded": [wording.subject_name(folded.subject) for folded in finding.folded],
        "sources": [neutral(source) for source in finding.sources],
    }


def _fingerprint(finding: Finding, report: Report) -> str:
    """Equal for one finding over many runs, whatever the values: what it is about, and where."""
    parts = (finding.code, finding.subject, report.command, report.left)
    joined = "\0".join(parts).encode("utf-8", "backslashreplace")
    return hashlib.sha256(joined).hexdigest()


def text(shown: str) -> str:
    """Plain text in a SARIF message: no embedded links (3.11.6), no placeholders (3.11.5)."""
    return re.sub(r"\{([0-9]+)\}", r"{{\1}}", shown.replace("](", r"]\x28"))


def file_uri(name: str) -> str:
    """A relative reference: never a scheme, a host, or the folders of this machine."""
    if name.startswith("/") or ".." in name.split("/") or "\\" in name:
        name = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    return quote(neutral(name, 1024), safe="/@+") or "environment"
