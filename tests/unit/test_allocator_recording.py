"""Recordings of real GPUs: read with care, replayed exactly, predicted without looking."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.allocator import main
from envlock.allocator.history import Decisions
from envlock.allocator.model import EMPTY_CACHE
from envlock.allocator.recording import parse_recording, read_recording
from envlock.allocator.replay import replay, score
from envlock.allocator.rules import Rules
from envlock.errors import InputError

DATA = Path(__file__).parent / "data/allocator"
NAMES = ("trace-01", "trace-03", "trace-05")
AMBIGUOUS = {"trace-08.json.gz": 901}
"""Places that depend on how a block of the start was split, which its recording cannot say."""

Change = Callable[[dict[str, Any]], Any]


def all_recordings() -> list[Path]:
    """Those that come with the tests, and more where a folder of them is named or lies beside."""
    folder = os.environ.get("ENVLOCK_TEST_ALLOCATOR_TRACES")
    beside = Path(__file__).parents[3] / "shared/allocator-traces"
    more = Path(folder) if folder else beside
    return [*(DATA / f"{name}.json.gz" for name in NAMES), *sorted(more.glob("*.json.gz"))]


def raw(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return data


@pytest.mark.parametrize(
    "path", all_recordings(), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_replayed_exactly(path: Path) -> None:
    history = read_recording(path)
    found = replay(history, Rules())
    result = score(history, found)
    assert result.decisions_right == result.allocations == history.allocations > 0
    assert result.placements_right == result.allocations - AMBIGUOUS.get(path.name, 0)
    assert found.peak_reserved == history.decisions.peak_reserved
    assert found.final_reserved == history.decisions.final_reserved


@pytest.mark.parametrize("name", NAMES)
def test_predicts_the_same_from_a_file_without_decisions(name: str) -> None:
    data = raw(name)
    whole = replay(parse_recording(name, json.dumps(data).encode()), Rules(), follow_driver=False)
    data["events"] = [
        event[:3] if event[0] == "a" else event for event in data["events"] if event[0] != "S"
    ]
    bare = parse_recording(name, json.dumps(data).encode())
    assert not bare.decisions.grown
    assert not bare.decisions.placed
    alone = replay(bare, Rules(), follow_driver=False)
    assert (alone.grown, alone.places) == (whole.grown, whole.places)
    assert score(bare, alone).placements_right == 0, "nothing to compare with is not right"


def test_predicts_the_same_from_a_file_with_wrong_decisions() -> None:
    history = read_recording(DATA / "trace-03.json.gz")
    recorded = history.decisions
    lies = replace(
        history,
        decisions=Decisions(
            grown=dict.fromkeys(recorded.placed, (1 << 40, 512)),
            placed=dict.fromkeys(recorded.placed, 0),
        ),
    )
    honest, misled = (replay(one, Rules(), follow_driver=False) for one in (history, lies))
    assert (honest.grown, honest.places) == (misled.grown, misled.places)


def test_an_address_that_is_taken_is_not_followed() -> None:
    history = read_recording(DATA / "trace-01.json.gz")
    base = history.start[0].base
    everywhere = Decisions(grown=dict.fromkeys(history.decisions.placed, (base, 512)))
    assert (
        replay(replace(history, decisions=everywhere), Rules()).grown
        == replay(history, Rules()).grown
    )


def test_a_run_of_segments_given_back_is_one_emptied_cache() -> None:
    history = read_recording(DATA / "trace-03.json.gz")
    assert history.operations[0] == (0, EMPTY_CACHE)
    assert sum(code == EMPTY_CACHE for _, code in history.operations) == 1
    assert len(history.decisions.released[0]) == 470


def small() -> dict[str, Any]:
    return {
        "schema": "alloc-trace/1",
        "initial": [[0, 0, 20971520, "l", [[1, 0, 2097152, 2097152]]]],
        "events": [["a", 2, 1048577, 0, 2097152], ["f", 1], ["f", 2], ["f", 99]],
        "peak_reserved": 20971520,
        "final_reserved": 20971520,
    }


def test_frees_of_unknown_blocks_are_left_out() -> None:
    history = parse_recording("small", json.dumps(small()).encode())
    assert len(history.operations) == 3
    assert score(history, replay(history, Rules())).placements_right == 1


def test_a_trace_that_begins_with_nothing_needs_no_decisions() -> None:
    data = small() | {"initial": [], "events": [["a", 1, 100], ["f", 1]], "estimate": "made up"}
    history = parse_recording("small", json.dumps(data).encode())
    assert history.estimate == "made up"
    assert replay(history, Rules()).peak_reserved == 2 << 20


def test_a_block_that_is_placed_before_its_segment_goes_back_is_placed_there() -> None:
    size = 10 << 20
    events = [
        *(["S", 1, 0, size], ["a", 1, size, 1, 0], ["f", 1]),
        *(["a", 2, size, 1, 0], ["f", 2], ["R", 1, size]),
    ]
    data = {"schema": "alloc-trace/1", "initial": [], "events": events}
    history = parse_recording("back", json.dumps(data).encode())
    found = replay(history, Rules())
    assert found.places == ((0, 0), (0, 0))
    assert score(history, found).placements_right == 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.update(schema="alloc-trace/9"), "schema"),
        (lambda d: d.update(events={}), "events"),
        (lambda d: d["events"].append(["x", 1]), r"events\[4\]"),
        (lambda d: d["events"].append("a"), r"events\[4\]"),
        (lambda d: d["events"].append([]), r"events\[4\]"),
        (lambda d: d["events"].append(["a", 3, -1, 0, 0]), r"events\[4\]"),
        (lambda d: d["events"].append(["a", 3, 1 << 60, 0, 0]), r"events\[4\]"),
        (lambda d: d["events"].append(["a", True, 512, 0, 0]), r"events\[4\]"),
        (lambda d: d["events"].append(["a", 3]), r"events\[4\]"),
        (lambda d: d["events"].insert(0, ["a", 1, 512, 0, 0]), r"events\[0\]"),
        (lambda d: d["initial"].append([1, 1024, 512, "s", []]), "overlap"),
        (lambda d: d["initial"].append([1, 1 << 30, 512, "x", []]), r"initial\[1\]"),
        (lambda d: d["initial"][0][4].append([1, 4194304, 512, 1]), "twice"),
        (lambda d: d["initial"][0][4].append([3, 0, 512, 1]), r"initial\[0\]"),
        (lambda d: d["initial"][0][4].append([3, 20971520, 512, 1]), r"initial\[0\]"),
        (lambda d: d["initial"][0][4].append(7), r"initial\[0\]"),
        (lambda d: d.update(estimate=3), "estimate"),
    ],
)
def test_what_is_wrong_is_named(change: Change, named: str) -> None:
    data = small()
    change(data)
    with pytest.raises(InputError, match=named):
        parse_recording("small", json.dumps(data).encode())


@pytest.mark.parametrize("text", [b"", b"[", b"null", b"\xff", b"[" * 100_000, b"1e999"])
def test_not_a_recording(text: bytes) -> None:
    with pytest.raises(InputError):
        parse_recording("small", text)


def test_a_file_that_is_not_packed(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small()))
    assert read_recording(path).allocations == 1


def test_a_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.json.gz"
    for content in (b"", b"no gzip", (DATA / "trace-01.json.gz").read_bytes()[:5000]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"cut\.json\.gz"):
            read_recording(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_recording(tmp_path / "missing.json.gz")


def test_the_benchmark_prints_one_object_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prediction = tmp_path / "prediction.json"
    assert main([str(DATA), "--predict", str(prediction)]) == 0
    said = capsys.readouterr()
    rows = json.loads(said.out)
    assert [row["file"] for row in rows] == [f"{name}.json.gz" for name in NAMES]
    assert set(rows[0]) == {
        "file",
        "allocations",
        "decisions_right",
        "placements_right",
        "peak_reserved",
        "expected_peak_reserved",
        "final_reserved",
        "expected_final_reserved",
        "allocations_per_second",
    }
    for row in rows:
        assert row["decisions_right"] == row["placements_right"] == row["allocations"]
        assert row["peak_reserved"] == row["expected_peak_reserved"]
        assert row["final_reserved"] == row["expected_final_reserved"]
        assert row["allocations_per_second"] > 0
    assert "bare loop" in said.err
    for row, answer in zip(rows, json.loads(prediction.read_text()), strict=True):
        for key in ("blocks", "new_segments", "placements", "placements_at_recorded_addresses"):
            assert len(answer[key]) == row["allocations"]
        assert answer["peak_reserved"] == row["peak_reserved"]


def test_the_benchmark_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 3
    (tmp_path / "bad.json.gz").write_bytes(b"bad")
    assert main([str(tmp_path)]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert "bad.json.gz" in said.err
