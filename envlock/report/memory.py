"""What ``envlock memory`` prints: the answer first, then the figures behind it.

Reads the answer ``envlock-memory/1`` (``docs/schema``); sizes are bytes. Names and settings come
from a recording and so from anybody: all of them pass through ``neutral``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from envlock.neutral import neutral
from envlock.report.wording import bytes_words, plural

_STEPS: Final = " ▁▂▃▄▅▆▇█"
_LINE: Final = 60
"""Characters of a timeline."""
_LARGEST: Final = 5
_COLOURS: Final = {"FITS": "32", "TIGHT": "33", "DOES NOT FIT": "31", "NEEDS": "36"}
_INDENT: Final = "  "


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """How the text looks."""

    card: str = ""
    """Name of the card that was asked about."""
    card_note: str = ""
    outside_note: str = ""
    colour: bool = False
    width: int = 100
    verbose: bool = False


def render_memory(answer: Mapping[str, Any], page: Page) -> str:
    lines: list[str] = []
    for one in answer["cards"]:
        lines += [*([""] if lines else []), *_card(answer, one, page)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def summary(answer: Mapping[str, Any], one: Mapping[str, Any], page: Page) -> str:
    """One card's answer in a sentence or two, to stand under a drawing."""
    word, sentence = _verdict(answer, one, page)
    tried = ", ".join(
        f"{_setting(row)} {bytes_words(row['smallest_card'])}"
        + ("" if row["validated"] else " (not validated by a recording)")
        for row in one["settings_tried"]
    )
    return f"{word}: {sentence}. {_peak(one)}. Smallest card: {tried}."


def _card(answer: Mapping[str, Any], one: Mapping[str, Any], page: Page) -> Iterator[str]:
    word, sentence = _verdict(answer, one, page)
    shown = f"\x1b[1;{_COLOURS[word]}m{word}\x1b[0m" if page.colour else word
    # the word is padded by hand: its colours have no width
    yield from _wrapped(sentence, page, first=f"{shown}  ", width_of_first=len(word) + 2)
    marks = _Marks()
    yield ""
    yield from _table(one, marks)
    yield ""
    yield from _wrapped(_peak(one), page)
    yield from _timeline(one)
    yield from _ooms(one, page)
    yield from _largest(one, page)
    yield ""
    yield from _rests(answer, one, page, marks)


def _verdict(answer: Mapping[str, Any], one: Mapping[str, Any], page: Page) -> tuple[str, str]:
    recorded = one["settings_tried"][0]
    what = neutral(one["source"], 200)
    if len(answer["cards"]) > 1:
        what += f", cuda:{one['device']}"
    if one["estimate"] is not None:
        what += " (an estimate)"
    need = bytes_words(recorded["smallest_card"])
    outcome = recorded.get("on_card")
    if outcome is None:
        return "NEEDS", f"{what}: a card with {need} is the smallest that finishes"
    card = neutral(page.card)
    if page.card_note:  # it was named, so its size is news
        card += f" ({bytes_words(answer['card'])})"
    if outcome["finished"] and not outcome["retries"]:
        return "FITS", f"{what} on {card}: the smallest card that finishes has {need}"
    if outcome["finished"]:
        times = plural(outcome["retries"], "time", "times")
        return "TIGHT", f"{what} on {card}: finishes, but has to empty its cache {times}"
    fitting = [r for r in one["settings_tried"] if r["on_card"]["finished"]]
    if fitting:
        best = min(fitting, key=lambda row: row["smallest_card"])
        remedy = f"it does with PYTORCH_CUDA_ALLOC_CONF={_setting(best)}"
        if not best["settings"]:
            remedy = "it does without PYTORCH_CUDA_ALLOC_CONF"
    else:
        remedy = "nor with any allocator setting tried"
    return "DOES NOT FIT", f"{what} on {card}: it needs a card with {need}; {remedy}"


class _Marks:
    """Footnotes: each reason once, under a number."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def of(self, row: Mapping[str, Any]) -> str:
        if row["validated"]:
            return ""
        marks = []
        for doubt in row["reason"].split("; "):
            # "max_split_size_mb, several streams: why"; the row names its settings itself
            reason = neutral(doubt.rpartition(": ")[2], 1000)
            if reason not in self.reasons:
                self.reasons.append(reason)
            marks.append(self.reasons.index(reason) + 1)
        return f"[{','.join(map(str, sorted(set(marks))))}]"


def _setting(row: Mapping[str, Any]) -> str:
    return neutral(row["settings"], 80) or "default settings"


def _table(one: Mapping[str, Any], marks: _Marks) -> Iterator[str]:
    rows = one["settings_tried"]
    names = [_setting(row) for row in rows]
    if one["estimate"] is None:
        names[0] += " (as recorded)" if one["settings"] is not None else " (assumed)"
    wide = max(len(name) for name in names)
    head = f"{'allocator settings':<{wide}}  {'reserved':>10}  {'smallest card':>13}"
    yield head + ("  on that card" if "on_card" in rows[0] else "")
    for name, row in zip(names, rows, strict=True):
        line = f"{name:<{wide}}  {bytes_words(row['peak_reserved']):>10}"
        line += f"  {bytes_words(row['smallest_card']):>13}"
        if "on_card" in row:
            line += f"  {_on_card(row['on_card']):<13}"
        yield f"{line}  {marks.of(row)}"


def _on_card(outcome: Mapping[str, Any]) -> str:
    if not outcome["finished"]:
        return "out of memory"
    return (
        f"fits, {plural(outcome['retries'], 'retry', 'retries')}" if outcome["retries"] else "fits"
    )


def _peak(one: Mapping[str, Any]) -> str:
    peak = one["peak"]
    if one["estimate"] is not None:
        return f"At the peak {bytes_words(peak['requested'])} requested"
    return (
        f"At the peak {bytes_words(peak['requested'])} requested, "
        f"{bytes_words(peak['allocated'])} allocated, {bytes_words(peak['reserved'])} reserved "
        f"({100 * peak['fragmentation']:.0f} % of it unused); "
        f"most reserved {bytes_words(peak['peak_reserved'])}"
    )


def _timeline(one: Mapping[str, Any]) -> Iterator[str]:
    points: Sequence[Mapping[str, int]] = one["timeline"]
    series = ("reserved", "allocated") if one["estimate"] is None else ("allocated",)
    highest = max((point[name] for point in points for name in series), default=0)
    if not highest:
        return
    for name in series:
        yield f"{_INDENT}{name:<14}{_bars([point[name] for point in points], highest)}"
    if one["estimate"] is None:
        unused = [1 - p["allocated"] / p["reserved"] if p["reserved"] else 0.0 for p in points]
        yield f"{_INDENT}{'fragmentation':<14}{_bars(unused, 1.0)} up to {100 * max(unused):.0f} %"


def _bars(values: Sequence[float], highest: float) -> str:
    """The highest value of each stretch, in eighths of a line."""
    count = min(_LINE, len(values))
    stretches = [
        max(values[i * len(values) // count : (i + 1) * len(values) // count]) for i in range(count)
    ]
    last = len(_STEPS) - 1
    return "".join(_STEPS[min(last, round(value / highest * last))] for value in stretches)


def _ooms(one: Mapping[str, Any], page: Page) -> Iterator[str]:
    for oom in one["ooms"]:
        avoided = [_setting(row) for row in oom["tried"] if row["avoided"]]
        by = (
            f"avoided by {', '.join(avoided)}"
            if avoided
            else "no allocator setting tried would have avoided it"
        )
        yield ""
        yield from _wrapped(
            f"Out of memory when {bytes_words(oom['requested'])} were asked for, with "
            f"{bytes_words(oom['device_free'])} left on the card and {bytes_words(oom['capacity'])} "
            f"for the allocator in all: {by}.",
            page,
        )


def _largest(one: Mapping[str, Any], page: Page) -> Iterator[str]:
    rows: Sequence[Mapping[str, Any]] = one["largest"]
    if not rows:
        return
    yield ""
    yield "Largest allocations alive at the peak"
    same = [(size, list(group)) for size, group in groupby(rows, key=_alike)]
    for (size, frames), group in same if page.verbose else same[:_LARGEST]:
        shown = [neutral(frame, 200) for frame in frames[: 6 if page.verbose else 2]]
        where = " < ".join(shown) or "(older than the recording, or recorded without frames)"
        room = max(page.width - 21, 20)
        if len(where) > room and not page.verbose:
            where = where[: room - 1] + "…"
        times = f"{len(group)} x" if len(group) > 1 else ""
        yield f"{_INDENT}{times:>5} {bytes_words(size):>10}  {where}"


def _alike(row: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    return row["requested"], tuple(row["frames"])


def _rests(
    answer: Mapping[str, Any], one: Mapping[str, Any], page: Page, marks: _Marks
) -> Iterator[str]:
    agreement = one["agreement"]
    if agreement["compared"]:
        right, of = agreement["decisions_right"], agreement["allocations"]
        yield from _wrapped(
            f"Checked on this run: the model decides as the recorded allocator did in {right} of "
            f"{of} allocations.",
            page,
        )
    elif one["estimate"] is None:
        yield from _wrapped(f"Not checked on this run: {neutral(agreement['reason'], 400)}.", page)
    for number, reason in enumerate(marks.reasons, 1):
        yield from _wrapped(f"not validated: {reason}", page, first=f"[{number}] ")
    if one["settings_note"]:
        yield from _wrapped(neutral(one["settings_note"], 400), page)
    if page.card_note:
        yield from _wrapped(f"{neutral(page.card)}: {neutral(page.card_note)}", page)
    if answer["outside"]:
        size = bytes_words(answer["outside"])
        yield from _wrapped(
            f"Each card counts {size} for what is outside the allocator{page.outside_note}.", page
        )
    if not answer["torch_known"]:
        yield from _wrapped(
            f"Rules of torch {neutral(answer['torch'])}: the file does not say which release "
            "recorded it (--torch).",
            page,
        )


def _wrapped(
    text: str, page: Page, *, first: str = "", width_of_first: int | None = None
) -> Iterator[str]:
    indent = len(first) if width_of_first is None else width_of_first
    lines = textwrap.wrap(
        text, max(page.width - indent, 30), break_long_words=False, break_on_hyphens=False
    )
    for number, line in enumerate(lines):
        yield (first if number == 0 else " " * indent) + line
