from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from envlock.findings import Report, Severity
from envlock.report.markdown import code, prose, render_markdown
from tests.unit import report_samples as samples

TOOL_HTML = re.compile(r"<details><summary>[\w ]+</summary>\n|</details>\n?")


def tokens(text: str) -> list[Token]:
    """All tokens of an independent CommonMark renderer with tables and raw HTML on."""
    found = []
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        found.append(token)
        found.extend(token.children or [])
    return found


def render(report: Report, *, fail_on: Severity | None = Severity.ERROR) -> str:
    return render_markdown([report], fail_on=fail_on, verbose=True)


def shown(text: str) -> str:
    return "".join(t.content for t in tokens(text) if t.type in {"text", "code_inline", "fence"})


def test_headline_report_has_verdict_values_and_command() -> None:
    text = render(samples.HEADLINE)
    assert text.startswith("## ❌ FAIL: envlock diff `colleague.lock` → `env`\n")
    assert "| `colleague.lock` | `2.3.0+cu121` |" in text
    fences = [t.content for t in tokens(text) if t.type == "fence"]
    assert fences[0].startswith("uv pip install 'torch==2.3.0+cu121' ")
    assert "envlock memory" in [t.content for t in tokens(text) if t.type == "code_inline"]


@pytest.mark.parametrize(
    ("report", "start"),
    [
        (samples.SAME, "## ✅ PASS"),
        (samples.NOTHING, "## ⚠️ NOTHING CHECKED"),
        (samples.ONE_SIDE, "## ❌ FAIL: envlock doctor `env`\n"),
    ],
)
def test_verdict_stands_first(report: Report, start: str) -> None:
    assert render(report).startswith(start)


@pytest.mark.parametrize("name", samples.ALL)
def test_foreign_text_makes_no_link_image_html_or_heading(name: str) -> None:
    report = samples.ALL[name]
    text = render(report)
    found = tokens(text)
    assert not {t.type for t in found} & {"image", "link_open", "autolink", "html_inline"}
    for token in found:
        if token.type == "html_block":
            assert TOOL_HTML.fullmatch(token.content), token.content
    headings = sum(t.type == "heading_open" for t in found)
    notes = sum(f.severity is Severity.INFO for f in report.findings)
    assert headings == 1 + len(report.findings) - notes
    assert not re.search(r"^\s*::|##\[|##vso\[", text, re.MULTILINE)


@pytest.mark.parametrize("name", samples.ALL)
def test_github_finds_no_bare_address_or_mention(name: str) -> None:
    """Outside of code GitHub links addresses and mentions by itself, in what it has rendered."""
    lines = render(samples.ALL[name])
    for token in tokens(lines):
        if token.type == "text":
            assert not re.search(r"@\w|#\d", token.content)
    # Its address finder reads the source: the escapes must stand between the parts of an address.
    outside = re.sub(r"(`+).*?\1", "", re.sub(r"```+sh\n.*?\n```+", "", lines, flags=re.DOTALL))
    assert not re.search(r"https?://|www\.", outside)


@pytest.mark.parametrize(
    "text", ["`", "``", "a`b``c", " a ", "` `", "", "a|b", "\\", "ends with \\", "<b>", "&amp;"]
)
def test_code_spans_give_the_text_back(text: str) -> None:
    found = [t for t in tokens(f"x {code(text)} y") if t.type == "code_inline"]
    assert [t.content.strip() for t in found] == [text.strip()]


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_prose_gives_the_text_back(name: str) -> None:
    value = samples.HOSTILE[name][:200].replace("\n", " ")
    if value.isprintable():
        assert shown(f"x {prose(value)}").split() == ["x", *value.split()]


def test_pipes_in_values_do_not_end_a_cell() -> None:
    finding = samples.finding("EL1", "error", "a", "b", left="x|y`|`z", right="1")
    found = tokens(render(samples.report(finding)))
    assert sum(t.type == "td_open" for t in found) == 4
    assert "x|y`|`z" in [t.content for t in found if t.type == "code_inline"]


def test_a_note_without_values_says_its_message() -> None:
    """Such as the requirements of a lock; a long table, of which only its length could be shown, too."""
    bare = samples.finding("EL943", "info", "system.glibc", "Needs glibc 2.28.")
    table = [f"libnumber{number}.so.1" for number in range(40)]
    long = samples.finding("EL609", "info", "sonames", "Plug-ins need them.", right=table)
    text = shown(render(samples.report(bare, long)))
    assert "info EL943 system.glibc: Needs glibc 2.28." in text
    assert "info EL609 sonames: Plug-ins need them." in text
    assert "entries" not in text
