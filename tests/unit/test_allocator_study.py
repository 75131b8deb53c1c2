"""What a recorded run needs elsewhere: questions, their answers, and what the answers rest on."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from envlock.allocator import child, study, whatif
from envlock.allocator.history import Decisions, History, RecordedOom, StartRequest
from envlock.allocator.model import CONTEXT, EMPTY_CACHE, FREE, Operation
from envlock.allocator.recording import read_recording
from envlock.allocator.rules import GIB, MIB, Rules, rules_for
from envlock.allocator.segments import Context
from envlock.allocator.settings import Settings, parse_settings
from envlock.allocator.snapshot import read_snapshot
from envlock.allocator.study import Question
from envlock.allocator.timeline import BUCKETS, largest_alive, trace_memory
from envlock.allocator.validation import validation_of
from envlock.allocator.whatif import need, oom_capacity, oom_workload, run_on, workload
from envlock.errors import EnvlockError, InputError, UsageError
from envlock.report.memory_plot import plot_timeline, write_plot
from tests.unit.test_allocator_snapshot import DATA, from_recording

GROWING: list[Operation] = [
    operation
    for turn in range(30)
    for operation in (
        (turn * 3, (40 + turn) * MIB),
        (turn * 3 + 1, (20 + turn) * MIB),
        (turn * 3, FREE),
        (turn * 3 + 2, 3 * MIB),
        (turn * 3 + 1, FREE),
    )
]
"""Each step asks for a little more, so that what the last one left behind is too small."""


def history(operations: list[Operation], **more: Any) -> History:
    return History(source="made up", operations=operations, **more)


def question(**more: Any) -> Question:
    return Question(torch=Version("2.6.0"), **more)


def test_expandable_segments_need_less_where_sizes_grow() -> None:
    work = workload(history(GROWING), settings=2, around=0)
    plain = need(work, Rules(), Settings())
    expandable = need(work, Rules(), parse_settings("expandable_segments:True"))
    assert expandable.peak_reserved < 0.7 * plain.peak_reserved
    assert expandable.smallest <= plain.smallest <= plain.peak_reserved
    assert plain.retries > 0, "the smallest card lives from emptying the cache"
    assert not plain.validation.validated


def test_the_smallest_card_finishes_and_one_a_page_smaller_does_not() -> None:
    work = workload(history(GROWING), settings=1, around=0)
    for text in ("", "expandable_segments:True", "max_split_size_mb:32"):
        settings = parse_settings(text)
        found = need(work, Rules(), settings)
        assert run_on(work, Rules(), settings, found.smallest).finished
        smaller = run_on(work, Rules(), settings, found.smallest - 2 * MIB)
        assert not smaller.finished
        assert smaller.failed_after is not None
        assert 0 <= smaller.failed_after < len(GROWING)


def test_a_fraction_needs_a_larger_card() -> None:
    work = workload(history(GROWING), settings=1, around=0)
    half = need(work, Rules(), parse_settings("per_process_memory_fraction:0.5"))
    assert half.smallest >= 2 * need(work, Rules(), Settings()).smallest - 8 * MIB
    assert run_on(
        work, Rules(), parse_settings("per_process_memory_fraction:0.5"), half.smallest
    ).finished


def test_what_was_in_use_at_the_start_is_asked_for_first() -> None:
    start = (StartRequest(100, 50 * MIB, 0), StartRequest(101, 30 * MIB, 1))
    made = history(
        [(100, FREE), (1, 10 * MIB), (101, FREE)],
        start_requests=start,
        contexts=(Context(), Context(stream=4)),
    )
    work = workload(made, settings=1, around=0)
    assert list(work.operations[:4]) == [
        (100, 50 * MIB),
        (1, CONTEXT),
        (101, 30 * MIB),
        (0, CONTEXT),
    ]
    assert "2 blocks were in use" in work.caveats[0]
    assert run_on(work, Rules(), Settings(), None).peak_reserved == 80 * MIB


def test_retries_of_the_recorded_card_are_not_repeated_but_emptied_caches_are() -> None:
    operations = [(1, 20 * MIB), (1, FREE), (0, EMPTY_CACHE), (2, MIB), (0, EMPTY_CACHE)]
    made = history(operations, decisions=Decisions(retries=frozenset({2})))
    kept = workload(made, settings=1, around=0).operations
    assert [code for _, code in kept].count(EMPTY_CACHE) == 1


def test_a_long_history_is_asked_about_around_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whatif, "MOST_OPERATIONS", 0)
    made = history([(-1, 5 * MIB), *[(n // 2, FREE if n % 2 else 512) for n in range(50_000)]])
    work = workload(made, settings=4, around=40_000)
    assert len(work.operations) < 10_010
    assert work.operations[0] == (-1, 5 * MIB), "what is alive when the part begins comes first"
    assert "of 50001 operations" in work.caveats[-1]
    assert run_on(work, Rules(), Settings(), None).finished


def oom_history() -> History:
    """40 MiB free in two segments of 20: useless for 36 in a row, on a card that is full."""
    operations: list[Operation] = [(1, 12 * MIB), (2, 8 * MIB), (3, 12 * MIB), (4, 8 * MIB)]
    return history(
        [*operations, (1, FREE), (3, FREE)],
        decisions=Decisions(
            grown={1: (0, 12 * MIB), 2: (1 << 30, 20 * MIB), 3: (2 << 30, 12 * MIB)},
        ),
        start_reserved=2 * MIB,
        ooms=(RecordedOom(operation=6, requested=24 * MIB, device_free=6 * MIB),),
    )


def test_the_memory_there_was_when_it_failed() -> None:
    made = oom_history()
    assert oom_capacity(made, made.ooms[0]) == (2 + 12 + 20 + 12 + 6) * MIB
    work = oom_workload(made, made.ooms[0])
    assert work.operations[-1] == (-1, 24 * MIB)
    assert list(work.operations[:6]) == list(made.operations)


def test_which_setting_would_have_avoided_a_failure() -> None:
    operations: list[Operation] = []
    for step in range(5):  # each leaves a segment of 16 MiB with 7 free, too few for anything
        block = step * 2
        operations += [(block, 16 * MIB), (block, FREE), (block + 1, 9 * MIB)]
    grown = {step * 2: (step << 30, 16 * MIB) for step in range(5)}
    made = history(
        operations,
        decisions=Decisions(grown=grown),
        ooms=(RecordedOom(operation=15, requested=30 * MIB, device_free=10 * MIB),),
    )
    (card,) = study.study([made], question())["cards"]
    (oom,) = card["ooms"]
    avoided = {row["settings"]: row["avoided"] for row in oom["tried"]}
    assert oom["capacity"] == 90 * MIB
    assert avoided == {
        "": False,
        "expandable_segments:True": True,
        "max_split_size_mb:128": False,
        "roundup_power2_divisions:8": False,
    }
    assert not any(row["validated"] for row in oom["tried"] if row["settings"])


def test_timeline_of_a_snapshot() -> None:
    (made,) = read_snapshot(io.BytesIO(pickle.dumps(from_recording("trace-01"))), "s")
    line = trace_memory(made, {})
    assert len(line.points) <= BUCKETS
    assert line.peak_reserved == 134_217_728
    assert max(point.allocated for point in line.points) == line.peak.allocated
    assert line.peak.requested <= line.peak.allocated <= line.peak.reserved
    assert line.points[0].time_us == 0
    assert line.points[-1].operation < len(made.operations)
    assert 0 < line.fragmentation < 1
    alive = largest_alive(made, {}, line.peak.operation)
    assert [one.requested for one in alive] == sorted((o.requested for o in alive), reverse=True)
    assert alive[0].frames == ("step (/home/someone/train.py:42)",)


def test_timeline_counts_what_blocks_really_took() -> None:
    made = history([(1, 19 * MIB), (1, FREE)], start_requests=(StartRequest(7, 100, 0),))
    line = trace_memory(made, {1: 20 * MIB, 7: 512})
    assert (line.peak.requested, line.peak.allocated) == (19 * MIB + 100, 20 * MIB + 512)
    assert line.peak.time_us is None
    assert trace_memory(history([]), {}).peak.allocated == 0


def test_a_study_of_a_recording_says_how_well_the_model_followed_it() -> None:
    made = read_recording(DATA / "trace-03.json.gz")
    answer = study.study([made], question(card=48 * GIB, outside=GIB))
    json.dumps(answer)
    (card,) = answer["cards"]
    assert answer["schema"] == "envlock-memory/1"
    assert card["agreement"] == {
        "compared": True,
        "allocations": 2057,
        "decisions_right": 2057,
        "placements_right": 2057,
        "peak_reserved": 44_715_474_944,
    }
    assert card["peak"]["peak_reserved"] == 44_715_474_944
    tried = {row["settings"]: row for row in card["settings_tried"]}
    assert set(tried) == set(study.CANDIDATES)
    for row in tried.values():
        assert row["smallest_card"] == row["smallest"] + GIB
        assert row["on_card"]["finished"]
        assert row["reason"]
        assert not row["validated"], "the start was not recorded, so nothing here is certain"


def test_what_the_recorded_release_does_not_know_is_not_tried() -> None:
    made = history(GROWING)
    (card,) = study.study([made], Question(torch=Version("2.0.1")))["cards"]
    assert "expandable_segments:True" not in {row["settings"] for row in card["settings_tried"]}
    with pytest.raises(InputError, match=r"it came with 2\.1"):
        study.study(
            [made], Question(torch=Version("2.0.1"), settings=("expandable_segments:True",))
        )


def test_recorded_settings_come_first_and_are_said_to_be_unclear_if_so() -> None:
    text = "max_split_size_mb:64"
    (card,) = study.study([history(GROWING, settings_text=text)], question())["cards"]
    assert card["settings_tried"][0]["settings"] == text
    odd = history(GROWING, settings_text="from_the_future:1")
    (card,) = study.study([odd], question())["cards"]
    assert "from_the_future" in card["settings_note"]
    assert card["settings_tried"][0]["settings"] == ""


def test_an_estimate_says_so_everywhere() -> None:
    made = history(GROWING, estimate="fake tensors, no allocator")
    (card,) = study.study([made], question())["cards"]
    assert card["estimate"] == "fake tensors, no allocator"
    assert card["agreement"]["compared"] is False
    assert all("fake tensors" in row["reason"] for row in card["settings_tried"])


def test_only_what_recordings_cover_is_validated() -> None:
    alone = (Context(),)
    rules = rules_for(Version("2.6.0"))
    good = validation_of(Settings(), rules, alone)
    assert good.validated
    assert "29,798" in good.reason
    for text, named in [
        ("expandable_segments:True", "expandable_segments"),
        ("max_split_size_mb:64", "max_split_size_mb"),
        ("roundup_power2_divisions:4", "roundup_power2_divisions"),
        ("large_segment_size_mb:40", "large_segment_size_mb"),
        ("throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom"),
        ("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9", "garbage"),
        ("per_process_memory_fraction:0.9", "fraction"),
    ]:
        found = validation_of(parse_settings(text), rules, alone)
        assert not found.validated
        assert named in found.reason
    assert not validation_of(Settings(), rules, alone, retries=1).validated
    assert not validation_of(Settings(), rules, (Context(), Context(stream=9))).validated
    assert not validation_of(Settings(), rules, (Context(), Context(private_pool=1))).validated
    assert not validation_of(Settings(), rules_for(Version("2.12.1")), alone).validated
    assert validation_of(Settings(), rules, alone, caveats=("x",)).reason == "x"


ACTIONS = (
    "alloc",
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "action": st.sampled_from(ACTIONS),
            "addr": st.integers(0, 12).map(lambda n: n << 20),
            "size": st.sampled_from([0, 1, 512, 3 * MIB, 30 * MIB, 1 << 43]),
            "stream": st.sampled_from([0, 0, 0, 8]),
            "device_free": st.sampled_from([0, MIB, 1 << 40]),
        }
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(events=EVENTS, torch=st.sampled_from([None, "2.3.0", "2.15.0"]))
def test_whatever_events_say_there_is_an_answer_or_a_refusal(
    events: list[dict[str, Any]], torch: str | None
) -> None:
    data = pickle.dumps({"segments": [], "device_traces": [events]})
    release = Version(torch) if torch else None
    with contextlib.suppress(InputError):
        made = read_snapshot(io.BytesIO(data), "s")
        json.dumps(study.study(made, Question(torch=release, card=GIB)))


def test_more_than_any_card_has_is_refused() -> None:
    with pytest.raises(InputError, match="more memory than any card"):
        study.study([history([(1, 1 << 45)])], question())
    nothing = question(settings=("per_process_memory_fraction:0",))
    with pytest.raises(InputError, match="more memory than any card"):
        study.study(
            [history([(1, 1)])], Question(torch=Version("2.10.0"), settings=nothing.settings)
        )


# -- the program that reads files from anybody --------------------------------------------------------


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits would hold for the whole test run; tests/process has them."""
    monkeypatch.setattr(child, "_limit", lambda memory, cpu_s: None)


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = child.main(list(arguments))
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("unlimited")
def test_the_program_tells_files_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = DATA / "trace-05.json.gz"
    plain = tmp_path / "trace.json"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    pickled = tmp_path / "snapshot.pickle"
    pickled.write_bytes(pickle.dumps(from_recording("trace-05")))
    for path in (packed, plain, pickled):
        code, answer = ask(capsys, "--torch", "2.3.0+cu121", str(path))
        assert code == 0
        assert answer["cards"][0]["allocations"] == 937
        assert answer["cards"][0]["source"] == path.name
    with pickled.open(encoding="latin-1") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        code, answer = ask(capsys, "--card", str(GIB), "--alloc-conf", "max_split_size_mb:64", "-")
    assert code == 0
    assert answer["torch_known"] is False
    assert answer["cards"][0]["settings_tried"][1]["settings"] == "max_split_size_mb:64"


@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize(
    ("content", "arguments"),
    [
        (b"\x1f\x8bnot really gzip", []),
        (b"{not json", []),
        (b"\x80\x04.", []),
        (b"", []),
        (pickle.dumps(from_recording("trace-05")), ["--alloc-conf", "nonsense:1"]),
        (pickle.dumps(from_recording("trace-05")), ["--torch", "one"]),
    ],
)
def test_the_program_refuses_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, arguments: list[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    code, answer = ask(capsys, *arguments, str(path))
    assert code == 4
    assert set(answer) == {"error", "hint"}
    assert ask(capsys, str(tmp_path / "missing"))[0] == 4


# -- pictures -----------------------------------------------------------------------------------------


def card_of(name: str) -> dict[str, Any]:
    made = read_recording(DATA / f"{name}.json.gz")
    card: dict[str, Any] = study.study([made], question())["cards"][0]
    return card


def test_the_same_study_gives_the_same_picture(tmp_path: Path) -> None:
    card = card_of("trace-05")
    svg = plot_timeline(card, "svg", limit=GIB)
    assert svg == plot_timeline(card, "svg", limit=GIB)
    assert svg.startswith(b"<?xml")
    assert b"reserved" in svg
    assert svg != plot_timeline(card, "svg")
    write_plot(card, tmp_path / "line.png")
    assert (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_that_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="gif"):
        plot_timeline({"timeline": []}, "gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EnvlockError) as refusal:
        write_plot({"timeline": []}, tmp_path / "line.svg")
    assert refusal.value.hint == "pip install 'torch-envlock[plots]'"
