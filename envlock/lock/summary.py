"""A lock for people: what it holds, and what was left out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envlock.lock.io import is_sealed
from envlock.lock.model import Lock
from envlock.lock.observation import Absent, Unknown
from envlock.neutral import neutral

_FACTS = (
    ("Python", "python.version"),
    ("torch", "torch.version"),
    ("CUDA build", "torch.cuda"),
    ("cuDNN", "cudnn.loaded"),
    ("NCCL", "nccl.loaded"),
    ("driver", "driver.version"),
    ("glibc", "system.glibc"),
)


def summarise(lock: Lock, name: str) -> str:
    """Text with one fact a line; every foreign value is neutralised."""
    return "\n".join(neutral(line) for line in _lines(lock, name)) + "\n"


def _lines(lock: Lock, name: str) -> Iterator[str]:
    table = lock.table
    yield f"{name}  written by envlock {table.envlock}"
    yield f"id         {table.id}{'' if is_sealed(lock) else '  (edited: does not fit the content)'}"
    if isinstance(table.machine_id, str):
        yield f"machine    {table.machine_id}"
    for label, path in _FACTS:
        yield f"{label:11}{_words(lock.observed.find(path))}"
    observed = lock.observed.packages
    count = len(observed) if isinstance(observed, dict) else 0
    yield f"packages   {count} observed, {len(lock.packages)} with an artifact"
    if not table.resolved:
        yield "           not resolved (captured with --offline): good for diff, not for build"
    for left in table.left_out:
        yield f"left out   {left.name} {left.version}: {left.reason}"
        yield f"           next: {left.next_step}"
    for variable, value in table.image.env.items():
        yield f"image env  {variable}={value}"
    if table.image.base is not None:
        yield f"built on   {table.image.base.reference}@{table.image.base.digest}"
    for device in ("cpu", "cuda"):
        known = "recorded" if device in table.behaviour else "no record"
        yield f"behaviour  {device}: {known}"


def _words(fact: Any) -> str:
    if isinstance(fact, Absent):
        return "absent"
    if isinstance(fact, Unknown):
        return f"unknown: {fact.unknown}"
    return str(fact)
