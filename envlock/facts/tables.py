"""Where the facts are kept: one JSON file a table, read once, only when something asks for it.

JSON and not TOML because ``envlock diff`` reads them at every start: parsing six tables takes
5 ms as JSON and 150 ms as TOML (both measured with the standard library on one machine).
Each row has ``source`` (where it was read), ``confidence`` and ``checked`` (the day).

    confirmed    read in the named source
    secondary    read in a source that itself reports it
    unconfirmed  name or existence seen, meaning or version inferred: never the base of an error
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).resolve().parent

Table = Literal[
    "behaviour_changes",
    "binaries",
    "companions",
    "cuda_driver",
    "env_vars",
    "errors",
    "extensions",
    "gpu_arch",
    "gpu_memory",
    "torch_builds",
]
Confidence = Literal["confirmed", "secondary", "unconfirmed"]


@functools.cache
def load(table: Table) -> dict[str, Any]:
    """The whole file. ``rows`` is the table; other keys are small side tables."""
    data: dict[str, Any] = json.loads((FOLDER / f"{table}.json").read_text(encoding="utf-8"))
    return data


def rows(table: Table) -> list[dict[str, Any]]:
    """The rows as stored; the typed look-ups of this package are for everyone else."""
    found: list[dict[str, Any]] = load(table)["rows"]
    return found
