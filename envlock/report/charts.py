"""Charts for the HTML report, by matplotlib: an extra, imported only when one is drawn.

The same figures give the same bytes. Text stays text, and follows the theme of the page.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
_METADATA = {"svg": ("Creator", "Date", "Format", "Type"), "png": ("Software",)}
"""What matplotlib would write of itself and of today."""
INSTALL = "pip install 'torch-envlock[plots]'"
"""What to do where matplotlib is missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    dashed: bool = False
    """Of the reference, so that what lies below shows."""
    faint: bool = False
    """The lesser of two lines of one side."""
    steps: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One pair of axes."""

    lines: Sequence[Line]
    title: str = ""
    y_label: str = ""
    x_label: str = ""
    from_zero: bool = False


def line_chart(panel: Panel, *, wide: bool) -> str | None:
    """One ``<svg>`` element, over the page or for a column of it; None without matplotlib."""
    return _svg(
        lambda figure: _panel(figure.add_subplot(), panel), (9, 3.4) if wide else (4.5, 2.5)
    )


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
            "color": LEFT if line.dashed else RIGHT,
            "linestyle": (0, (5, 3)) if line.dashed else "-",
            "zorder": 3 if line.dashed else 2,
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


def empty_figure(size: tuple[float, float]) -> Figure | None:
    """Width and height in inches; None without matplotlib."""
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415 - not pyplot: no window, no state
    except ImportError:
        return None
    return Figure(figsize=size, layout="constrained")


def saved(figure: Figure, image_format: str, *, transparent: bool = False) -> bytes:
    """The same figure gives the same bytes: no dates, no names made up for ids."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    metadata: dict[str, Any] = dict.fromkeys(_METADATA[image_format])
    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "envlock", "svg.fonttype": "none"}):
        figure.savefig(file, format=image_format, metadata=metadata, transparent=transparent)
    return file.getvalue()


def element(svg: bytes) -> str:
    """The ``<svg>`` element of an image file, to stand in a page."""
    text = svg.decode("utf-8")
    return text[text.index("<svg") :]


def _svg(draw: Callable[[Figure], None], size: tuple[float, float]) -> str | None:
    figure = empty_figure(size)
    if figure is None:
        return None
    draw(figure)
    return element(saved(figure, "svg", transparent=True)).replace(_INK, "currentColor")


def _plain(name: str) -> str:
    """Foreign text as matplotlib shows it: a dollar begins no formula."""
    return neutral(name, _NAME).replace("$", r"\$")
