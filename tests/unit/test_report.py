from __future__ import annotations

import pytest

from envlock import report
from envlock.report import Format, Style
from tests.unit import report_samples as samples


def test_every_format_owns_a_renderer() -> None:
    assert set(report._RENDERERS) == set(Format)


@pytest.mark.parametrize("format_", Format)
def test_one_and_several_reports_render(format_: Format) -> None:
    reports = list(samples.PLAIN.values())
    one = format_.render(reports[:1], Style())
    assert one.endswith("\n")
    several = format_.render(reports, Style())
    assert several.endswith("\n")
    assert len(several) > len(one)
