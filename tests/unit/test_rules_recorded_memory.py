"""What is found in a recorded run, and the text that says it."""

from __future__ import annotations

from typing import Any

from envlock.findings import Severity
from envlock.report.memory import Page, render_memory
from envlock.rules.recorded_memory import judge_memory

GIB = 1 << 30


def tried(settings: str, *, smallest: float, finished: bool, retries: int = 0) -> dict[str, Any]:
    return {
        "settings": settings,
        "peak_reserved": int(smallest * GIB),
        "smallest": int(smallest * GIB),
        "smallest_card": int(smallest * GIB),
        "retries": 0,
        "validated": not settings,
        "reason": "recorded" if not settings else f"{settings}: compiled; a start",
        "on_card": {"finished": finished, "peak_reserved": 0, "retries": retries},
    }


def answer(*rows: dict[str, Any], ooms: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    point = {"operation": 3, "time_us": None, "requested": GIB, "allocated": GIB, "reserved": GIB}
    return {
        "torch": "2.6.0",
        "torch_known": True,
        "card": 4 * GIB,
        "outside": 0,
        "cards": [
            {
                "source": "run\x1b[31m.pickle",
                "device": 0,
                "settings": "",
                "settings_note": None,
                "estimate": None,
                "agreement": {"compared": True, "allocations": 9, "decisions_right": 9},
                "peak": {**point, "fragmentation": 0.0, "peak_reserved": GIB},
                "timeline": [point],
                "largest": [{"requested": GIB, "size": GIB, "frames": ["f\x07 (a.py:1)"]}] * 2,
                "settings_tried": list(rows),
                "ooms": list(ooms),
            }
        ],
    }


def text(found: dict[str, Any]) -> str:
    return render_memory(found, Page(card="4GiB", width=90))


def test_a_run_that_fits_has_no_finding() -> None:
    fits = answer(tried("", smallest=3, finished=True))
    assert judge_memory(fits, "4GiB") == ()
    assert text(fits).startswith("FITS  ")
    assert "not validated" not in text(fits)


def test_the_setting_with_the_smallest_card_is_the_remedy() -> None:
    unfit = answer(
        tried("", smallest=5, finished=False),
        tried("a:1", smallest=3.5, finished=True),
        tried("b:1", smallest=3, finished=True),
        tried("c:1", smallest=2, finished=False),
    )
    (finding,) = judge_memory(unfit, "4GiB")
    assert (finding.code, finding.severity) == ("EL840", Severity.ERROR)
    assert finding.hint == "export PYTORCH_CUDA_ALLOC_CONF=b:1"
    shown = text(unfit)
    assert shown.startswith("DOES NOT FIT  ")
    assert "it does with PYTORCH_CUDA_ALLOC_CONF=b:1" in " ".join(shown.split())
    assert "[2] not validated: a start" in shown


def test_without_a_setting_that_helps_the_peak_must_fall() -> None:
    (finding,) = judge_memory(answer(tried("", smallest=5, finished=False)), "4GiB")
    assert finding.hint.startswith("lower the peak of 1 GiB")


def test_a_run_that_needs_retries_is_a_warning_and_no_fault() -> None:
    tight = answer(tried("", smallest=4, finished=True, retries=2))
    (finding,) = judge_memory(tight, "4GiB")
    assert (finding.code, finding.severity) == ("EL841", Severity.WARNING)
    assert text(tight).startswith("TIGHT  ")


def test_a_recorded_failure_names_what_would_have_avoided_it() -> None:
    oom = {
        "operation": 3,
        "requested": GIB,
        "device_free": 0,
        "capacity": 2 * GIB,
        "tried": [{"settings": "", "avoided": False}, {"settings": "a:1", "avoided": True}],
    }
    failed = answer(tried("", smallest=3, finished=True), ooms=(oom,))
    (finding,) = judge_memory(failed, "4GiB")
    assert (finding.code, finding.severity) == ("EL842", Severity.INFO)
    assert finding.hint == "export PYTORCH_CUDA_ALLOC_CONF=a:1"
    assert "avoided by a:1" in " ".join(text(failed).split())
    oom["tried"] = [{"settings": "", "avoided": False}]
    assert "no allocator setting tried" in " ".join(text(failed).split())


def test_nothing_from_a_file_reaches_the_terminal_raw() -> None:
    shown = text(answer(tried("", smallest=3, finished=True)))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "2 x" in shown
