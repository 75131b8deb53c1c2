"""Policies: read strictly, applied so that nothing they change is hidden."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envlock.diff.policy import Policy, apply_policy, find_policy, read_policy
from envlock.errors import InputError
from envlock.findings import Finding, Report, Result, Severity
from envlock.image.gates import judge_gates
from envlock.lock.model import BaseImage, ImageTable
from envlock.report import Format, Style
from envlock.targets.image_info import ImageInfo, image_info
from tests.unit.locks import lock, observation

DOCS = Path(__file__).resolve().parents[2] / "docs" / "policy.md"
TODAY = dt.date(2026, 12, 1)


def written(folder: Path, text: str, name: str = "envlock.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def policy(folder: Path, text: str) -> Policy:
    return read_policy(written(folder, text))


def finding(code: str = "EL113", severity: Severity = Severity.ERROR, **more: Any) -> Finding:
    fields = {"subject": "packages.numpy", "message": "numpy differs.", **more}
    return Finding(code=code, severity=severity, **fields)


def report(*findings: Finding) -> Report:
    return Report(command="verify", left="lock 1", right="image:x", findings=findings, checked=40)


def test_the_documented_policy_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.+?)```", DOCS.read_text(), re.DOTALL)
    read = policy(tmp_path, example)
    assert read.severity == {"EL113": "warning", "EL705": "error"}
    assert read.waive[0].until == "2027-03-01"
    assert read.image.max_bytes == 8 << 30
    assert read.requires.gpus == ["8.0", "sm_90", "RTX 4090"]
    documented = set(re.findall(r"^\[?\[?(\w+)", example, re.MULTILINE))
    assert set(Policy.defaults) <= documented


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[severty]\n", ["severty", "did you mean severity?"]),
        ('[severity]\nEL1133 = "info"\n', ["severity", "EL1133", "did you mean EL113?"]),
        ('[severity]\nEL113 = "fatal"\n', ["severity.EL113", "fatal"]),
        ('[[waive]]\ncode = "EL113"\n', ["waive[0]", "reason is missing"]),
        ('[[waive]]\ncode = "EL113"\nreason = ""\n', ["waive[0].reason"]),
        ('[[waive]]\ncode = "EL999"\nreason = "x"\n', ["waive[0].code", "EL999"]),
        (
            '[[waive]]\ncode = "EL113"\nreason = "x"\nuntill = 2027-01-01\n',
            ["waive[0]", "untill", "did you mean until?"],
        ),
        ('[[waive]]\ncode = "EL113"\nreason = "x"\nuntil = "soon"\n', ["waive[0].until", "soon"]),
        (
            '[[waive]]\ncode = "EL113"\nreason = "x"\nuntil = "2027-02-30"\n',
            ["waive[0].until", "no day of the calendar"],
        ),
        ('waive = "EL113"\n', ["waive", "list"]),
        ('[image]\nmaxsize = "1 GB"\n', ["image", "maxsize", "did you mean max_size?"]),
        ('[image]\nmax_size = "much"\n', ["image.max_size", "much"]),
        ('[image]\nmax_size = "8 KB"\n', ["image.max_size", "KB"]),
        ("[image]\nbases = 1\n", ["image.bases", "list"]),
        ('[requires]\ndriver = "new"\n', ["requires.driver", "new"]),
        ("a = [", ["envlock.toml", "TOML"]),
    ],
)
def test_what_is_no_policy_is_refused_with_the_spot(
    text: str, words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        policy(tmp_path, text)
    said = f"{caught.value.message} {caught.value.hint}"
    assert caught.value.code == 4
    assert [word for word in words if word not in said] == []


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    assert find_policy(tmp_path) is None
    project = written(tmp_path, "[project]\nname = 'x'\n", "pyproject.toml")
    assert find_policy(tmp_path) is None
    with pytest.raises(InputError, match=r"no \[tool\.envlock\]"):
        read_policy(project)
    project.write_text('[tool.envlock.severity]\nEL113 = "info"\n')
    assert find_policy(tmp_path) == project
    assert read_policy(project).severity == {"EL113": "info"}
    own = written(tmp_path, "")
    assert find_policy(tmp_path) == own


def test_severities_are_replaced_and_the_order_follows(tmp_path: Path) -> None:
    read = policy(tmp_path, '[severity]\nEL113 = "info"\nEL705 = "error"\n')
    other = finding("EL705", Severity.WARNING, subject="env.NVIDIA_TF32_OVERRIDE")
    applied = apply_policy(read, report(finding(), other), TODAY).report
    assert [(f.code, f.severity) for f in applied.findings] == [
        ("EL705", Severity.ERROR),
        ("EL113", Severity.INFO),
    ]


WAIVED = '[[waive]]\ncode = "EL113"\nsubject = "packages.num*"\nreason = "rebuilt by us"\n'


@pytest.mark.parametrize(
    ("until", "holds"),
    [("", True), ("until = 2026-12-01\n", True), ("until = 2026-11-30\n", False)],
)
def test_a_waiver_holds_up_to_its_day(*, until: str, holds: bool, tmp_path: Path) -> None:
    applied = apply_policy(policy(tmp_path, WAIVED + until), report(finding()), TODAY)
    (judged,) = applied.report.findings
    assert applied.report.result(Severity.INFO) is (Result.PASS if holds else Result.FAIL)
    assert "rebuilt by us" in judged.message
    assert bool(judged.waived) is holds
    assert ("expired on 2026-11-30" in judged.message) is not holds
    assert applied.idle == []


def test_a_waiver_is_of_its_code_and_subject_only(tmp_path: Path) -> None:
    read = policy(tmp_path, WAIVED)
    others = (finding("EL111"), finding(subject="packages.torch"))
    applied = apply_policy(read, report(*others), TODAY)
    assert applied.report.findings == others
    assert [one.code for one in applied.idle] == ["EL113"]


@pytest.mark.parametrize("format_", Format)
def test_every_format_shows_what_was_waived_and_why(format_: Format, tmp_path: Path) -> None:
    changed = finding(left="1.26.4", right="2.2.5")
    applied = apply_policy(policy(tmp_path, WAIVED), report(changed), TODAY).report
    text = format_.render([applied], Style(fail_on=Severity.INFO))
    assert "rebuilt by us" in text
    assert "EL113" in text
    assert "<failure" not in text


def test_machines_read_it_too(tmp_path: Path) -> None:
    applied = apply_policy(policy(tmp_path, WAIVED), report(finding()), TODAY).report
    as_json = json.loads(Format.JSON.render([applied], Style()))
    assert as_json["findings"][0]["waived"] == "rebuilt by us"
    (run,) = json.loads(Format.SARIF.render([applied], Style()))["runs"]
    (suppression,) = run["results"][0]["suppressions"]
    assert suppression["justification"] == "rebuilt by us"


# --- gates ------------------------------------------------------------------------------------

BASE_LAYERS = [f"sha256:{'b' * 63}{n}" for n in range(2)]
OWN = [f"sha256:{'c' * 63}{n}" for n in range(3)]


def image(
    layers: list[str], size_bytes: int = 10**9, onbuild: list[str] | None = None
) -> ImageInfo:
    raw = {
        "Id": f"sha256:{'0' * 64}",
        "Size": size_bytes,
        "RootFS": {"Layers": layers},
        "Config": {"OnBuild": onbuild},
    }
    return image_info("team/train", raw)


def codes(text: str, made: ImageInfo, folder: Path, **table: Any) -> list[str]:
    base = BaseImage(
        reference="docker.io/library/python", digest=f"sha256:{'d' * 64}", layers=BASE_LAYERS
    )
    fields = {"base": base, "layers": OWN, "engine": "assembler (format 1)", **table}
    good = lock()
    named = replace(good, table=good.table.changed(image=ImageTable(**fields)))
    judged = judge_gates(policy(folder, text), named, made, observation())
    assert judged.checked >= 1
    return [found.code for found in judged.findings]


def test_the_recorded_layers(tmp_path: Path) -> None:
    assert codes("", image([*BASE_LAYERS, *OWN]), tmp_path) == []
    assert codes("", image(["sha256:other", *OWN, "sha256:more"]), tmp_path) == []
    assert codes("", image([*BASE_LAYERS, *OWN[:-1]]), tmp_path) == ["EL951"]
    assert codes("", image([*OWN[::-1]]), tmp_path) == ["EL951"]
    assert codes("", image([]), tmp_path, engine="docker 20.10") == []


def test_instructions_for_later_builds(tmp_path: Path) -> None:
    assert codes("", image(OWN, onbuild=["RUN x"]), tmp_path) == ["EL955"]


def test_the_size(tmp_path: Path) -> None:
    gate = '[image]\nmax_size = "1 GB"\n'
    assert codes(gate, image(OWN, 10**9), tmp_path) == []
    assert codes(gate, image(OWN, 10**9 + 1), tmp_path) == ["EL952"]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ('"docker.io/library/python"', []),
        ('"docker.io/library/*"', []),
        (f'"sha256:{"d" * 64}"', []),
        (f'"docker.io/library/python@sha256:{"d" * 64}"', []),
        ('"nvcr.io/*", "bootstrapped"', ["EL953"]),
        ('"python"', ["EL953"]),
    ],
)
def test_the_base(allowed: str, expected: list[str], tmp_path: Path) -> None:
    gate = f"[image]\nbases = [{allowed}]\n"
    assert codes(gate, image([*BASE_LAYERS, *OWN]), tmp_path) == expected
    assert codes(gate, image(OWN), tmp_path) == ["EL954"], "it does not begin with that base"
    assert codes(gate, image([*BASE_LAYERS, *OWN]), tmp_path, base=None) == ["EL954"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ('gpus = ["9.0"]\n', []),
        ('gpus = ["9.0", "3.5"]\n', ["EL501"]),
        ('gpus = ["a card of next year"]\n', ["EL954"]),
        ('driver = "550.54.15"\n', []),
        ('driver = "470.57.02"\n', ["EL401"]),
    ],
)
def test_where_it_has_to_run(wanted: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(f"[requires]\n{wanted}", image(OWN), tmp_path) == expected


def test_a_torch_for_no_gpu_runs_on_none(tmp_path: Path) -> None:
    cpu = observation(torch={"version": "2.3.0+cpu", "release": "2.3.0", "cuda": {"absent": True}})
    for wanted in ('gpus = ["9.0"]\n', 'driver = "550.54.15"\n'):
        asked = policy(tmp_path, f"[requires]\n{wanted}")
        judged = judge_gates(asked, lock(cpu), image(OWN), cpu)
        assert [found.code for found in judged.findings] == ["EL954"], wanted
