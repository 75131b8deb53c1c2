"""What only one command prints, as text: doctor's list of checks, the verdict of requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envlock.diff.judge import Judgement, Outcome, Status
from envlock.diff.requires import Machine
from envlock.findings import Severity
from envlock.neutral import neutral

_HEADINGS = {
    Status.FAILED: ("failed", "this fault is here"),
    Status.NOTED: ("noted", "this is so, and does no harm by itself"),
    Status.NOT_CHECKABLE: ("not checkable", "whether this fault is here is unknown"),
    Status.PASSED: ("passed", "this fault is not here"),
    Status.DOES_NOT_APPLY: ("without an object", "there is nothing that could have this fault"),
}
"""In the order in which people care."""


def checklist(outcomes: Sequence[Outcome], *, verbose: bool) -> str:
    """Every check by what became of it; without ``verbose`` the failed ones and the counts."""
    counts = [
        f"{sum(o.status is status for o in outcomes)} {name}"
        for status, (name, _) in _HEADINGS.items()
    ]
    more = "" if verbose else " (each by name: --verbose)"
    lines = [f"{len(outcomes)} checks: {', '.join(counts)}{more}"]
    for status, (name, meaning) in _HEADINGS.items():
        group = [o for o in outcomes if o.status is status]
        if group and (verbose or status in {Status.FAILED, Status.NOTED}):
            lines += ["", f"{name}: {meaning}", *(line for o in group for line in _check_lines(o))]
    return "".join(f"{line}\n" for line in lines)


def _check_lines(outcome: Outcome) -> Iterator[str]:
    yield f"  {outcome.code}  {outcome.title}"
    if outcome.why:
        # A rule that finds its fact absent gives the bare path.
        why = outcome.why if " " in outcome.why else f"{outcome.why}: absent"
        yield f"         {neutral(why)}"


def verdict_page(name: str, judged: Judgement, machine: Machine) -> str:
    """Whether a lock runs on a machine, why not, and what it needs."""
    against = [f for f in judged.findings if f.severity is not Severity.INFO]
    needs = [f for f in judged.findings if f.severity is Severity.INFO]
    lines = [_verdict(name, judged, machine)]
    for finding in against:
        lines += ["", f"{finding.severity.value} {finding.code}  {neutral(finding.message, 2000)}"]
        lines += [f"  To do: {neutral(finding.hint, 2000)}"] if finding.hint else []
    lines += _listed("Cannot be decided", judged.unknown)
    lines += _listed("Requirements", (f.message for f in needs))
    return "".join(f"{line}\n" for line in lines)


def _verdict(name: str, judged: Judgement, machine: Machine) -> str:
    asked = neutral(str(machine))
    if any(f.severity is Severity.ERROR for f in judged.findings):
        return f"CANNOT RUN  {neutral(name)} on {asked}"
    if judged.unknown:
        return f"UNDECIDED  {neutral(name)} on {asked}"
    return f"CAN RUN  {neutral(name)} on {asked}" if asked else f"REQUIREMENTS  {neutral(name)}"


def _listed(heading: str, entries: Iterable[str]) -> list[str]:
    lines = [f"  {neutral(entry, 2000)}" for entry in entries]
    return ["", heading, *lines] if lines else []
