from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from envlock.cli import options as opt
from envlock.cli.diff import ErrorOption, led_by
from envlock.cli.parser import Argument, Option
from envlock.cli.talk import counter, say
from envlock.report import Format


def doctor(
    reference: Annotated[
        str, Argument(metavar="REF", help="This environment, or a lock, report or image.")
    ] = "env",
    *,
    python: opt.PythonOption = None,
    check_files: opt.CheckFiles = False,
    error: ErrorOption = None,
    memory: Annotated[
        bool, Option("--memory", help="Where memory went on this machine, as it runs now.")
    ] = False,
    pid: Annotated[
        int | None,
        Option("--pid", metavar="PID", least=1, help="With --memory: the job to look at."),
    ] = None,
    format_: opt.FormatOption = Format.TEXT,
    output: opt.Output = None,
    report: opt.MoreReports = None,
    fail_on: opt.FailOnOption = opt.FailOn.ERROR,
    ignore: opt.Ignore = None,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Find the faults that one environment shows by itself, before a night is lost.

    envlock doctor
    envlock doctor --check-files           also hash every installed file
    envlock doctor issue-1234.txt          a pasted collect_env report
    envlock doctor --error train.log       what explains this traceback leads
    envlock doctor --memory --pid 4711     who holds memory, without disturbing the job
    """
    reporting = opt.Reporting(
        format=format_,
        output=output,
        more=report or (),
        fail_on=fail_on,
        ignore=ignore or (),
        verbose=verbose,
    )
    if memory or pid is not None:
        from envlock.cli.triage import triage_memory  # noqa: PLC0415

        return triage_memory(reference, pid, reporting)
    from envlock.diff.judge import judge_one  # noqa: PLC0415
    from envlock.diff.one_page import checklist  # noqa: PLC0415
    from envlock.targets.references import Reading, read_reference  # noqa: PLC0415

    with counter("checking files") as progress:
        subject = read_reference(
            reference,
            Reading(
                say=say,
                python=python,
                deep=True,
                check_files=check_files,
                preflight=True,
                progress=progress,
            ),
        )
    judgement = led_by(error, judge_one(subject.observation))
    ending = checklist(judgement.outcomes, verbose=verbose)
    reports = [opt.report_of("doctor", "", subject.label, judgement)]
    return replace(reporting, ending=ending).publish(reports)
