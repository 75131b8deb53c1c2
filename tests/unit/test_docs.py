"""The generated pages are what the program says today, and name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envlock.cli.app import SHORT
from envlock.rules.registry import all_codes, manual
from scripts import make_docs

DOCS = Path(make_docs.__file__).resolve().parent.parent / "docs"


@pytest.mark.parametrize("name", make_docs.PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    current = (DOCS / name).read_text(encoding="utf-8") == make_docs.PAGES[name]()
    assert current, f"docs/{name} is not current: run python scripts/make_docs.py"


def test_every_code_has_its_page_once() -> None:
    headings = re.findall(r"^### (EL\d{3}) \((\w+)\)$", make_docs.codes(), re.MULTILINE)
    assert [code for code, _ in headings] == list(all_codes())
    for code, severity in headings:
        page = manual(code)
        assert page is not None
        assert page.severity.value == severity


def test_every_command_has_its_help() -> None:
    text = make_docs.commands()
    names = re.findall(r"^## envlock (\w+)$", text, re.MULTILINE)
    assert names == list(SHORT)
    assert text.count("usage: envlock ") == len(names) + 1
    assert "-h, --help" in text


def test_no_line_of_the_command_list_is_cut_at_80_columns() -> None:
    column = max(map(len, SHORT))
    assert all(2 + column + 2 + len(line) <= 78 for line in SHORT.values())


def test_check_says_what_is_old_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_docs, "DOCS", tmp_path)
    assert make_docs.main(["--check"]) == 1
    assert "codes.md: not current" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert make_docs.main([]) == 0
    assert make_docs.main(["--check"]) == 0
