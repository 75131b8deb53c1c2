from __future__ import annotations

import re

import pytest

from envlock.findings import Report, Severity
from envlock.report.github import render_github
from tests.unit import report_samples as samples

# What the runner takes for a command: after blanks, two colons, a name, properties, two colons.
COMMAND = re.compile(r"::(?P<name>[^ :]+)(?: (?P<properties>.*?))?::(?P<data>.*)")


def commands(report: Report, fail_on: Severity | None = Severity.ERROR) -> list[dict[str, str]]:
    """The runner's view: commands with their properties and data decoded."""
    found = []
    for line in render_github([report], fail_on=fail_on).splitlines():
        assert "##[" not in line
        assert "##vso[" not in line
        match = COMMAND.match(line.lstrip())
        if match:
            properties = dict(part.split("=", 1) for part in match["properties"].split(","))
            assert set(properties) == {"title"}
            found.append(
                {
                    "name": match["name"],
                    "title": decoded(properties["title"]),
                    "data": decoded(match["data"]),
                }
            )
    return found


def decoded(text: str) -> str:
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_findings_become_annotations_in_order() -> None:
    found = commands(samples.HEADLINE)
    assert [c["name"] for c in found] == ["error", "error", "warning", "notice", "notice"]
    assert found[0]["title"] == "EL201 torch.version: 2.3.0+cu121 → 2.4.0+cu118"
    assert "\nTo do: uv pip install" in found[0]["data"]


def test_log_line_says_the_verdict() -> None:
    first = render_github([samples.HEADLINE], fail_on=Severity.ERROR).splitlines()[0]
    assert first == (
        "FAIL diff colleague.lock → env: 2 errors, 1 warning, 2 notes; checked 214 · unknown 2"
    )


def test_nothing_checked_is_an_error_annotation() -> None:
    assert [c["name"] for c in commands(samples.NOTHING)] == ["error"]
    assert commands(samples.SAME) == []


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_foreign_text_makes_no_command(name: str) -> None:
    report = samples.hostile_report(samples.HOSTILE[name])
    assert [c["name"] for c in commands(report)] == ["error", "error", "warning", "notice"]


def test_percent_signs_survive() -> None:
    report = samples.report(samples.finding("EL503", "error", "a", "100%0A of, it: all"))
    assert commands(report)[0]["data"] == "100%0A of, it: all"
