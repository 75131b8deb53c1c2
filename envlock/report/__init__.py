"""Reports: one module per format over ``envlock.findings.Report``.

A format is imported when it is asked for: ``--help`` needs none, and only html needs jinja2.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from envlock.findings import Report
from envlock.report.style import Extras, FactRow, Section, Style

__all__ = ["Extras", "FactRow", "Format", "Section", "Style"]


class Format(enum.Enum):
    """A format of ``--format`` and ``--report``, with its renderer."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"
    MARKDOWN = "markdown"
    HTML = "html"

    def render(self, reports: Sequence[Report], style: Style) -> str:
        """All reports of one call as one document; ends with a newline."""
        return _RENDERERS[self](reports, style)


def _text(reports: Sequence[Report], style: Style) -> str:
    from envlock.report.text import render_text  # noqa: PLC0415

    return "\n\n".join(
        render_text(
            report,
            fail_on=style.fail_on,
            verbose=style.verbose,
            colour=style.colour,
            width=style.width,
        )
        for report in reports
    )


def _json(reports: Sequence[Report], style: Style) -> str:
    from envlock.report.as_json import render_json, render_json_many  # noqa: PLC0415

    if len(reports) == 1:
        return render_json(reports[0], fail_on=style.fail_on)
    return render_json_many(reports, fail_on=style.fail_on)


def _junit(reports: Sequence[Report], style: Style) -> str:
    from envlock.report.junit import render_junit  # noqa: PLC0415

    return render_junit(reports, fail_on=style.fail_on)


def _sarif(reports: Sequence[Report], style: Style) -> str:
    from envlock.report.sarif import render_sarif  # noqa: PLC0415

    return render_sarif(reports, fail_on=style.fail_on)


def _github(reports: Sequence[Report], style: Style) -> str:
    from envlock.report.github import render_github  # noqa: PLC0415

    return render_github(reports, fail_on=style.fail_on)


def _markdown(reports: Sequence[Report], style: Style) -> str:
    from envlock.report.markdown import render_markdown  # noqa: PLC0415

    return render_markdown(reports, fail_on=style.fail_on, verbose=style.verbose)


def _html(reports: Sequence[Report], style: Style) -> str:
    from envlock.report.html import render_html  # noqa: PLC0415

    return render_html(reports, fail_on=style.fail_on, extras=style.extras)


_RENDERERS: dict[Format, Callable[[Sequence[Report], Style], str]] = {
    Format.TEXT: _text,
    Format.JSON: _json,
    Format.JUNIT: _junit,
    Format.SARIF: _sarif,
    Format.GITHUB: _github,
    Format.MARKDOWN: _markdown,
    Format.HTML: _html,
}
