from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

import pytest

from envlock.findings import Report, Severity
from envlock.report.text import render_text
from tests.unit import report_samples as samples

SGR = re.compile(r"\x1b\[[0-9;]*m")


def render(
    report: Report,
    *,
    fail_on: Severity | None = Severity.ERROR,
    verbose: bool = False,
    colour: bool = False,
    width: int = 80,
) -> str:
    return render_text(report, fail_on=fail_on, verbose=verbose, colour=colour, width=width)


def test_headline_report_reads_as_meant() -> None:
    assert (
        render(samples.HEADLINE)
        == """\
FAIL  diff colleague.lock → env: 2 errors, 1 warning, 2 notes

│ error EL201  torch.version
│
│   colleague.lock  2.3.0+cu121
│   env             2.4.0+cu118
│
│ The two environments run another torch, built for another CUDA: 2.3.0+cu121
│ there, 2.4.0+cu118 here. The caching allocator of 2.4 rounds large blocks
│ differently, so the same training code needs more memory.
│
│ To do:
│   uv pip install 'torch==2.3.0+cu121' --index-url https://wheels.example/cu121/simple/long
│
│ 11 differences follow from it: 10 nvidia-* packages, triton
│
│ Why, and what else helps: envlock explain EL201

1 more error

EL701  env.PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True → absent
  expandable_segments is on there and not here.
  To do:
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

1 warning

EL503  gpus.0.memory_bytes: 23.99 GiB → 15.89 GiB
  The card has less memory.
  To do: Lower the batch size, or ask `envlock memory` what the run needs.

2 notes: recorded differences without known effect
  EL601  system.kernel   5.15.0-101-generic → 6.8.0-40-generic
  EL901  driver.version  535.183.01 → unknown (NVML not loaded)

checked 214 · unknown 2 (names: --verbose)
"""
    )


@pytest.mark.parametrize(
    ("report", "fail_on", "start"),
    [
        (samples.SAME, Severity.ERROR, "PASS  diff colleague.lock → env: no differences found"),
        (samples.NOTHING, Severity.ERROR, "NOTHING CHECKED  diff colleague.lock → env: no fact"),
        (samples.NOTHING, None, "NOTHING CHECKED  "),
        (samples.ONLY_WARNING, Severity.ERROR, "PASS  diff colleague.lock → env: 1 warning, 1 not"),
        (samples.ONLY_WARNING, Severity.WARNING, "FAIL  diff colleague.lock → env: 1 warning"),
        (samples.HEADLINE, None, "PASS  diff colleague.lock → env: 2 errors, "),
        (samples.ONE_SIDE, Severity.ERROR, "FAIL  doctor env: 1 error\n"),
        (
            replace(samples.ONE_SIDE, findings=(), left="", right="env"),
            Severity.ERROR,
            "PASS  doctor env: no faults found",
        ),
    ],
)
def test_verdict_stands_first(report: Report, fail_on: Severity | None, start: str) -> None:
    assert render(report, fail_on=fail_on).startswith(start)


def test_notes_alone_are_not_set_apart_as_a_cause() -> None:
    assert "│" not in render(samples.ONLY_NOTES)
    assert "│ warning EL503" in render(samples.ONLY_WARNING)


def test_verbose_adds_evidence_sources_values_and_names_of_the_unknown() -> None:
    brief, full = render(samples.HEADLINE), render(samples.HEADLINE, verbose=True)
    for text in (
        "evidence (left): torch.version = 2.3.0+cu121, read from torch/version.py",
        "source: torch 2.4 release notes",
        "nvidia-cudnn-cu12   8.9.2.26 → absent",
        "unknown: gpus.0.ecc, limits.shm_bytes",
    ):
        assert text in full
        assert text not in brief


def test_many_notes_are_cut_unless_verbose() -> None:
    report = samples.report(*[samples.KERNEL] * 40)
    assert render(report).count("EL601") == 12
    assert "and 28 more (--verbose)" in render(report)
    assert render(report, verbose=True).count("EL601") == 40


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit_except_commands_to_copy(width: int) -> None:
    for line in render(samples.HEADLINE, width=width).splitlines():
        assert len(line) <= width or "uv pip install" in line or "export " in line


def test_colour_changes_nothing_but_colour() -> None:
    for report in samples.PLAIN.values():
        plain, coloured = render(report), render(report, colour=True)
        assert "\x1b" not in plain
        assert SGR.sub("", coloured) == plain
    assert SGR.search(render(samples.HEADLINE, colour=True))


@pytest.mark.parametrize("name", samples.ALL)
@pytest.mark.parametrize("verbose", [False, True])
def test_foreign_text_neither_steers_terminal_nor_runner(name: str, *, verbose: bool) -> None:
    for width in (40, 80):
        text = render(samples.ALL[name], verbose=verbose, colour=True, width=width)
        bare = SGR.sub("", text)
        odd = {c for c in bare if unicodedata.category(c) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}}
        assert odd <= {"\n"}
        assert not re.search(r"^\s*::|##\[|##vso\[", bare, re.MULTILINE)
        assert bare.startswith("FAIL" if name.startswith("hostile") else bare[:4])
        assert len(bare) < 100_000


def test_foreign_markup_is_printed_as_it_is() -> None:
    text = render(samples.hostile_report("[N/A] [bold]x[/] :smile:"))
    assert "[N/A] [bold]x[/] :smile:" in text
