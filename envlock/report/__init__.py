"""Reports: one function per format over ``envlock.findings.Report``.

Formats are imported when they are asked for: ``--help`` needs none, and only html needs jinja2.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envlock.findings import Report, Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """How reports are rendered; formats take from it what they have a use for."""

    fail_on: Severity | None = Severity.ERROR
    """``None``: nothing fails."""
    verbose: bool = False
    colour: bool = False
    width: int = 80


class Format(enum.Enum):
    """A format of ``--format`` and ``--report``, with its renderer."""

    TEXT = "text"
    JSON = "json"

    def render(self, reports: Sequence[Report], style: Style) -> str:
        """All reports of one call as one document; ends with a newline."""
        return _RENDERERS[self](reports, style)


Renderer = Callable[[Sequence[Report], Style], str]


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


_RENDERERS: dict[Format, Renderer] = {
    Format.TEXT: _text,
    Format.JSON: _json,
}
