"""What the HTML report shows beside the findings."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import html5lib
import pytest
from lxml import etree

from envlock.cli import extras
from envlock.cli.options import Reporting
from envlock.diff.side_by_side import FIRST, side_by_side
from envlock.findings import Report
from envlock.image.verify import Verified
from envlock.lock.behaviour import BehaviourRecord
from envlock.lock.shape import ShapeError
from envlock.report import Extras, Format, Section, Style
from envlock.report.charts import Line, Panel, bar_chart, line_chart
from envlock.targets.references import told_apart
from tests.unit import healthy
from tests.unit import report_samples as samples
from tests.unit.behaviour_samples import figures, numerics, record
from tests.unit.envs import env
from tests.unit.locks import observation

MIB = 1 << 20
REPORT = Report(command="verify", left="lock", right="image:x", findings=(), checked=1)


def simulated(*, allocated: list[int], reserved: list[int]) -> dict[str, Any]:
    timeline = {"operations": 200, "allocated": allocated, "reserved": reserved}
    values = {"requested": 1, "reserved": max(reserved), "min_device": 1, "timeline": timeline}
    return record(sim={"status": "ok", "values": {"default_settings": values}})


def words(section: Section) -> list[str]:
    assert section.drawings
    return [text for drawing in section.drawings for text in texts(drawing)]


def texts(svg: str) -> list[str]:
    """Texts of a drawing that is well-formed and has no other than drawn elements."""
    root = etree.fromstring(svg.encode())
    names = {etree.QName(element).localname for element in root.iter(etree.Element)}
    assert names <= {"svg", "g", "path", "text", "defs", "use", "clipPath", "rect", "style"}
    return ["".join(map(str, element.itertext())) for element in root.iter("{*}text")]


def read(made: dict[str, Any]) -> BehaviourRecord:
    return BehaviourRecord.read(made)


def smoke(recorded: dict[str, Any] | None, measured: dict[str, Any]) -> dict[str, Section]:
    found = extras.of_smoke(read(recorded) if recorded else None, read(measured))
    return {section.title: section for section in found.sections}


def verified(**changes: Any) -> Verified:
    made: dict[str, Any] = {
        "report": REPORT,
        "expected": observation(),
        "found": observation(),
        "recorded": None,
        "measured": None,
        "layers": (),
    }
    return Verified(**{**made, **changes})


def test_memory_of_both_sides_is_overlaid() -> None:
    section = smoke(
        simulated(allocated=[MIB, 3 * MIB], reserved=[4 * MIB, 6 * MIB]),
        simulated(allocated=[2 * MIB], reserved=[8 * MIB]),
    )["GPU memory over time"]
    assert "recorded: 3 MiB allocated, 6 MiB reserved" in section.summary
    assert "measured: 2 MiB allocated, 8 MiB reserved" in section.summary
    sides = ("recorded", "measured")
    wanted = [f"{name}, {side}" for side in sides for name in ("reserved", "allocated")]
    assert [text for text in words(section) if ", " in text] == wanted


def test_a_record_from_before_timelines_is_told() -> None:
    section = smoke(record(), simulated(allocated=[MIB], reserved=[MIB]))["GPU memory over time"]
    assert "recorded: no timeline" in section.summary
    assert "GPU memory over time" not in smoke(record(), record())


def test_loss_curves_say_what_is_equal_to_the_bit() -> None:
    section = smoke(numerics(), numerics(lm_bf16=figures(loss=[6.5, 6.0, 5.4])))["Loss curves"]
    assert "in 1 of 2 measured on both sides every loss is equal to the bit" in section.summary
    assert {"lm_fp32", "lm_bf16", "recorded", "measured"} <= set(words(section))


def test_losses_that_are_no_numbers_are_drawn_around() -> None:
    made = numerics(lm_fp32=figures(loss=[float("nan"), float("inf"), 5.0]))
    assert "lm_fp32" in words(smoke(None, made)["Loss curves"])


def test_more_workloads_than_anybody_draws() -> None:
    many = numerics(**{f"w{number}": figures() for number in range(500)})
    section = smoke(None, many)["Loss curves"]
    assert len(section.drawings) == 12
    assert section.summary.startswith("502 workloads")
    assert section.summary.endswith("the first 12 are drawn.")


@pytest.mark.parametrize("exponent", ["p+1024", "p+9999"])
def test_a_loss_beyond_all_floats_is_refused(exponent: str) -> None:
    made = numerics(lm_fp32={**figures(), "loss": [f"0x1.0{exponent}"]})
    with pytest.raises(ShapeError):
        read(made)
    made["probes"]["numerics"]["values"]["lm_fp32"]["loss"] = [f"0x1.0{'p+1023'}"]
    read(made)


def test_layers_are_named_by_weight_and_the_base_is_one() -> None:
    layers = [
        ("mmdebstrap", 40_000_000),
        ("ENV LANG=C", 0),
        ("envlock: cuda", 2_000_000_000),
        ("COPY /stage/torch/ / # buildkit", 900_000_000),
        ("RUN something of the user's " + "x" * 5000, 1_000_000),
    ]
    (section,) = extras.of_verified(verified(layers=layers)).sections
    assert section.summary.startswith("2,941 MB unpacked: base 40 MB, cuda 2,000 MB, torch 900 MB")
    assert {"base", "cuda", "torch"} <= set(words(section))
    assert max(map(len, words(section))) < 60


def test_layers_of_somebody_elses_image_have_the_names_that_it_gives() -> None:
    (section,) = extras.of_verified(verified(layers=[("ADD file", 10), ("RUN pip", 20)])).sections
    assert {"ADD file", "RUN pip"} <= set(words(section))


def test_many_layers_are_told_together() -> None:
    layers = [(f"RUN {number}", 1_000_000 * (number + 1)) for number in range(100)]
    (section,) = extras.of_verified(verified(layers=layers)).sections
    assert section.summary.startswith("5,050 MB unpacked")
    assert "others" in words(section)


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_foreign_names_stay_text_in_a_drawing(name: str) -> None:
    value = samples.HOSTILE[name]
    (section,) = extras.of_verified(verified(layers=[(value, 10)])).sections
    words(section)
    panel = Panel(title=value, lines=[Line(label=value, xs=[1], ys=[1], dashed=True)])
    drawn = line_chart(panel, wide=True)
    assert drawn is not None
    texts(drawn)


@pytest.mark.parametrize("value", ["$x^2$", r"\frac{1}{2}", "$\\", "50 % & more_than #1", "_none"])
def test_a_name_is_no_formula(value: str) -> None:
    drawn = bar_chart({value: 1}, "MB")
    assert drawn is not None
    assert value in texts(drawn)


def test_ids_of_a_page_are_each_there_once_and_references_find_theirs() -> None:
    one = extras.of_verified(verified(recorded=read(numerics()), layers=[("envlock: cuda", 10)]))
    page = Format.HTML.render([REPORT, REPORT], Style(extras=[one, one]))
    root = html5lib.parse(page, namespaceHTMLElements=False)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) > 100
    references = re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', page)
    assert len(references) > 10
    assert set(references) <= set(ids)


def test_the_same_figures_give_the_same_bytes() -> None:
    made = numerics()
    one, other = smoke(None, made), smoke(None, made)
    assert one == other


def test_a_drawing_follows_the_page() -> None:
    drawn = bar_chart({"base": 1}, "MB")
    assert drawn is not None
    assert "currentColor" in drawn
    assert "#010203" not in drawn


def test_without_matplotlib_the_words_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    section = smoke(None, numerics())["Loss curves"]
    assert not section.drawings
    assert "torch-envlock[plots]" in section.summary
    page = Format.HTML.render([REPORT], Style(extras=[Extras(sections=[section])]))
    assert "2 workloads" in page
    assert "<svg" not in page


def test_side_by_side_begins_with_what_people_look_for() -> None:
    left = observation(env={"OMP_NUM_THREADS": "4", "LD_PRELOAD": {"absent": True}})
    right = observation(
        packages={"torch": {"version": "2.4.0", "record": {"unknown": "no RECORD"}}},
        exhaustive=["packages"],
    )
    rows = side_by_side(left, right)
    assert rows[:2] == (
        ("torch.version", "2.3.0+cu121", "2.3.0+cu121"),
        ("torch.cuda", "12.1", "12.1"),
    )
    found = {path: (one, other) for path, one, other in rows}
    assert found["env.OMP_NUM_THREADS"] == ("4", {"unknown": "not recorded"})
    assert "env.LD_PRELOAD" not in found
    assert found["packages.torch"] == ("2.3.0", "2.4.0")
    assert found["packages.numpy"] == ("1.26.4", {"absent": True})
    assert "driver.version" not in found


def test_what_nobody_could_read_is_a_row() -> None:
    unknown = {"unknown": "nvidia-smi does not answer"}
    rows = side_by_side(observation(driver=unknown), observation())
    assert ("driver.version", unknown, {"absent": True}) in rows


def test_extras_are_made_for_html_only(tmp_path: Path) -> None:
    asked = []

    def make() -> list[Extras]:
        asked.append(1)
        return [Extras(sections=[Section(title="Losses", drawings=[], summary="all equal")])]

    text, page = tmp_path / "report.txt", tmp_path / "report.html"
    Reporting(output=text, extras=make).publish([REPORT])
    assert not asked
    Reporting(output=text, more=[f"html={page}"], extras=make).publish([REPORT])
    assert asked == [1]
    assert "all equal" in page.read_text()


def test_every_fact_that_leads_is_one_that_a_full_capture_has() -> None:
    """A path that no observation knows would never show."""
    everything = env(healthy.ALL["cuda"], {"cublas": {"loaded": "12.1.3.1"}})
    shown = {path for path, _, _ in side_by_side(everything, everything)}
    assert set(FIRST) <= shown
    assert {"gpus.0.name", "gpus.0.compute_capability", "packages.torch"} <= shown


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ("a/x.toml", "b/x.toml", ("a/x.toml", "b/x.toml")),
        ("x.toml", "b/x.toml", ("x.toml", "b/x.toml")),
        ("/home/me/a/s/x.toml", "/home/me/b/s/x.toml", ("a/s/x.toml", "b/s/x.toml")),
        ("a/x.toml", "a/x.toml", None),
        ("-", "a/x.toml", None),
        ("image:x", "image:x", None),
    ],
)
def test_files_of_one_name_are_told_apart(
    one: str, other: str, names: tuple[str, str] | None
) -> None:
    assert told_apart(one, other) == names
