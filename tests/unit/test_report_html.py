from __future__ import annotations

import base64
import hashlib
import itertools
import re
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import pytest

from envlock.findings import Severity
from envlock.report.html import render_html
from envlock.report.style import Extras, FactRow, Section
from tests.unit import report_samples as samples

SVG = '<svg viewBox="0 0 10 10"><title>Memory</title><path d="M0 10L10 0"/></svg>'


def rows(*values: Any) -> Extras:
    return Extras(facts=[FactRow(path="gpus.0.name", left=v, right=v) for v in values])


def page(text: str) -> Element:
    """The tree that the WHATWG algorithm builds, and no parse errors on the way."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    root: Element = parser.parse(text)
    return root


def words(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def shape(root: Element) -> list[str]:
    return [str(element.tag) for element in root.iter()]


def find(root: Element, path: str) -> Element:
    found = root.find(path)
    assert found is not None, path
    return found


def test_page_says_verdict_cause_values_and_remedy() -> None:
    root = page(render_html([samples.HEADLINE], fail_on=Severity.ERROR))
    assert words(find(root, ".//h1")) == "FAIL colleague.lock → env"
    lead = find(root, ".//article")
    assert words(find(lead, "h2")) == "error EL201 torch.version"
    assert [words(value) for value in lead.findall(".//dd")] == ["2.3.0+cu121", "2.4.0+cu118"]
    assert words(find(lead, ".//pre")).startswith("uv pip install 'torch==2.3.0+cu121'")
    assert "11 differences follow from it" in words(lead)
    assert len(root.findall(".//details[@class='finding error']")) == 1
    assert len(root.findall(".//details[@class='finding info']")) == 2


@pytest.mark.parametrize("name", samples.PLAIN)
def test_every_report_is_conforming_html(name: str) -> None:
    root = page(render_html([samples.PLAIN[name]], fail_on=Severity.ERROR))
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in root.iter():
        labelled = element.get("aria-labelledby")
        assert labelled is None or labelled in ids
    levels = [int(e.tag[1]) for e in root.iter() if re.fullmatch("h[1-6]", str(e.tag))]
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_foreign_text_changes_no_element(name: str) -> None:
    value = samples.HOSTILE[name]
    harmless = samples.hostile_report("harmless")
    hostile = samples.hostile_report(value)
    expected = page(render_html([harmless], fail_on=None, extras=[rows("harmless")]))
    root = page(render_html([hostile], fail_on=None, extras=[rows(value)]))

    # A rule's own commands in backticks are the one thing that text may become.
    def without_code(root: Element) -> list[str]:
        return [tag for tag in shape(root) if tag != "code"]

    assert without_code(root) == without_code(expected)
    attributes = {key for element in root.iter() for key in element.keys()}  # noqa: SIM118
    assert not {key for key in attributes if key.startswith("on")}
    assert not root.findall(".//a")
    assert "49" not in words(find(root, ".//article"))


def test_hostile_values_are_shown() -> None:
    text = "<b>{{ 7 * 7 }}</b> & co"
    root = page(render_html([samples.hostile_report(text)], fail_on=None))
    assert text in words(find(root, ".//article"))


def test_only_web_pages_become_links() -> None:
    sources = (
        "https://notes.example/torch",
        "javascript:alert(1)",
        "http://notes.example",
        "https://user@notes.example/",
        'https://notes.example/"onclick=x',
        "https://notes.example/\u202egnp",
    )
    report = samples.report(samples.finding("EL1", "error", "a", "b", sources=sources))
    links = page(render_html([report], fail_on=None)).findall(".//a")
    assert [link.get("href") for link in links] == ["https://notes.example/torch"]


def test_policy_allows_the_script_of_the_page_and_no_other() -> None:
    root = page(render_html([samples.HEADLINE], fail_on=None))
    scripts = root.findall(".//script")
    assert len(scripts) == 1
    digest = hashlib.sha256((scripts[0].text or "").encode()).digest()
    policy = next(
        meta.get("content", "")
        for meta in root.iter("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none'")


def test_page_needs_nothing_from_elsewhere() -> None:
    text = render_html([samples.HEADLINE], fail_on=None, extras=[rows("x")])
    root = page(text)
    for element in root.iter():
        for key in ("src", "href", "action", "srcset"):
            value = None if element.tag == "a" else element.get(key)
            assert value is None or value.startswith("#") or value == "data:,"
    assert "@import" not in text
    assert "url(" not in text


def test_facts_stand_side_by_side_and_unknown_is_never_the_same() -> None:
    extras = Extras(
        facts=[
            FactRow(path="torch.cuda", left="12.1", right="11.8"),
            FactRow(path="python.version", left="3.11.4", right="3.11.4"),
            FactRow(path="gpus.0.memory_bytes", left=25757220864, right={"absent": True}),
            FactRow(path="driver.version", left={"unknown": "x"}, right={"unknown": "x"}),
        ]
    )
    root = page(render_html([samples.HEADLINE], fail_on=None, extras=[extras]))
    table = find(root, ".//table")
    assert [row.get("class") for row in table.findall("tbody/tr")] == [
        *("differs", "same", "differs", "unknown")
    ]
    assert [words(cell) for cell in table.findall("tbody/tr")[2]] == [
        *("gpus.0.memory_bytes", "23.99 GiB", "absent", "differs")
    ]


def test_one_environment_has_one_column() -> None:
    root = page(render_html([samples.ONE_SIDE], fail_on=None, extras=[rows("x")]))
    assert len(find(root, ".//table/thead/tr")) == len(find(root, ".//table/tbody/tr")) == 3


def test_drawings_are_placed_with_a_text_alternative() -> None:
    drawing = Section(title="Memory <over> time", drawings=[SVG], summary="Peak 4 GiB and 6 GiB.")
    extras = [Extras(sections=[drawing])]
    root = page(render_html([samples.HEADLINE], fail_on=None, extras=extras))
    assert len(root.findall(".//figure//{http://www.w3.org/2000/svg}svg")) == 1
    assert words(find(root, ".//figcaption")) == "Peak 4 GiB and 6 GiB."
    assert "Memory <over> time" in words(root)


def test_several_reports_make_one_page_with_an_index() -> None:
    reports = list(samples.PLAIN.values())
    root = page(render_html(reports, fail_on=Severity.ERROR, extras=[rows("x")]))
    targets = [link.get("href", "")[1:] for link in root.findall(".//nav//a")]
    sections = [section.get("id") for section in root.findall(".//section[@class='report']")]
    assert targets == sections
    assert len(sections) == len(reports)
    assert len(root.findall(".//form[@aria-label='Filter findings']")) == 1


def test_same_report_gives_the_same_bytes() -> None:
    assert render_html([samples.HEADLINE], fail_on=None) == render_html(
        [samples.HEADLINE], fail_on=None
    )
