"""Charts for the HTML report, by matplotlib: an extra, imported only when one is drawn.

The same figures give the same bytes. Text stays text, and follows the theme of the page.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from envlock.neutral import neutral

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, RIGHT = "#8a63d2", "#1f9e89"
"""Of the reference and of what is compared with it; told apart in both themes and by the colour-blind."""
_INK = "#010203"
"""A colour that nothing else has, for what the page's own ink replaces."""

_NAME = 60
"""Characters of a name that leave room for what it names."""
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    side: Literal["left", "right"]
    faint: bool = False
    """The lesser of two lines of one side."""
    steps: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    lines: Sequence[Line]
    y_label: str = ""
    x_label: str = ""
    from_zero: bool = False


def line_charts(panels: Sequence[Panel]) -> str | None:
    """Panels side by side as one ``<svg>`` element; None without matplotlib."""
    columns = 1 if len(panels) == 1 else 2
    rows = -(-len(panels) // columns)

    def draw(figure: Figure) -> None:
        for number, panel in enumerate(panels, 1):
            _panel(figure.add_subplot(rows, columns, number), panel)

    return _svg(draw, (9, 3.4 if rows == 1 else 2.5 * rows))


def bar_chart(sizes: Mapping[str, float], unit: str) -> str | None:
    """A bar for each name, from above; None without matplotlib."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        names = [_plain(name) for name in sizes]
        bars = axes.barh(range(len(names)), list(sizes.values()), color=RIGHT)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.bar_label(bars, fmt=f" %.3g {unit}", color=_INK)
        axes.margins(x=0.15)
        _ink(axes)

    return _svg(draw, (9, 0.9 + 0.38 * len(sizes)))


def _panel(axes: Axes, panel: Panel) -> None:
    for line in panel.lines:
        style: dict[str, Any] = {
            "color": LEFT if line.side == "left" else RIGHT,
            "linestyle": (0, (5, 3)) if line.side == "left" else "-",
            "zorder": 3 if line.side == "left" else 2,  # dashes show what is below them
            "linewidth": 1.2 if line.faint else 2.2,
            "alpha": 0.75 if line.faint else 1.0,
            "label": _plain(line.label),
        }
        if line.steps:
            axes.step(line.xs, line.ys, where="post", **style)
        else:
            axes.plot(line.xs, line.ys, marker="o", markersize=3, **style)
    axes.set_title(_plain(panel.title), fontsize=10, color=_INK)
    axes.set_ylabel(panel.y_label)
    axes.set_xlabel(panel.x_label)
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    if panel.lines:
        axes.legend(frameon=False, fontsize=8, labelcolor=_INK)
    _ink(axes)


def _ink(axes: Axes) -> None:
    """Axes in the ink of the page, and no box around them."""
    axes.tick_params(colors=_INK, labelsize=8)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(_INK)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(_INK)


def _svg(draw: Any, size: tuple[float, float]) -> str | None:
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415 - not pyplot: no window, no state
    except ImportError:
        return None
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "envlock", "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(file, format="svg", metadata=_NO_METADATA, transparent=True)
    text = file.getvalue()
    return text[text.index("<svg") :].replace(_INK, "currentColor")


def _plain(name: str) -> str:
    """Foreign text as matplotlib shows it: a dollar begins no formula."""
    return neutral(name, _NAME).replace("$", r"\$")
