"""The table of security requirements names tests that exist, and leaves no requirement out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs" / "security.md").read_text()


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TABLE)
    assert len(named) > 60
    missing = [
        f"{path}::{test}"
        for path, test in named
        if f"\ndef {test}(" not in f"\n{(ROOT / path).read_text()}"
    ]
    assert not missing


def test_every_requirement_has_a_test() -> None:
    rows = re.findall(r"^\| ([A-Z][0-9]+) \| (.+) \| (.*) \|$", TABLE, re.MULTILINE)
    numbers = {name for name, _, _ in rows}
    wanted = {f"S{n}" for n in range(1, 13)} | {f"D{n}" for n in range(1, 6)}
    wanted |= {f"F{n}" for n in range(1, 5)} | {f"N{n}" for n in range(1, 4)}
    assert wanted <= numbers
    assert [name for name, _, tests in rows if "::test_" not in tests] == []
