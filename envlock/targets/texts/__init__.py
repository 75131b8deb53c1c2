"""Texts that people really have, as observations: reports, lists and lock files of other tools.

What a text does not say is unknown, never absent. A table counts as complete only where the text is
a whole listing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from envlock.errors import InputError
from envlock.lock.observation import Observation
from envlock.lock.shape import ShapeError
from envlock.lock.strict import fault, parse_json
from envlock.targets.texts import collect_env, conda, lock_files, pip_lists, report
from envlock.targets.texts.clean import clean, decode, ends_of, lines_of
from envlock.targets.texts.tree import Tree

__all__ = ["Kind", "decode", "detect", "parse_text"]


class Kind(enum.Enum):
    """What a text is; the value is how people call it."""

    REPORT = "collect_env report"
    FREEZE = "pip freeze"
    PIP_LIST = "pip list"
    PIP_JSON = "pip list --format=json"
    CONDA_LIST = "conda list"
    CONDA_EXPORT = "conda list --export"
    CONDA_JSON = "conda list --json"
    CONDA_ENV = "conda env export"
    UV = "uv.lock"
    POETRY = "poetry.lock"
    PYLOCK = "pylock.toml"


def detect(text: str) -> Kind | None:
    """What a text is, by content; None when it is nothing that envlock reads.

    Raises InputError for texts that are too long or hold NUL bytes.
    """
    return _detect(clean(text))


def parse_text(text: str) -> Observation:
    """The facts of a text. Raises InputError when it is of no known kind or contradicts itself."""
    text = clean(text)
    kind = _detect(text)
    if kind is None:
        raise InputError(
            "the text is no report or list that envlock knows",
            hint="give the output of: python -m torch.utils.collect_env, pip freeze, pip list, "
            "conda list",
        )
    tree = _READERS[kind](text)
    for table in ("packages", "torch"):
        if tree.get(table):
            tree.setdefault("read_from", {})[table] = kind.value
    try:
        return Observation.read(tree)
    except ShapeError as error:
        raise fault(error, kind.value) from error


def _detect(text: str) -> Kind | None:
    ends = ends_of(text)
    lock = lock_files.kind_of(ends)
    if lock is not None:
        return Kind(lock)
    if ends.lstrip()[:1] == "[" and ends.rstrip()[-1:] == "]":
        tree = _json_or_none(text)
        if conda.is_json(tree):
            return Kind.CONDA_JSON
        if pip_lists.is_json(tree):
            return Kind.PIP_JSON
    lines = ends.split("\n")
    for kind, test in (
        (Kind.REPORT, report.is_report),
        (Kind.CONDA_LIST, conda.is_columns),
        (Kind.CONDA_EXPORT, conda.is_export),
        (Kind.CONDA_ENV, conda.is_env_file),
        (Kind.PIP_LIST, pip_lists.is_columns),
        (Kind.FREEZE, pip_lists.is_requirements),
    ):
        if test(lines):
            return kind
    return Kind.REPORT if report.is_started(ends) else None


def _lines(read: Callable[[Sequence[str]], Tree], kind: Kind) -> Callable[[str], Tree]:
    return lambda text: read(lines_of(text, kind.value))


_READERS: dict[Kind, Callable[[str], Tree]] = {
    Kind.REPORT: collect_env.parse_report,
    Kind.FREEZE: _lines(pip_lists.read_requirements, Kind.FREEZE),
    Kind.PIP_LIST: _lines(pip_lists.read_columns, Kind.PIP_LIST),
    Kind.PIP_JSON: lambda text: pip_lists.read_json(parse_json(text, Kind.PIP_JSON.value)),
    Kind.CONDA_LIST: _lines(conda.read_list, Kind.CONDA_LIST),
    Kind.CONDA_EXPORT: _lines(conda.read_export, Kind.CONDA_EXPORT),
    Kind.CONDA_JSON: lambda text: conda.read_json(parse_json(text, Kind.CONDA_JSON.value)),
    Kind.CONDA_ENV: _lines(conda.read_env_file, Kind.CONDA_ENV),
    Kind.UV: lambda text: lock_files.parse_lock_text(text, lock_files.UV),
    Kind.POETRY: lambda text: lock_files.parse_lock_text(text, lock_files.POETRY),
    Kind.PYLOCK: lambda text: lock_files.parse_lock_text(text, lock_files.PYLOCK),
}


def _json_or_none(text: str) -> Any:
    try:
        return parse_json(text, "the text")
    except InputError:
        return None
