"""The report as JUnit XML, in the subset that Jenkins' xunit schema, GitLab and GitHub agree on.

A finding is a test case; it fails at or above the threshold. What could not be decided is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from envlock.findings import Finding, Report, Result, Severity
from envlock.neutral import neutral, quiet_line
from envlock.report import wording


def render_junit(reports: Sequence[Report], *, fail_on: Severity | None) -> str:
    root = ET.Element("testsuites", name="envlock")
    for report in reports:
        root.append(_suite(report, fail_on))
    ET.indent(root)
    xml: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{xml}\n'


def _suite(report: Report, fail_on: Severity | None) -> ET.Element:
    suite = ET.Element("testsuite", name=wording.title(report))
    family = f"envlock.{neutral(report.command)}"

    verdict = _case(suite, family, f"{report.checked} checks decided")
    if report.result(fail_on) is Result.NOTHING:
        word, sentence = wording.verdict(report, fail_on)
        ET.SubElement(verdict, "error", type=word, message=sentence)
    for finding in report.findings:
        name = f"{neutral(finding.code)} {wording.subject_name(finding.subject)}"
        case = _case(suite, family, name)
        if finding.fails(fail_on):
            outcome = ET.SubElement(
                case,
                "failure",
                type=finding.severity.value,
                message=wording.message(finding.message),
            )
        else:
            outcome = ET.SubElement(case, "system-out")
        outcome.text = _body(finding, report)
    for subject in report.unknown:
        case = _case(suite, family, neutral(subject))
        ET.SubElement(case, "skipped", message="unknown: could not be checked")

    for count, path in (
        ("tests", "testcase"),
        ("failures", "testcase/failure"),
        ("errors", "testcase/error"),
        ("skipped", "testcase/skipped"),
    ):
        suite.set(count, str(len(suite.findall(path))))
    return suite


def _case(suite: ET.Element, family: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=family, name=name)


def _body(finding: Finding, report: Report) -> str:
    lines = [f"{finding.severity.value}: {wording.message(finding.message)}"]
    for name, fact in ((report.left, finding.left), (report.right, finding.right)):
        if fact is not None:
            value = wording.value(fact, finding.subject)
            lines.append(f"{wording.short_name(name)}: {value}")
    if finding.hint:
        lines.append(f"to do: {wording.message(finding.hint)}")
    if finding.folded:
        lines.append(f"{wording.follow_words(finding)}: {wording.follow_names(finding)}")
    lines.extend(f"source: {neutral(source)}" for source in finding.sources)
    return "\n".join(quiet_line(line) for line in lines)
