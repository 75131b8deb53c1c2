from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Argument, Option
from envlock.cli.talk import counter, say
from envlock.errors import InputError
from envlock.report import Extras, Format

if TYPE_CHECKING:  # judging needs the facts, which --help does not
    from envlock.diff.judge import Judgement

ErrorOption = Annotated[
    str | None,
    Option(
        "--error", metavar="FILE|TEXT", help="A traceback or message; its cause leads the report."
    ),
]


def diff(
    reference: Annotated[
        str,
        Argument(metavar="REF", help="A lock, report text, image:NAME, python:PATH or -."),
    ],
    other: Annotated[
        str | None,
        Argument(metavar="REF2", help="The right side; without it: this environment."),
    ] = None,
    *,
    python: opt.PythonOption = None,
    deep: opt.Deep = False,
    check_files: opt.CheckFiles = False,
    error: ErrorOption = None,
    format_: opt.FormatOption = Format.TEXT,
    output: opt.Output = None,
    report: opt.MoreReports = None,
    fail_on: opt.FailOnOption = opt.FailOn.ERROR,
    ignore: opt.Ignore = None,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Say what the differences between two environments mean; the cause leads.

    envlock diff colleague.lock            their lock against this environment
    envlock diff issue-1234.txt            a pasted collect_env report
    envlock diff a.lock image:team/train   a lock against an image
    pip freeze | envlock diff -            a listing from standard input
    envlock diff a.lock --error train.log  what explains this traceback leads
    """
    from envlock.diff.judge import judge_pair  # noqa: PLC0415
    from envlock.targets.references import Reading, read_reference, told_apart  # noqa: PLC0415

    with counter("checking files") as progress:
        reading = Reading(
            say=say, python=python, deep=deep, check_files=check_files, progress=progress
        )
        left = read_reference(reference, reading)
        right = read_reference(other or "env", reading)
    names = left.label, right.label
    if other is not None and left.label == right.label:
        names = told_apart(reference, other) or names

    def extras() -> list[Extras]:
        from envlock.cli.extras import of_pair  # noqa: PLC0415

        return [of_pair(left.observation, right.observation)]

    judgement = led_by(error, judge_pair(left.observation, right.observation))
    return opt.Reporting(
        format=format_,
        output=output,
        more=report or (),
        fail_on=fail_on,
        ignore=ignore or (),
        verbose=verbose,
        extras=extras,
    ).publish([opt.report_of("diff", *names, judgement)])


def led_by(error: str | None, judgement: Judgement) -> Judgement:
    """The findings, with the cause of an error message first; a path that exists is read."""
    if error is None:
        return judgement
    from envlock.diff.error_text import led_by_error  # noqa: PLC0415

    return led_by_error(judgement, _error_text(error))


def _error_text(given: str) -> str:
    from envlock.lock.files import read_bounded  # noqa: PLC0415

    path = Path(given)
    try:
        is_there = path.exists()
    except (OSError, ValueError):  # too long for a path: a pasted traceback
        is_there = False
    if is_there:
        return read_bounded(path).decode("utf-8", errors="replace")
    if len(given.split()) == 1 and path.suffix in {".txt", ".log", ".out", ".err"}:
        raise InputError(
            f"--error {given}: no such file", hint="give a file, or the message itself"
        )
    return given
