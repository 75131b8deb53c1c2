"""What lints the workflows does see faults, and what they call by name exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
GOOD = """\
name: x
on: push
permissions: {}
jobs:
  x:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with:
          persist-credentials: false
      - run: echo "$TITLE"
        env:
          TITLE: ${{ github.event.pull_request.title }}
"""


def schema(path: Path) -> int:
    command = [
        str(BIN / "check-jsonschema"),
        "--builtin-schema",
        "vendor.github-workflows",
        str(path),
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode


def zizmor(path: Path) -> tuple[int, str]:
    command = [str(BIN / "zizmor"), "--offline", "--no-progress", "--format", "plain", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def written(folder: Path, text: str) -> Path:
    path = folder / ".github" / "workflows" / "x.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_a_sound_workflow_is_one(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert schema(path) == 0
    assert zizmor(path)[0] == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [("runs-on: ubuntu-24.04\n", ""), ("on: push", "on: pusch"), ("steps:", "stepps:")],
)
def test_the_schema_sees_a_fault(old: str, new: str, tmp_path: Path) -> None:
    assert schema(written(tmp_path, GOOD.replace(old, new, 1))) != 0


@pytest.mark.parametrize(
    ("old", "new", "audit"),
    [
        ('"$TITLE"', "${{ github.event.pull_request.title }}", "template-injection"),
        ("@11bd71901bbe5b1630ceea73d27597364c9af683", "@v4", "unpinned-uses"),
        ("persist-credentials: false", "fetch-depth: 1", "artipacked"),
    ],
)
def test_the_linter_sees_a_fault(old: str, new: str, audit: str, tmp_path: Path) -> None:
    code, said = zizmor(written(tmp_path, GOOD.replace(old, new, 1)))
    assert code != 0
    assert audit in said


def test_no_workflow_has_a_permission_of_its_own() -> None:
    """Each job asks for what it needs."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        assert re.findall(r"^permissions:.*$", path.read_text(), re.MULTILINE) == [
            "permissions: {}"
        ], path.name


def test_every_action_is_pinned_by_its_commit() -> None:
    used = [
        line
        for path in WORKFLOWS
        for line in re.findall(r"uses: (.+)", path.read_text())
        if not line.startswith("./")
    ]
    assert used
    assert [u for u in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", u)] == []


def test_the_matrix_of_images_is_the_folder() -> None:
    done = subprocess.run(
        [sys.executable, "-I", ROOT / "scripts" / "list_images.py"], check=True, capture_output=True
    )
    name, _, value = done.stdout.decode().partition("=")
    assert name == "names"
    folders = {path.parent.name for path in (ROOT / "images").glob("*/pylock.env.toml")}
    assert set(json.loads(value)) == folders
    assert value.count("\n") == 1
