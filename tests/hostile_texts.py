"""Hostile inputs in a pasted ``collect_env`` report: lines in the place of the benign ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.hostile_inputs import Input
from tests.hostile_sample import Sample

BENIGN = """\
Collecting environment information...
PyTorch version: 2.3.0+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.4 LTS (x86_64)
GCC version: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
Libc version: glibc-2.35

Python version: 3.11.9 (main, Apr  6 2024, 17:59:24) [GCC 11.4.0] (64-bit runtime)
Python platform: Linux-6.5.0-35-generic-x86_64-with-glibc2.35
Is CUDA available: True
CUDA runtime version: 12.1.105
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4090
Nvidia driver version: 550.54.15

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] torch==2.3.0
[conda] Could not collect
"""
_KEY = re.compile(r"\[(?:pip3|conda)\] [\w-]+|[^:\u00a0]+:")
_LINE_LIMIT = 16 << 10


def text_samples(item: Input, value: Any) -> Iterator[Sample]:
    text = _with_lines(str(value))
    limited = item.action == "limit" and len(str(value)) <= _LINE_LIMIT
    yield Sample(
        label="report",
        data=text.encode("utf-8", "surrogatepass"),
        form="text",
        # Shorter than the limit: read in time, whatever it says. Beyond it: refused.
        refused=item.refused and not limited,
        words=tuple(item.words) if item.refused and not limited else (),
        said=() if item.refused else tuple(item.words),
        value=value,
        may_fail=item.action == "report",
    )
    if limited:
        long = str(value) * (_LINE_LIMIT // len(str(value)) + 1)
        yield Sample(
            label="report, longer than any line",
            data=_with_lines(long).encode(),
            form="text",
            refused=True,
            words=tuple(item.words),
        )


def text_sentences(item: Input) -> Iterator[Sample]:
    if "twice" in (item.sentence or ""):
        text = BENIGN + BENIGN.replace("RTX 4090", "RTX 3090")
        yield Sample(
            label="report",
            data=text.encode(),
            form="text",
            refused=item.refused,
            words=tuple(item.words),
        )


def _with_lines(value: str) -> str:
    """The benign report, where each line of the value replaces the line of its key."""
    lines = BENIGN.splitlines()
    for new in value.split("\n"):
        key = match[0] if (match := _KEY.match(new)) else None
        lines = [line for line in lines if key is None or not line.startswith(key)]
    return "\n".join([*lines[:2], *value.split("\n"), *lines[2:]]) + "\n"
