"""``envlock memory`` as people run it: right answers, and a clear refusal for what is no snapshot."""

from __future__ import annotations

import json
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from envlock.allocator.rules import MIB
from tests.process.test_allocator_child import dictionaries
from tests.process.test_commands import run
from tests.unit.test_allocator_snapshot import BASE, HOSTILE, event, from_recording

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/schema/envlock-memory-1.json").read_text("utf-8")
)


def closed(schema: Any) -> Any:
    """The schema with unknown keys forbidden: a new key must be documented."""
    if isinstance(schema, dict):
        inner = {key: closed(value) for key, value in schema.items()}
        return inner | ({"additionalProperties": False} if "properties" in schema else {})
    return [closed(item) for item in schema] if isinstance(schema, list) else schema


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(done.stdout)
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    return data


def snapshot(folder: Path, data: Any = None) -> str:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(from_recording("trace-05") if data is None else data))
    return path.name


def freed(address: int, size: int) -> list[dict[str, Any]]:
    return [event(f"free_{how}", address, size) for how in ("requested", "completed")]


def cut_up() -> dict[str, Any]:
    """A run that fails where 60 MiB are free, but cut up: 20 MiB of each of three segments.

    Pages of expandable segments go back one by one, and so serve the last request of 40 MiB.
    """
    events = []
    at = [BASE + n * 64 * MIB for n in range(3)]
    for address in at:
        events += [event("segment_alloc", address, 40 * MIB), event("alloc", address, 40 * MIB)]
        events += freed(address, 40 * MIB)
        events += [event("alloc", address + half, 20 * MIB) for half in (0, 20 * MIB)]
    for address in at:
        events += freed(address + 20 * MIB, 20 * MIB)
    events.append({**event("oom", size=40 * MIB), "device_free": 4 * MIB})
    segments = [
        {
            "device": 0,
            "address": address,
            "total_size": 40 * MIB,
            "stream": 0,
            "segment_type": "large",
            "blocks": [
                {"size": 20 * MIB, "requested_size": 20 * MIB, "state": "active_allocated"},
                {"size": 20 * MIB, "state": "inactive"},
            ],
        }
        for address in at
    ]
    return {
        "segments": segments,
        "device_traces": [events],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
    }


def test_what_a_snapshot_needs(tmp_path: Path) -> None:
    done = run(tmp_path, "memory", snapshot(tmp_path), "--torch", "2.6.0", "-f", "json")
    assert done.returncode == 0, done.stderr
    found = answer(done)
    (card,) = found["cards"]
    assert card["agreement"]["decisions_right"] == card["agreement"]["allocations"] == 937
    assert card["peak"]["peak_reserved"] == 861_929_472
    first = card["settings_tried"][0]
    assert first["smallest_card"] == first["smallest"] + found["outside"]
    assert {row["settings"] for row in card["settings_tried"]} >= {"", "expandable_segments:True"}
    assert card["largest"][0]["frames"] == ["step (/home/someone/train.py:42)"]


def test_the_answer_comes_first_and_the_exit_code_says_whether_it_fits(tmp_path: Path) -> None:
    name = snapshot(tmp_path)
    said = run(tmp_path, "memory", name, "--card", "RTX 4090", "--torch", "2.6.0")
    assert said.returncode == 0
    assert said.stdout.startswith(f"FITS  {name} on RTX 4090 (23.52 GiB): ")
    assert "not validated: " in said.stdout
    assert "2 x   29.3 MiB  step (/home/someone/train.py:42)" in said.stdout
    assert all(len(line) <= 100 for line in said.stdout.splitlines())
    not_on = run(tmp_path, "memory", name, "--card", "700MiB")
    assert not_on.returncode == 1
    assert not_on.stdout.startswith("DOES NOT FIT  ")
    assert "nor with any allocator setting tried" in " ".join(not_on.stdout.split())
    assert run(tmp_path, "memory", name, "--card", "700MiB", "--outside", "0").returncode == 1
    assert run(tmp_path, "memory", name, "--card", "1200MiB").returncode == 1
    assert run(tmp_path, "memory", name, "--card", "1200MiB", "--outside", "0").returncode == 0


def test_what_would_have_avoided_a_failure(tmp_path: Path) -> None:
    name = snapshot(tmp_path, cut_up())
    done = run(tmp_path, "memory", name, "--torch", "2.6.0", "-f", "json")
    (card,) = answer(done)["cards"]
    (oom,) = card["ooms"]
    assert oom["capacity"] == 124 * MIB
    by = {row["settings"]: row["avoided"] for row in oom["tried"]}
    assert by[""] is False
    assert by["expandable_segments:True"] is True
    text = run(tmp_path, "memory", name, "--torch", "2.6.0").stdout
    assert "avoided by expandable_segments:True" in " ".join(text.split())


def test_a_page_and_a_picture(tmp_path: Path) -> None:
    more = ("--card", "700MiB", "--plot", "memory.svg", "-f", "html", "-o", "memory.html")
    assert run(tmp_path, "memory", snapshot(tmp_path), *more).returncode == 1
    page = (tmp_path / "memory.html").read_text("utf-8")
    assert "EL840" in page
    assert page.count("<svg") == 1
    assert (tmp_path / "memory.svg").read_text("utf-8").startswith("<?xml")


def test_from_standard_input_and_from_a_hostile_folder(tmp_path: Path) -> None:
    """Python imports from the folder that it is in: none of it may run."""
    for module in ("json", "pickle", "gzip", "envlock"):
        (tmp_path / f"{module}.py").write_text("open('ran', 'w'); raise SystemExit('ran')\n")
    with (tmp_path / snapshot(tmp_path)).open("rb") as file:
        done = run(tmp_path, "memory", "-", "-f", "json", stdin=file)
    assert done.returncode == 0, done.stderr
    assert answer(done)["cards"][0]["source"] == "standard input"
    assert not (tmp_path / "ran").exists()


def deep(path: Path) -> None:
    """Hashing a tuple goes as deep as the tuple does, in C, where nothing stops it."""
    path.write_bytes(b"\x80\x02})" + b"\x85" * 3_000_000 + b"Ns.")


def bomb(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces](")
        file.writelines(dictionaries(20))
        file.write(b"eu.")


def billion(path: Path) -> None:
    many = [[event("alloc")] * 1_000_000] * 1000  # one list, a thousand times
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": many}))


@pytest.mark.parametrize(
    "name",
    ["a class", "a cut file", "a text of 2**62 bytes", "lists a million deep", "nothing", "text"],
)
def test_hostile_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "hostile").write_bytes(HOSTILE[name])
    refused(run(tmp_path, "memory", "hostile", "--memory-limit", "512"))


@pytest.mark.parametrize("make", [deep, bomb, billion])
def test_files_that_end_their_reader_are_refused(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "hostile")
    refused(run(tmp_path, "memory", "hostile", "--memory-limit", "512"))


def refused(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 4, done
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["missing.pickle"], 4, "does not exist"),
        (["."], 4, "not a regular file"),
        (["trace"], 2, "MODULE:FUNCTION"),
        (["one", "two"], 2, "one recording at a time"),
        (["one", "--python", "python3"], 2, "--python goes with trace"),
        (["one", "--plot", "x.pdf"], 2, ".svg"),
        (["one", "--card", "24"], 2, "24GiB"),
        (["snapshot.pickle", "--alloc-conf", "expandable:True"], 4, "did you mean"),
        (["snapshot.pickle", "--torch", "old"], 4, "not a torch version"),
    ],
)
def test_questions_that_cannot_be_asked(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    snapshot(tmp_path)
    done = run(tmp_path, "memory", *arguments)
    assert done.returncode == code
    assert said in done.stderr
