"""The report as JSON: the versioned contract with other programs (docs/schema)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from envlock.findings import Evidence, Finding, JsonValue, Report, Severity

SCHEMA = "envlock-report/1"
SCHEMA_MANY = "envlock-reports/1"


def render_json(report: Report, *, fail_on: Severity | None) -> str:
    return encode(as_data(report, fail_on))


def render_json_many(reports: Sequence[Report], *, fail_on: Severity | None) -> str:
    return encode({"schema": SCHEMA_MANY, "reports": [as_data(r, fail_on) for r in reports]})


def as_data(report: Report, fail_on: Severity | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "command": report.command,
        "left": report.left,
        "right": report.right,
        "result": report.result(fail_on).value,
        "checked": report.checked,
        "unknown": len(report.unknown),
        "unknown_subjects": list(report.unknown),
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "left": finding.left,
        "right": finding.right,
        "message": finding.message,
        "hint": finding.hint,
        **({"waived": finding.waived} if finding.waived else {}),
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "sources": list(finding.sources),
        "folded": [_finding(folded) for folded in finding.folded],
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "side": evidence.side.value,
        "path": evidence.path,
        "value": evidence.value,
        "read_from": evidence.read_from,
    }


def encode(data: dict[str, Any]) -> str:
    """Pure ASCII: the same values for every parser, and nothing that a terminal or runner obeys."""
    text = json.dumps(plain(data), indent=2, ensure_ascii=True, allow_nan=False)
    # All three can only stand inside strings; JSON spells them with an escape as well.
    return (
        text.replace("\x7f", r"\u007f")
        .replace("##[", r"#\u0023[")
        .replace("##vso[", r"#\u0023vso[")
        + "\n"
    )


def plain(value: JsonValue) -> JsonValue:
    """The value in what every JSON parser reads: no NaN or infinity, no lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return value
