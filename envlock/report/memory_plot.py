"""A timeline as a picture, by matplotlib: an extra, imported only when a picture is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from envlock.errors import InputError, UsageError
from envlock.report.charts import INSTALL, empty_figure, saved

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIB, GIB = 1 << 20, 1 << 30
_SERIES: Final = (("reserved", "#9aa5b1"), ("allocated", "#2f6fab"), ("requested", "#e07b39"))
"""Drawn in this order; a darker area hides the part of a lighter one that it explains."""


def plot_timeline(card: Mapping[str, Any], image_format: str, *, limit: int | None = None) -> bytes:
    """The timeline of one card of an answer ``envlock-memory/1`` as SVG or PNG.

    ``limit`` draws a line at that many bytes: what the card that is asked about leaves to torch.
    The same study gives the same bytes. Raises UsageError for another format or without matplotlib.
    """
    if image_format not in ("svg", "png"):
        raise UsageError(f"{image_format} is not a format of the plot", hint="use svg or png")
    figure = empty_figure((9, 4))
    if figure is None:
        raise UsageError("a plot needs matplotlib, which is not installed", hint=INSTALL)
    _draw(figure, card, limit)
    return saved(figure, image_format)


def write_plot(card: Mapping[str, Any], path: Path, *, limit: int | None = None) -> None:
    """Write the picture; its format is the file's extension. Raises UsageError, InputError."""
    picture = plot_timeline(card, path.suffix.removeprefix(".").lower(), limit=limit)
    try:
        path.write_bytes(picture)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", hint="name a file in a folder of yours"
        ) from error


def _draw(figure: Figure, card: Mapping[str, Any], limit: int | None) -> None:
    points: Sequence[Mapping[str, Any]] = card["timeline"]
    timed = all(point["time_us"] is not None for point in points)
    at = [point["time_us"] / 1e6 if timed else point["operation"] for point in points]
    highest = max((point["reserved"] for point in points), default=0)
    unit, name = (GIB, "GiB") if highest >= GIB else (MIB, "MiB")
    axes = figure.add_subplot()
    for series, colour in _SERIES:
        values = [point[series] / unit for point in points]
        axes.fill_between(at, values, step="post", color=colour, alpha=0.85, label=series)
    if limit is not None:
        axes.axhline(limit / unit, color="#b3261e", linestyle="--", label="what the card leaves")
    axes.set_xlabel("seconds since the first event" if timed else "operations")
    axes.set_ylabel(name)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
