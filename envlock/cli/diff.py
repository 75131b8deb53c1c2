from __future__ import annotations

from typing import Annotated

import typer

from envlock.cli import options as opt
from envlock.cli.talk import counter, say
from envlock.report import Format


def diff(
    reference: Annotated[
        str,
        typer.Argument(metavar="REF", help="A lock, report text, image:NAME, python:PATH or -."),
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="REF2", help="The right side; without it: this environment."),
    ] = None,
    *,
    python: opt.PythonOption = None,
    deep: opt.Deep = False,
    check_files: opt.CheckFiles = False,
    format_: opt.FormatOption = Format.TEXT,
    output: opt.Output = None,
    report: opt.MoreReports = None,
    fail_on: opt.FailOnOption = opt.FailOn.ERROR,
    ignore: opt.Ignore = None,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Say what the differences between two environments mean; the cause leads.

    \b
    envlock diff colleague.lock            their lock against this environment
    envlock diff issue-1234.txt            a pasted collect_env report
    envlock diff a.lock image:team/train   a lock against an image
    pip freeze | envlock diff -            a listing from standard input
    """
    from envlock.diff.judge import judge_pair  # noqa: PLC0415
    from envlock.targets.references import Reading, read_reference  # noqa: PLC0415

    with counter("checking files") as progress:
        reading = Reading(
            say=say, python=python, deep=deep, check_files=check_files, progress=progress
        )
        left = read_reference(reference, reading)
        right = read_reference(other or "env", reading)
    judgement = judge_pair(left.observation, right.observation)
    return opt.Reporting(
        format=format_,
        output=output,
        more=report or (),
        fail_on=fail_on,
        ignore=ignore or (),
        verbose=verbose,
    ).publish([opt.report_of("diff", left.label, right.label, judgement)])
