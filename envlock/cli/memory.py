from __future__ import annotations

import enum
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from envlock.cli import options as opt
from envlock.cli.parser import Argument, Option
from envlock.cli.talk import say
from envlock.errors import UsageError
from envlock.report import Format, Style

if TYPE_CHECKING:
    from envlock.facts.cards import Card
    from envlock.report.memory import Page
    from envlock.targets.memory import Asked

OUTSIDE_MIB = 512
"""Assumed where nobody says: a context takes 287 to 667 MB, by how modules are loaded."""


class MemoryFormat(enum.Enum):
    """What the answer is printed as."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


def memory(
    snapshot: Annotated[
        str,
        Argument(
            metavar="SNAPSHOT|trace",
            help="What torch.cuda.memory._dump_snapshot wrote, an alloc-trace/1, or -.",
        ),
    ],
    function: Annotated[
        str | None,
        Argument(metavar="MODULE:FUNCTION", help="After trace: returns (model, batch, step)."),
    ] = None,
    *,
    card: Annotated[
        str | None,
        Option("--card", metavar="SIZE|NAME", help="Does it fit? 24GiB, or 'RTX 4090'."),
    ] = None,
    alloc_conf: Annotated[
        list[str] | None,
        Option(
            "--alloc-conf", metavar="TEXT", help="PYTORCH_CUDA_ALLOC_CONF to try; may be repeated."
        ),
    ] = None,
    torch: Annotated[
        str | None,
        Option("--torch", metavar="V", help="The release that recorded it: 2.6.0."),
    ] = None,
    outside: Annotated[
        int | None,
        Option(
            "--outside",
            metavar="MIB",
            least=0,
            help=f"What the card holds besides: CUDA context, libraries. [{OUTSIDE_MIB} assumed]",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        Option("--plot", metavar="FILE", help="Draw the timeline: FILE.svg or FILE.png."),
    ] = None,
    python: Annotated[
        str | None,
        Option("--python", metavar="EXE", help="With trace: the interpreter with torch."),
    ] = None,
    steps: Annotated[
        int, Option("--steps", metavar="N", least=1, most=1000, help="With trace: steps.")
    ] = 3,
    format_: Annotated[
        MemoryFormat, Option("--format", "-f", help="Format of the answer.")
    ] = MemoryFormat.TEXT,
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File for the answer; with trace: for the trace, to ask again.",
        ),
    ] = None,
    memory_limit: Annotated[
        int,
        Option("--memory-limit", metavar="MIB", least=256, help="What reading the file may take."),
    ] = 8192,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="More allocations, and all of their frames.")
    ] = False,
    debug: opt.Debug = False,
) -> int:
    """Say what a recorded run needs on another card or under other allocator settings, no GPU.

    Exit code 1 only if a card is named and the run does not finish on it.

    envlock memory snapshot.pickle
    envlock memory snapshot.pickle --card 'RTX 4090' --plot memory.svg
    envlock memory snapshot.pickle --card 24GiB --alloc-conf expandable_segments:True
    envlock memory trace train:make --card 24GiB     estimate without a recording, for CI
    """
    from envlock.facts.cards import parse_card  # noqa: PLC0415
    from envlock.targets.memory import Asked  # noqa: PLC0415

    _check(snapshot, function, python, plot)
    named = parse_card(card) if card else None
    asked = Asked(
        torch=torch,
        settings=alloc_conf or (),
        card=named.total if named else None,
        outside=(OUTSIDE_MIB if outside is None else outside) << 20,
        memory_limit=memory_limit << 20,
    )
    shown = Shown(card=named, assumed=outside is None, format=format_, verbose=verbose)
    if function is None:
        from envlock.targets.memory import study_file  # noqa: PLC0415

        return _publish(study_file(Path(snapshot), asked), shown, output, plot)
    traced = _traced(function, python, steps)
    if output is not None:
        opt.write_product(json.dumps(traced["trace"], separators=(",", ":")) + "\n", output)
    return _publish(_studied(traced, function, asked), shown, None, plot)


def _check(snapshot: str, function: str | None, python: str | None, plot: Path | None) -> None:
    if function is not None and snapshot != "trace":
        raise UsageError(
            f"one recording at a time: {function!r} is too much",
            hint="envlock memory SNAPSHOT, or envlock memory trace MODULE:FUNCTION",
        )
    if function is None and snapshot == "trace":
        raise UsageError(
            "trace what?",
            hint="envlock memory trace MODULE:FUNCTION; a file of this name is ./trace",
        )
    if function is None and python is not None:
        raise UsageError(
            "--python goes with trace only", hint="envlock memory trace MODULE:FUNCTION"
        )
    if plot is not None and plot.suffix.lower() not in (".svg", ".png"):
        raise UsageError(
            f"--plot {plot}: neither SVG nor PNG", hint="name a file that ends in .svg or .png"
        )


def _traced(function: str, python: str | None, steps: int) -> dict[str, Any]:
    from envlock.targets.local import find_interpreter  # noqa: PLC0415
    from envlock.targets.memory import trace_function  # noqa: PLC0415

    interpreter, why = find_interpreter(python)
    say(f"tracing {function} with {interpreter} ({why})")
    return trace_function(interpreter, Path.cwd(), function, steps)


def _studied(traced: dict[str, Any], function: str, asked: Asked) -> dict[str, Any]:
    from envlock.targets.memory import study_trace  # noqa: PLC0415

    answer = study_trace(traced["trace"], replace(asked, torch=asked.torch or str(traced["torch"])))
    for one in answer["cards"]:
        one["source"] = function
    return answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """How an answer is shown."""

    card: Card | None
    assumed: bool
    """Whether what is outside the allocator was not said but assumed."""
    format: MemoryFormat
    verbose: bool


def _publish(answer: dict[str, Any], shown: Shown, output: Path | None, plot: Path | None) -> int:
    if plot is not None:
        from envlock.report.memory_plot import write_plot  # noqa: PLC0415
        from envlock.rules.recorded_memory import left_by_card  # noqa: PLC0415

        for number, one in enumerate(answer["cards"]):
            name = f"{plot.stem}-{one['device']}{plot.suffix}" if number else plot.name
            write_plot(one, plot.with_name(name), limit=left_by_card(answer))
    if shown.format is MemoryFormat.JSON:
        opt.write_product(json.dumps(answer, indent=1) + "\n", output)
    elif shown.format is MemoryFormat.HTML:
        opt.write_product(_html(answer, shown), output)
    else:
        opt.write_product(_text(answer, shown, output), output)
    unfit = [one for one in answer["cards"] if _finishes(one) is False]
    return 1 if unfit else 0


def _finishes(one: dict[str, Any]) -> bool | None:
    """Whether the run finishes as it was recorded; None where no card was named."""
    outcome = one["settings_tried"][0].get("on_card")
    return None if outcome is None else bool(outcome["finished"])


def _text(answer: dict[str, Any], shown: Shown, output: Path | None) -> str:
    from envlock.report.memory import render_memory  # noqa: PLC0415

    return render_memory(answer, _page(shown, opt.Reporting(output=output).style()))


def _page(shown: Shown, style: Style) -> Page:
    from envlock.report.memory import Page  # noqa: PLC0415

    return Page(
        card=shown.card.name if shown.card else "",
        card_note=shown.card.note if shown.card else "",
        outside_note=" (assumed; measure it and say --outside MIB)" if shown.assumed else "",
        colour=style.colour,
        width=style.width,
        verbose=shown.verbose,
    )


def _html(answer: dict[str, Any], shown: Shown) -> str:
    from envlock.findings import Report  # noqa: PLC0415
    from envlock.report import Extras, Section  # noqa: PLC0415
    from envlock.report.charts import element  # noqa: PLC0415
    from envlock.report.memory import summary  # noqa: PLC0415
    from envlock.report.memory_plot import plot_timeline  # noqa: PLC0415
    from envlock.rules.recorded_memory import evidence, judge_memory, left_by_card  # noqa: PLC0415

    report = Report(
        command="memory",
        left="",
        right=answer["cards"][0]["source"],
        findings=judge_memory(answer, shown.card.name if shown.card else ""),
        checked=len(evidence(answer)),
    )
    sections = []
    for one in answer["cards"]:
        picture = plot_timeline(one, "svg", limit=left_by_card(answer))
        sections.append(
            Section(
                title=f"Memory over time, cuda:{one['device']}",
                drawings=[element(picture)],
                summary=summary(answer, one, _page(shown, Style())),
            )
        )
    return Format.HTML.render([report], Style(extras=[Extras(sections=sections)]))
