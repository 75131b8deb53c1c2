"""The action's steps and the plain-shell template, run as a runner runs them, on real images."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from envlock.image.oci import Layout
from scripts.faults import Fault, build_fault
from tests.engine.test_assemble import BIN, Case, make_case, no_images_left
from tests.unit.wheels import make_wheel

__all__ = ["no_images_left"]

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github" / "actions" / "verify"
GOOD, BAD = "envlock-test-action:good", "envlock-demo:action"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Iterator[Case]:
    folder = tmp_path_factory.mktemp("action")
    made = make_case(folder, base_layout, make_wheel(folder / "wheels"))
    made.build("-t", GOOD)
    fault = Fault(
        name="action", instructions=["ENV LD_LIBRARY_PATH=/x"], code_family="", subject=""
    )
    (folder / "context").mkdir()
    build_fault(fault, GOOD, folder / "context")
    yield made
    subprocess.run(["docker", "rmi", "--force", GOOD, BAD], check=False, capture_output=True)


@dataclass(frozen=True, kw_only=True)
class Ran:
    code: int
    said: str
    outputs: Mapping[str, str]
    summary: str
    reports: Path


def run_step(folder: Path, name: str, inputs: dict[str, str]) -> Ran:
    """One ``run`` step of the action: its expressions filled in, its variables set, by bash."""
    action: dict[str, Any] = YAML(typ="safe").load((ACTION / "action.yml").read_text())
    given = {k: v.get("default", "") for k, v in action["inputs"].items()} | inputs
    (step,) = (one for one in action["runs"]["steps"] if one["name"] == name)
    assert "${{" not in step["run"], "no expression in the text of a script"
    known = {"github.action_path": str(ACTION), "runner.temp": str(folder)}
    known |= {f"inputs.{key}": value for key, value in given.items()}
    env = {
        key: re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: known[found[1]], value)
        for key, value in step["env"].items()
    }
    return run_shell(folder, ["bash", "-e", "-c", step["run"]], {**env, "GITHUB_ACTIONS": "true"})


def run_shell(folder: Path, command: list[str], env: Mapping[str, str]) -> Ran:
    output, summary = folder / "output", folder / "summary"
    output.write_text("")
    summary.write_text("")
    variables = {**os.environ, **env}
    variables |= {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    lines = output.read_text().splitlines()
    return Ran(
        code=done.returncode,
        said=done.stdout + done.stderr,
        outputs=dict(line.split("=", 1) for line in lines),
        summary=summary.read_text(),
        reports=folder / "envlock-reports",
    )


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner's folder, with this environment in the place of the installed one."""
    program = tmp_path / "envlock" / "bin" / "envlock"
    program.parent.mkdir(parents=True)
    program.symlink_to(BIN / "envlock")
    return tmp_path


def test_the_good_image_passes(case: Case, runner: Path) -> None:
    ran = run_step(runner, "Verify", {"image": GOOD, "lock": str(case.lock)})
    assert ran.code == 0, ran.said
    assert ran.outputs == {
        "verdict": "pass",
        "exit-code": "0",
        "reports": str(ran.reports),
        "sarif": f"{ran.reports}/verify.sarif",
        "junit": f"{ran.reports}/junit.xml",
    }
    assert "PASS" in ran.summary
    assert json.loads((ran.reports / "verify.sarif").read_text())["version"] == "2.1.0"


def test_a_broken_one_fails_with_annotations_and_reports(case: Case, runner: Path) -> None:
    ran = run_step(runner, "Verify", {"image": f"{GOOD}\n{BAD}", "lock": str(case.lock)})
    assert (ran.code, ran.outputs["verdict"], ran.outputs["exit-code"]) == (1, "fail", "1")
    assert "::error" in ran.said
    assert "FAIL" in ran.summary
    assert "PASS" in ran.summary
    assert b"<failure" in (ran.reports / "junit.xml").read_bytes()


def test_an_image_that_is_not_there_is_an_error(case: Case, runner: Path) -> None:
    ran = run_step(runner, "Verify", {"image": "envlock-test-none:x", "lock": str(case.lock)})
    assert (ran.code, ran.outputs["verdict"]) == (5, "error")
    assert "sarif" not in ran.outputs


def test_the_policy_and_the_formats_are_the_callers(case: Case, runner: Path) -> None:
    (runner / "team.toml").write_text('[image]\nmax_size = "1 kB"\n')
    given = {"image": GOOD, "lock": str(case.lock), "policy": "team.toml", "formats": "html json"}
    ran = run_step(runner, "Verify", given)
    assert ran.code == 1
    assert sorted(path.name for path in ran.reports.iterdir()) == ["verify.html", "verify.json"]
    assert set(ran.outputs) == {"verdict", "exit-code", "reports"}
    assert json.loads((ran.reports / "verify.json").read_text())["findings"][0]["code"] == "EL952"


HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "x; touch pwned",
    "x && touch pwned",
    '"; touch pwned; "',
    "'; touch pwned; '",
    "x\ntouch pwned",
    "x\nverdict=pass",
    "x\n::set-output name=verdict::pass",
    "::error::forged",
    "--format=json",
    "--output=pwned",
    "-opwned",
    "*",
    "x\x1b[31m",
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("field", ["image", "lock", "policy", "formats"])
def test_no_input_is_obeyed(field: str, value: str, case: Case, runner: Path) -> None:
    given = {"image": GOOD, "lock": str(case.lock), field: value}
    ran = run_step(runner, "Verify", given)
    assert ran.code in {2, 4, 5}, ran.said
    assert ran.outputs.get("verdict", "error") == "error"
    assert set(ran.outputs) <= {"verdict", "exit-code", "reports"}
    assert not (runner / "pwned").exists()
    forged = [line for line in ran.said.splitlines() if line.startswith("::error::forged")]
    assert forged == []


def test_the_action_installs_its_own_checkout(tmp_path: Path) -> None:
    ran = run_step(tmp_path, "Install envlock", {"image": "x"})
    assert ran.code == 0, ran.said
    program = tmp_path / "envlock" / "bin" / "envlock"
    code = "import envlock, pathlib; print(pathlib.Path(envlock.__file__).parent)"
    shown = subprocess.run(
        [program.with_name("python"), "-I", "-c", code], check=True, capture_output=True, text=True
    )
    assert shown.stdout.startswith(str(tmp_path))
    assert (Path(shown.stdout.strip()) / "templates" / "ci" / "verify.sh").exists()


def test_the_template_works_in_any_shell(case: Case, tmp_path: Path) -> None:
    """Outside GitHub: no outputs, no annotations, the same verdict."""
    env = {"IMAGE": f"{GOOD} {BAD}", "LOCK": str(case.lock), "ENVLOCK": str(BIN / "envlock")}
    script = ["sh", str(ROOT / "templates" / "ci" / "verify.sh")]
    bare = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    done = subprocess.run(
        script, cwd=tmp_path, env={**bare, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "::error" not in done.stdout
    reports = sorted(path.name for path in (tmp_path / "envlock-reports").iterdir())
    assert reports == ["junit.xml", "verify.html", "verify.md", "verify.sarif"]
    none = subprocess.run(script, cwd=tmp_path, env=bare, capture_output=True, check=False)
    assert none.returncode == 2
