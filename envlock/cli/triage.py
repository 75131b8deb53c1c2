"""``envlock doctor --memory``: the answer in the order of the questions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envlock.cli import options as opt
from envlock.cli.talk import say
from envlock.errors import TargetError, UsageError
from envlock.findings import Report
from envlock.neutral import neutral

if TYPE_CHECKING:
    from envlock.rules.memory_triage import Step


def triage_memory(reference: str, pid: int | None, reporting: opt.Reporting) -> int:
    """Raises UsageError where something else than this machine is asked about."""
    if reference != "env":
        raise UsageError(
            "--memory looks at this machine as it runs, not at a lock or an image",
            hint="envlock doctor --memory --pid PID",
        )
    from envlock.rules.memory_triage import triage  # noqa: PLC0415
    from envlock.targets.triage import WATCH_S, look_at_memory  # noqa: PLC0415

    if pid:
        say(f"watching process {pid} for {WATCH_S:g} s")
    # envlock's own interpreter: nothing of the environment is looked at
    try:
        steps = triage(look_at_memory(Path(sys.executable), pid or 0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TargetError(
            f"the triage probe's answer does not fit its schema: {error!r}"[:300],
            hint="something on this machine changed the answer on its way",
        ) from error
    report = Report(
        command="doctor",
        left=f"process {pid}" if pid else "this machine",
        right="",
        findings=tuple(finding for step in steps for finding in step.findings),
        checked=sum(len(step.findings) + len(step.seen) for step in steps),
        unknown=tuple(step.title for step in steps if step.missing),
    )
    ending = "".join(f"{line}\n" for line in _checklist(steps))
    return replace(reporting, ending=ending).publish([report])


def _checklist(steps: Sequence[Step]) -> Iterator[str]:
    yield "In the order in which causes are usually found:"
    for number, step in enumerate(steps, 1):
        yield ""
        yield f"{number}. {step.title}: {step.status}"
        yield from (f"   {neutral(line, 600)}" for line in step.lines())
