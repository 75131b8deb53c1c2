"""What only the HTML report has room for, drawn when one is asked for: both environments next to
each other, memory and losses over time, sizes of layers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from envlock.diff.side_by_side import side_by_side
from envlock.lock.behaviour import (
    BehaviourRecord,
    MemoryTimeline,
    NumericFigures,
    Numerics,
    Simulated,
)
from envlock.lock.observation import Observation
from envlock.neutral import neutral
from envlock.report import Extras, FactRow, Section
from envlock.report.charts import INSTALL, Line, Panel, bar_chart, line_chart
from envlock.report.wording import bytes_words, plural

if TYPE_CHECKING:  # an engine's client is not needed to draw
    from envlock.image.verify import Verified

_MIB = 1 << 20
_MOST_LAYERS = 12
_MOST_CURVES = 12
_LAYER_NAME = 32
_OWN_LAYER = re.compile(r"envlock: ([a-z-]{1,20})|.*/stage/([a-z-]{1,20})/")
"""As the assembler and the Dockerfile name theirs."""
_SIMULATED = "default_settings"

Side = Literal["recorded", "measured"]
Records = Mapping[Side, BehaviourRecord]


def of_pair(left: Observation, right: Observation) -> Extras:
    return Extras(facts=_facts(left, right))


def of_smoke(recorded: BehaviourRecord | None, measured: BehaviourRecord) -> Extras:
    return Extras(sections=tuple(_behaviour(recorded, measured)))


def of_verified(verified: Verified) -> Extras:
    sections = [*_behaviour(verified.recorded, verified.measured), *_layers(verified.layers)]
    return Extras(facts=_facts(verified.expected, verified.found), sections=sections)


def _facts(left: Observation, right: Observation) -> Sequence[FactRow]:
    rows = side_by_side(left, right)
    return [FactRow(path=path, left=one, right=other) for path, one, other in rows]


def _behaviour(
    recorded: BehaviourRecord | None, measured: BehaviourRecord | None
) -> Iterator[Section]:
    records: dict[Side, BehaviourRecord] = {}
    if recorded is not None:
        records["recorded"] = recorded
    if measured is not None:
        records["measured"] = measured
    yield from _memory(records)
    yield from _losses(records)


def _memory(records: Records) -> Iterator[Section]:
    """The traced run, as the model of the allocator has it on both sides."""
    lines: list[Line] = []
    words = []
    for side, record in records.items():
        timeline = _timeline(record)
        if timeline is None:
            words.append(f"{side}: no timeline")
            continue
        lines += _levels(timeline, side)
        peaks = max(timeline.allocated, default=0), max(timeline.reserved, default=0)
        allocated, reserved = map(bytes_words, peaks)
        words.append(f"{side}: {allocated} allocated, {reserved} reserved")
    if not lines:
        return
    panel = Panel(
        lines=lines, x_label="operations of the traced training run", y_label="MiB", from_zero=True
    )
    yield _section(
        "GPU memory over time",
        [line_chart(panel, wide=True)],
        f"Predicted by the model of the allocator, without a GPU. Most in use: {'; '.join(words)}.",
    )


def _levels(timeline: MemoryTimeline, side: Side) -> Iterator[Line]:
    for name, levels in (("reserved", timeline.reserved), ("allocated", timeline.allocated)):
        yield Line(
            label=f"{name}, {side}",
            xs=[i * timeline.operations / len(levels) for i in range(len(levels))],
            ys=[level / _MIB for level in levels],
            dashed=side == "recorded",
            faint=name == "allocated",
            steps=True,
        )


def _losses(records: Records) -> Iterator[Section]:
    runs = {side: _numerics(record) for side, record in records.items()}
    names = list(dict.fromkeys(name for figures in runs.values() for name in figures))
    if not names:
        return
    both = [name for name in names if all(name in figures for figures in runs.values())]
    same = sum(len({tuple(figures[name].loss) for figures in runs.values()}) == 1 for name in both)
    words = f"{plural(len(names), 'workload', 'workloads')}, one training loss a step"
    if len(runs) > 1:
        words += f"; in {same} of {len(both)} measured on both sides every loss is equal to the bit"
    if len(names) > _MOST_CURVES:
        words += f"; the first {_MOST_CURVES} are drawn"
    panels = [
        Panel(
            title=name,
            lines=[
                _curve(figures[name], side) for side, figures in runs.items() if name in figures
            ],
            x_label="step",
            y_label="loss",
        )
        for name in names[:_MOST_CURVES]
    ]
    yield _section("Loss curves", [line_chart(panel, wide=False) for panel in panels], f"{words}.")


def _curve(figures: NumericFigures, side: Side) -> Line:
    losses = [float.fromhex(value) for value in figures.loss]
    return Line(label=side, xs=range(1, len(losses) + 1), ys=losses, dashed=side == "recorded")


def _layers(layers: Sequence[tuple[str, int]]) -> Iterator[Section]:
    sizes: Counter[str] = Counter()
    for name, size in _named_layers(layers):
        sizes[name] += size
    written = {name: size for name, size in sizes.items() if size}
    largest = dict(sizes.most_common(_MOST_LAYERS))
    shown = {name: size / 1e6 for name, size in written.items() if name in largest}
    if len(shown) < len(written):
        shown["others"] = sum(size for name, size in written.items() if name not in shown) / 1e6
    if not shown:
        return
    total = sum(written.values()) / 1e6
    yield _section(
        "Layer sizes",
        [bar_chart(shown, "MB")],
        f"{total:,.0f} MB unpacked: {', '.join(f'{n} {s:,.0f} MB' for n, s in shown.items())}.",
    )


def _named_layers(layers: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    own = [_OWN_LAYER.match(made_by) for made_by, _ in layers]
    first = next((number for number, name in enumerate(own) if name), 0)
    for number, (made_by, size) in enumerate(layers):
        name = own[number]
        if name is not None:
            yield name[1] or name[2], size
        else:
            yield "base" if number < first else neutral(made_by, _LAYER_NAME), size


def _section(title: str, drawn: Sequence[str | None], summary: str) -> Section:
    drawings = [drawing for drawing in drawn if drawing is not None]
    if not drawings:
        summary += f" Not drawn: matplotlib is not here ({INSTALL})."
    return Section(title=title, drawings=drawings, summary=summary)


def _timeline(record: BehaviourRecord) -> MemoryTimeline | None:
    probe = record.probes.sim
    if not isinstance(probe, Simulated) or _SIMULATED not in probe.values:
        return None
    return probe.values[_SIMULATED].timeline


def _numerics(record: BehaviourRecord) -> dict[str, NumericFigures]:
    probe = record.probes.numerics
    return probe.values if isinstance(probe, Numerics) else {}
