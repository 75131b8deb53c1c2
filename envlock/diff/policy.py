"""A team's policy for its images: a file that says what ``verify`` lets through, and why.

``envlock.toml``, or ``[tool.envlock]`` of a ``pyproject.toml``. It comes from people: what it says
that envlock does not know is an error with the spot, never ignored.
"""

from __future__ import annotations

import datetime as dt
import difflib
import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from envlock.errors import InputError
from envlock.findings import Finding, Report, Severity
from envlock.lock.fields import Text
from envlock.lock.files import read_bounded
from envlock.lock.shape import Length, Matches, Model, ShapeError
from envlock.lock.strict import fault, parse_toml, shown
from envlock.rules.registry import all_codes

FILE = "envlock.toml"
_PROJECT = "pyproject.toml"
_MOST_BYTES = 1 << 20
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{prefix}iB": 1 << 10 * power for power, prefix in enumerate("KMGT", 1)
}


class Waiver(Model):
    """A finding that is known and accepted, for a reason and perhaps for a time."""

    code: Text
    reason: Annotated[str, Length(500, least=1)]
    subject: Text = "*"
    """Of which subject: a pattern as of file names; all of that code when left out."""
    until: Annotated[str, Matches(r"\d{4}-\d{2}-\d{2}")] | None = None
    """The last day on which it holds."""


class ImageGates(Model):
    max_size: Annotated[str, Matches(r"\d{1,9}(\.\d{1,3})? ?[kKMGT]?i?B")] | None = None
    """Of all layers, as the engine says it: ``8 GiB``."""
    bases: list[Text] = []
    """Names or digests of bases, as patterns; empty: any."""

    @property
    def max_bytes(self) -> int | None:
        if self.max_size is None:
            return None
        number, unit = re.fullmatch(r"([\d.]+) ?(\w+)", self.max_size).groups()  # type: ignore[union-attr]
        return int(float(number) * _UNITS[unit])


class Machines(Model):
    """Where the image has to run."""

    gpus: list[Text] = []
    """As ``envlock requires --gpu`` takes them: ``8.9``, ``sm_90``, ``RTX 4090``."""
    driver: Annotated[str, Matches(r"\d{1,4}(\.\d{1,4}){0,3}")] | None = None
    """The oldest NVIDIA driver."""


class Policy(Model):
    severity: dict[Text, Literal["error", "warning", "info"]] = {}
    waive: list[Waiver] = []
    image: ImageGates = ImageGates()
    requires: Machines = Machines()
    tolerances: dict[Text, Any] = {}
    """As in ``--tolerances``: figure -> limits."""


_TABLES: Mapping[str, type[Model]] = {
    "": Policy,
    "image": ImageGates,
    "requires": Machines,
    "waive": Waiver,
}


def find_policy(folder: Path) -> Path | None:
    """The policy of a folder: its ``envlock.toml``, else a ``pyproject.toml`` that has one."""
    if (folder / FILE).is_file():
        return folder / FILE
    project = folder / _PROJECT
    return project if project.is_file() and _table_of(project) is not None else None


def read_policy(path: Path) -> Policy:
    """Raises InputError with the spot, and with what was probably meant."""
    table = _table_of(path)
    if table is None:
        raise InputError(f"{path} has no [tool.envlock]", hint=f"write one, or an {FILE}")
    name = str(path)
    table = _with_plain_dates(table)
    _check_keys(table, name)
    try:
        policy = Policy.read(table)
    except ShapeError as error:
        raise fault(error, name) from error
    for spot, code in [
        *(("severity", code) for code in policy.severity),
        *((f"waive[{number}].code", one.code) for number, one in enumerate(policy.waive)),
    ]:
        _check_known(code, all_codes(), f"{name}: {spot}", "a code of a finding")
    for number, one in enumerate(policy.waive):
        _day(one, f"{name}: waive[{number}].until")
    _check_unit(policy.image, f"{name}: image.max_size")
    return policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    report: Report
    idle: Sequence[Waiver]
    """Waivers that no finding needed: perhaps their cause is gone."""


def apply_policy(policy: Policy, report: Report, today: dt.date) -> Applied:
    """The report with the policy's severities, and its waived findings marked with the reason.

    A waiver holds up to and including its day; after it the finding counts again, and says so.
    """
    used: set[int] = set()
    findings = [_judged(policy, finding, today, used) for finding in report.findings]
    findings.sort(key=lambda finding: finding.severity.rank)
    return Applied(
        report=replace(report, findings=tuple(findings)),
        idle=[one for number, one in enumerate(policy.waive) if number not in used],
    )


def _judged(policy: Policy, finding: Finding, today: dt.date, used: set[int]) -> Finding:
    wanted = policy.severity.get(finding.code)
    if wanted is not None:
        finding = replace(finding, severity=Severity(wanted))
    for number, waiver in enumerate(policy.waive):
        if waiver.code != finding.code or not fnmatch.fnmatchcase(finding.subject, waiver.subject):
            continue
        used.add(number)
        if waiver.until is not None and _day(waiver, "") < today:
            note = f" Its waiver expired on {waiver.until} ({waiver.reason})."
            return replace(finding, message=finding.message + note)
        until = f" until {waiver.until}" if waiver.until else ""
        return replace(
            finding,
            severity=Severity.INFO,
            message=f"{finding.message} Waived{until}: {waiver.reason}.",
            waived=f"{waiver.reason}{f' (until {waiver.until})' if waiver.until else ''}",
        )
    return finding


def _table_of(path: Path) -> dict[str, Any] | None:
    """The policy as data; None for a project file without one. Raises InputError."""
    tree = parse_toml(read_bounded(path, limit=_MOST_BYTES).decode("utf-8", "replace"), str(path))
    if path.name != _PROJECT:
        return tree
    tool = tree.get("tool")
    table = tool.get("envlock") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def _with_plain_dates(value: Any) -> Any:
    """A TOML date as its text: the two ways to write ``until`` are one."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _with_plain_dates(one) for key, one in value.items()}
    return [_with_plain_dates(one) for one in value] if isinstance(value, list) else value


def _check_keys(table: Mapping[str, Any], name: str) -> None:
    for spot, keys in _keys(table):
        for key in keys:
            where = f"{name}: {spot}" if spot else name
            _check_known(key, _TABLES[spot.partition("[")[0]].defaults, where, "a key")


def _keys(table: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str]]]:
    yield "", list(table)
    for name in ("image", "requires"):
        if isinstance(table.get(name), dict):
            yield name, list(table[name])
    waivers = table.get("waive")
    for number, waiver in enumerate(waivers if isinstance(waivers, list) else ()):
        if isinstance(waiver, dict):
            yield f"waive[{number}]", list(waiver)


def _check_known(word: str, known: Iterator[str] | Any, where: str, what: str) -> None:
    names = list(known)
    if word in names:
        return
    near = difflib.get_close_matches(word, names, 1)
    raise InputError(
        f"{where}: {shown(word)} is not {what}",
        hint=f"did you mean {near[0]}?" if near else _listed(names),
    )


def _listed(names: Sequence[str]) -> str:
    most = 12
    return f"known are {', '.join(names)}" if len(names) <= most else "envlock explain lists them"


def _day(waiver: Waiver, where: str) -> dt.date:
    try:
        return dt.date.fromisoformat(waiver.until or "9999-12-31")
    except ValueError:
        raise InputError(
            f"{where}: {shown(waiver.until)} is no day of the calendar", hint="write 2027-03-01"
        ) from None


def _check_unit(gates: ImageGates, where: str) -> None:
    unit = re.sub(r"[\d. ]", "", gates.max_size or "1B")
    if unit not in _UNITS:
        raise InputError(f"{where}: {unit!r} is no unit", hint=f"known are {', '.join(_UNITS)}")
