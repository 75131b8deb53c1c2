from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from envlock.findings import Report, Severity
from envlock.report.as_json import render_json, render_json_many
from tests.unit import report_samples as samples

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/schema/envlock-report-1.json").read_text("utf-8")
)


def parsed(report: Report, fail_on: Severity | None = Severity.ERROR) -> Any:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    return json.loads(render_json(report, fail_on=fail_on), parse_constant=refuse)


def closed(schema: Any) -> Any:
    """The schema with unknown keys forbidden: a new key must be documented."""
    if isinstance(schema, dict):
        inner = {key: closed(value) for key, value in schema.items()}
        return inner | {"additionalProperties": False} if "required" in inner else inner
    return [closed(item) for item in schema] if isinstance(schema, list) else schema


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", samples.ALL)
def test_every_report_meets_the_committed_schema(name: str) -> None:
    jsonschema.validate(parsed(samples.ALL[name]), closed(SCHEMA))


def test_several_reports_meet_the_committed_schema() -> None:
    many = json.loads(render_json_many(list(samples.ALL.values()), fail_on=None))
    jsonschema.validate(many, closed(SCHEMA))
    assert many["schema"] == "envlock-reports/1"
    assert len(many["reports"]) == len(samples.ALL)


@pytest.mark.parametrize("fault", ["findings", "result", "unknown_subjects", "code"])
def test_schema_refuses_what_is_not_a_report(fault: str) -> None:
    data = parsed(samples.HEADLINE)
    if fault == "code":
        data["findings"][0]["code"] = "torch"
    else:
        del data[fault]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def test_contract_of_the_headline_report() -> None:
    data = parsed(samples.HEADLINE)
    lead = data["findings"][0]
    assert (data["result"], data["checked"], data["unknown"]) == ("fail", 214, 2)
    assert data["unknown_subjects"] == ["gpus.0.ecc", "limits.shm_bytes"]
    assert (lead["code"], lead["severity"], lead["subject"]) == ("EL201", "error", "torch.version")
    assert (lead["left"], lead["right"]) == ("2.3.0+cu121", "2.4.0+cu118")
    assert lead["evidence"][0] == {
        "side": "left",
        "path": "torch.version",
        "value": "2.3.0+cu121",
        "read_from": "torch/version.py",
    }
    assert [f["subject"] for f in lead["folded"]][-1] == "packages.triton"
    assert data["findings"][2]["left"] == 25757220864


@pytest.mark.parametrize(
    ("report", "fail_on", "result"),
    [
        (samples.HEADLINE, Severity.ERROR, "fail"),
        (samples.HEADLINE, None, "pass"),
        (samples.ONLY_WARNING, Severity.ERROR, "pass"),
        (samples.ONLY_WARNING, Severity.WARNING, "fail"),
        (samples.NOTHING, None, "nothing"),
    ],
)
def test_result_follows_the_threshold(
    report: Report, fail_on: Severity | None, result: str
) -> None:
    assert parsed(report, fail_on)["result"] == result


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_values_come_back_unchanged_and_steer_nothing(name: str) -> None:
    value = samples.HOSTILE[name]
    text = render_json(samples.hostile_report(value), fail_on=None)
    assert text.replace("\n", "").isascii()
    assert text.replace("\n", "").isprintable()
    assert "##[" not in text
    assert "##vso[" not in text
    expected = value.encode("utf-8", "backslashreplace").decode()
    assert json.loads(text)["findings"][0]["left"] == expected


def test_numbers_that_json_lacks_become_text() -> None:
    loss = samples.finding("EL801", "error", "cpu.loss", "x", left=float("nan"), right=[1e400, 0.5])
    data = parsed(samples.report(loss))
    assert (data["findings"][0]["left"], data["findings"][0]["right"]) == ("nan", ["inf", 0.5])
