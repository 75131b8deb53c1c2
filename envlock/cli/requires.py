from __future__ import annotations

import re
from typing import Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Argument, Option
from envlock.cli.talk import say
from envlock.errors import NothingComparedError, UsageError
from envlock.report import Format

_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]{0,99}")


def requires(
    lock: Annotated[str, Argument(metavar="LOCK", help="A lock, a report text, image:NAME or -.")],
    *,
    gpu: Annotated[
        str | None,
        Option("--gpu", metavar="NAME|CC", help="A GPU: 'RTX 4090', 8.9, sm_89, gfx90a."),
    ] = None,
    driver: Annotated[
        str | None, Option("--driver", metavar="V", help="Its NVIDIA driver: 550.54.15.")
    ] = None,
    glibc: Annotated[
        str | None, Option("--glibc", metavar="V", help="Its C library: 2.31.")
    ] = None,
    format_: opt.FormatOption = Format.TEXT,
    output: opt.Output = None,
    report: opt.MoreReports = None,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Say on which machines a lock runs, without a GPU; exit 1 where the named one cannot.

    envlock requires pylock.env.toml                  what it needs
    envlock requires pylock.env.toml --gpu "RTX 5090" --driver 570.86
    envlock requires pylock.env.toml --glibc 2.28     exit 1 if a wheel needs a newer one
    """
    _check("--gpu", gpu, _GPU, "a name such as 'RTX 4090', or a compute capability such as 8.9")
    _check("--driver", driver, _VERSION, "a version such as 550.54.15")
    _check("--glibc", glibc, _VERSION, "a version such as 2.31")
    from envlock.diff.one_page import verdict_page  # noqa: PLC0415
    from envlock.diff.requires import Machine, on_machine  # noqa: PLC0415
    from envlock.targets.references import Reading, read_reference  # noqa: PLC0415

    subject = read_reference(lock, Reading(say=say))
    machine = Machine(gpu=gpu, driver=driver, glibc=glibc)
    judged = on_machine(subject.observation, machine)
    reporting = opt.Reporting(
        format=format_,
        output=output,
        more=report or (),
        verbose=verbose,
        text=verdict_page(subject.label, judged, machine),
    )
    try:
        return reporting.publish([opt.report_of("requires", subject.label, str(machine), judged)])
    except NothingComparedError:
        unknown = "; ".join(judged.unknown) or "the lock says nothing about torch or its wheels"
        raise NothingComparedError(f"cannot be decided: {unknown}", hint=_hint(unknown)) from None


def _hint(unknown: str) -> str:
    if "driver.version" in unknown:
        return "give the driver's version as nvidia-smi shows it: --driver 550.54.15"
    if "compute_capability" in unknown:
        return "give the GPU's compute capability: --gpu 8.9"
    return "capture the lock with: envlock capture --deep"


def _check(option: str, value: str | None, grammar: re.Pattern[str], wanted: str) -> None:
    if value is not None and not grammar.fullmatch(value):
        raise UsageError(f"{option} {value!r}: give {wanted}")
