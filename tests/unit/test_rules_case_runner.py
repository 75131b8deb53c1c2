"""The runner over a folder of bug reports: its verdicts, and how a case becomes an observation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.case_facts import translate
from benchmarks.cases import FAMILIES, main, score
from envlock.lock.observation import ABSENT, Unknown
from envlock.rules.registry import all_codes

OLD_DRIVER = {"torch_cuda": "13.0", "driver": "550.54.15"}


def case(tmp_path: Path, **fields: Any) -> Path:
    folder = tmp_path / "001-x"
    folder.mkdir()
    content: dict[str, Any] = {
        "id": "001-x",
        "kind": "driver-too-old",
        "seen_by": ["doctor"],
        "a": OLD_DRIVER,
        "b": None,
        "collect_env": None,
        "expected": {"facts": ["a.driver"], "severity": "error"},
    }
    (folder / "case.json").write_text(json.dumps(content | fields))
    return folder


def expected(severity: str, *facts: str) -> dict[str, Any]:
    return {"facts": list(facts), "severity": severity}


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "HIT"),
        ({"expected": expected("warning", "a.driver")}, "PARTIAL"),  # another severity
        ({"kind": "ecc"}, "PARTIAL"),  # a code of another family
        ({"expected": expected("error", "a.glibc"), "a": OLD_DRIVER | {"glibc": "2.35"}}, "WRONG"),
        ({"a": {"torch_cuda": "12.1", "driver": "550.54.15"}}, "MISS"),
        ({"expected": expected("info", "a.driver")}, "FALSE ALARM"),
        (
            {
                "expected": expected("info", "a.driver"),
                "a": {"torch_cuda": "12.1", "driver": "550"},
            },
            "QUIET",
        ),
        ({"seen_by": ["collect"]}, "NOT SCORED"),
        ({"expected": expected("error", "a.extra.nobody_reads_this")}, "NOT SCORED"),
    ],
)
def test_verdicts(tmp_path: Path, fields: dict[str, Any], verdict: str) -> None:
    scored = score(case(tmp_path, **fields))
    assert scored["verdict"] == verdict
    assert scored["reason"]


def test_the_output_can_be_scored_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case(tmp_path)
    assert main([str(tmp_path)]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["leading"], entry["severity"]) == ("EL401", "error")
    facts = {e["fact"] for e in entry["findings"][0]["evidence"]}
    assert {"a.driver", "a.torch_cuda"} <= facts


def test_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    assert main([str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("label_a", "label_b"), [("works", "fails"), ("before", "after"), ("", "broken")]
)
def test_the_failing_side_is_the_right_side(tmp_path: Path, label_a: str, label_b: str) -> None:
    new = {"torch_cuda": "13.0", "driver": "580.95.05", "label": label_a}
    pair = {"a": new, "b": OLD_DRIVER | {"label": label_b}}
    scored = score(case(tmp_path, expected=expected("error", "b.driver"), **pair))
    assert scored["verdict"] == "HIT"


def test_a_pasted_report_lies_under_the_facts_of_the_case(tmp_path: Path) -> None:
    folder = case(
        tmp_path,
        a={"driver": "550.54.15"},
        collect_env={"file": "collect_env.txt", "complete": False, "describes": "a"},
    )
    report = "PyTorch version: 2.11.0+cu130\nCUDA used to build PyTorch: 13.0\nNvidia driver version: 1.0\n"
    (folder / "collect_env.txt").write_text("Collecting environment information...\n" + report)
    assert score(folder)["verdict"] == "HIT"


def test_null_is_absent_and_a_missing_key_is_unknown() -> None:
    seen = translate({"nvcc": None, "env": {"A": None, "B": "1"}}, None).observation()
    assert seen.find("toolkit.nvcc") == ABSENT
    assert seen.find("env.A") == ABSENT
    assert seen.find("env.B") == "1"
    assert isinstance(seen.find("env.C"), Unknown)
    assert isinstance(seen.find("driver.version"), Unknown)


def test_evidence_finds_its_key_in_the_case() -> None:
    t = translate(
        {"gpus": [{"name": "A", "cc": "8.6", "memory_mib": 10}], "cudnn": {"loaded": "8"}}, None
    )
    assert t.key_of("gpus.0.compute_capability") == "gpus.0.cc"
    assert t.key_of("gpus") == "gpus"
    assert t.key_of("cudnn.loaded") == "cudnn.loaded"
    assert t.key_of("driver.version") is None


def test_a_version_in_words_is_no_version() -> None:
    seen = translate({"packages": {"x": "installed", "y": "2.x"}}, None).observation()
    assert isinstance(seen.find("packages.x.version"), Unknown)
    assert seen.find("packages.y.version") == "2.x"


def test_every_family_has_codes() -> None:
    digits = {code[2] for code in all_codes()}
    assert set("".join(FAMILIES.values())) <= digits
