"""How far two behaviour records may be apart: ``facts/tolerances.toml``, and a user's changes."""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import envlock.facts
from envlock.errors import InputError
from envlock.findings import Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LEVELS = (("fail", Severity.ERROR), ("warn", Severity.WARNING), ("info", Severity.INFO))


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """A row of ``facts/tolerances.toml``: limits per column."""

    same: Mapping[str, float]
    other: Mapping[str, float]
    source: str
    overridden: bool = False
    """Whether a user's own file changed it: reports say so."""

    def limits_text(self) -> str:
        """``same: warn 0, fail 1e-06; other: …``."""
        return "; ".join(
            f"{name}: " + ", ".join(f"{level} {limit:g}" for level, limit in column.items())
            for name, column in (("same", self.same), ("other", self.other))
            if column
        )

    def judge(self, distance: float, *, same: bool) -> Severity | None:
        """None inside the limits. A distance that is not a number is outside of all of them."""
        column = self.same if same else self.other
        for level, severity in _LEVELS:
            if level in column and not distance <= column[level]:
                return severity
        return None


@functools.cache
def tolerances() -> dict[str, Tolerance]:
    path = Path(envlock.facts.__file__).with_name("tolerances.toml")
    rows: dict[str, dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))
    return {
        name: Tolerance(same=row["same"], other=row["other"], source=row["source"])
        for name, row in rows.items()
    }


def with_overrides(text: str, name: str) -> dict[str, Tolerance]:
    """The tolerances with what a user's file changes: tables as in ``facts/tolerances.toml``.

    ``name`` is the file's, for messages. Raises InputError, naming the spot, for a figure, column
    or level that does not exist, and for a limit that is no number.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{name} is not TOML: {error}", hint="mend the line that it names"
        ) from error
    return with_tables(tables, name)


def with_tables(tables: Mapping[str, Any], name: str) -> dict[str, Tolerance]:
    """The same from tables that were read already."""
    found = dict(tolerances())
    for figure, table in tables.items():
        if figure not in found:
            near = difflib.get_close_matches(figure, found, 1)
            raise InputError(
                f"{name}: there is no tolerance {figure!r}",
                hint=f"did you mean {near[0]}?" if near else f"known are {', '.join(found)}",
            )
        columns = {
            column: _limits(table, column, f"{name}: {figure}.{column}")
            for column in ("same", "other")
        }
        unknown = table.keys() - columns.keys() if isinstance(table, dict) else {"a plain value"}
        if unknown:
            raise InputError(
                f"{name}: {figure}: {min(unknown)!r} is not a column",
                hint="the columns are same and other",
            )
        row = found[figure]
        found[figure] = replace(
            row,
            same={**row.same, **columns["same"]},
            other={**row.other, **columns["other"]},
            overridden=True,
        )
    return found


def _limits(table: object, column: str, where: str) -> dict[str, float]:
    limits = table.get(column, {}) if isinstance(table, dict) else {}
    if not isinstance(limits, dict):
        raise InputError(
            f"{where}: not a table of limits", hint="write { warn = 0.02, fail = 0.1 }"
        )
    for level, value in limits.items():
        if level not in dict(_LEVELS):
            raise InputError(f"{where}: {level!r} is not a level", hint="info, warn and fail are")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise InputError(
                f"{where}.{level}: not a number of 0 or more", hint=f"write {level} = 0.02"
            )
    return limits
