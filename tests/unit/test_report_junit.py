from __future__ import annotations

import re

import junitparser
import pytest
from lxml import etree

from envlock.findings import Report, Severity
from envlock.report.junit import render_junit
from tests.unit import report_samples as samples

# The elements and attributes that both Jenkins' xunit schema and GitLab's reader accept, written
# down as RELAX NG: JUnit itself has no schema.
GRAMMAR = """
<grammar xmlns="http://relaxng.org/ns/structure/1.0"
         datatypeLibrary="http://www.w3.org/2001/XMLSchema-datatypes">
  <start><element name="testsuites">
    <attribute name="name"/>
    <oneOrMore><ref name="suite"/></oneOrMore>
  </element></start>
  <define name="suite"><element name="testsuite">
    <attribute name="name"/>
    <attribute name="tests"><data type="positiveInteger"/></attribute>
    <attribute name="failures"><data type="nonNegativeInteger"/></attribute>
    <attribute name="errors"><data type="nonNegativeInteger"/></attribute>
    <attribute name="skipped"><data type="nonNegativeInteger"/></attribute>
    <oneOrMore><element name="testcase">
      <attribute name="classname"/><attribute name="name"/>
      <optional><choice>
        <element name="failure"><ref name="outcome"/></element>
        <element name="error"><ref name="outcome"/></element>
        <element name="skipped"><attribute name="message"/></element>
        <element name="system-out"><text/></element>
      </choice></optional>
    </element></oneOrMore>
  </element></define>
  <define name="outcome"><attribute name="type"/><attribute name="message"/><text/></define>
</grammar>
"""
SCHEMA = etree.RelaxNG(etree.fromstring(GRAMMAR))


def tree(report: Report, fail_on: Severity | None = Severity.ERROR) -> etree._Element:
    root = etree.fromstring(render_junit([report], fail_on=fail_on).encode())
    SCHEMA.assertValid(root)
    return root


@pytest.mark.parametrize("name", samples.ALL)
def test_every_report_is_valid_for_independent_parsers(name: str) -> None:
    root = tree(samples.ALL[name])
    text = render_junit([samples.ALL[name]], fail_on=Severity.ERROR)
    document = junitparser.JUnitXml.fromstring(text.encode())
    suites = list(document)
    assert len(suites) == 1
    assert suites[0].tests == len(root.findall(".//testcase"))


def test_counts_agree_with_the_cases() -> None:
    suite = tree(samples.HEADLINE)[0]
    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "8", "failures": "2", "errors": "0", "skipped": "2"}


@pytest.mark.parametrize(
    ("fail_on", "failures"),
    [(Severity.ERROR, 2), (Severity.WARNING, 3), (Severity.INFO, 5), (None, 0)],
)
def test_what_fails_follows_the_threshold(fail_on: Severity | None, failures: int) -> None:
    assert len(tree(samples.HEADLINE, fail_on).findall(".//failure")) == failures


def test_nothing_checked_is_an_error_even_when_nothing_may_fail() -> None:
    assert len(tree(samples.NOTHING, None).findall(".//error")) == 1
    assert not tree(samples.SAME).findall(".//error")


def test_failure_says_what_it_means_and_what_to_do() -> None:
    failure = tree(samples.HEADLINE).find(".//failure")
    assert failure is not None
    text = failure.text or ""
    assert "colleague.lock: 2.3.0+cu121\nenv: 2.4.0+cu118\nto do: uv pip install" in text
    assert "11 differences follow from it: 10 nvidia-* packages, triton" in text


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_foreign_text_adds_no_case_and_no_runner_command(name: str) -> None:
    report = samples.hostile_report(samples.HOSTILE[name])
    text = render_junit([report], fail_on=None)
    assert not re.search(r"^\s*::|##\[|##vso\[", text, re.MULTILINE)
    assert len(tree(report).findall(".//testcase")) == 1 + len(report.findings) + 1
    assert {element.tag for element in tree(report).iter()} <= {
        *("testsuites", "testsuite", "testcase", "failure", "skipped", "system-out"),
    }


def test_several_reports_are_several_suites() -> None:
    text = render_junit(list(samples.PLAIN.values()), fail_on=None)
    root = etree.fromstring(text.encode())
    SCHEMA.assertValid(root)
    assert len(root) == len(samples.PLAIN)
