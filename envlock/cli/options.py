"""Options that commands share, declared once, and what follows from them."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from envlock.cli.parser import Option
from envlock.errors import ClosedPipeError, InputError, NothingComparedError, UsageError
from envlock.findings import Report, Result, Severity
from envlock.report import Extras, Format, Style

if TYPE_CHECKING:  # judging needs the facts, which --help does not
    from envlock.diff.judge import Judgement
    from envlock.rules.behaviour_tolerances import Tolerance


class FailOn(enum.Enum):
    """From which severity on the exit code is 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"

    @property
    def severity(self) -> Severity | None:
        return None if self is FailOn.NEVER else Severity(self.value)


Debug = Annotated[
    bool,
    Option("--debug", help="Say every step on standard error, with tracebacks."),
]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Name every unknown and all evidence.")]
FormatOption = Annotated[Format, Option("--format", "-f", help="Format of the report.")]
Output = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FILE", help="File to write instead of standard output."),
]
MoreReports = Annotated[
    list[str] | None,
    Option("--report", metavar="FORMAT=FILE", help="A further report; may be repeated."),
]
FailOnOption = Annotated[FailOn, Option("--fail-on", help="Exit with 1 from this severity on.")]
Ignore = Annotated[
    list[str] | None,
    Option("--ignore", metavar="CODE", help="Leave this finding out; may be repeated."),
]
PythonOption = Annotated[
    str | None, Option("--python", metavar="EXE", help="The interpreter to look at.")
]
Deep = Annotated[bool, Option("--deep", help="Import torch for what only torch knows.")]
CheckFiles = Annotated[
    bool, Option("--check-files", help="Hash every installed file against its RECORD.")
]
Wheelhouse = Annotated[
    Path | None,
    Option("--wheelhouse", metavar="DIR", help="Folder with wheel files to lock or build from."),
]
Offline = Annotated[bool, Option("--offline", help="Use only files that are already here.")]


class Device(enum.Enum):
    """Where the smoke test runs."""

    CPU = "cpu"
    CUDA = "cuda"


DeviceOption = Annotated[Device, Option("--device", help="Where the smoke test runs.")]
Memory = Annotated[
    int,
    Option("--memory", metavar="MIB", help="Memory limit of a container, in MiB.", least=64),
]
Shm = Annotated[
    int,
    Option("--shm-size", metavar="MIB", help="Size of /dev/shm in a container, in MiB.", least=1),
]
Tolerances = Annotated[
    Path | None,
    Option(
        "--tolerances",
        metavar="FILE",
        help="TOML with limits of your own for the smoke test; the report names them.",
    ),
]


PolicyOption = Annotated[
    Path | None,
    Option(
        "--policy",
        metavar="FILE",
        help="What is let through (docs/policy.md); else envlock.toml or pyproject.toml here.",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reporting:
    """How the reports of one command leave the program."""

    format: Format = Format.TEXT
    output: Path | None = None
    more: Sequence[str] = ()
    fail_on: FailOn = FailOn.ERROR
    ignore: Sequence[str] = ()
    verbose: bool = False
    to_stderr: bool = False
    """Where the report is talk, because the product is something else."""
    text: str | None = None
    """A text of the command's own, in place of the text report."""
    ending: str = ""
    """What follows the text report, such as the list of checks."""
    extras: Callable[[], Sequence[Extras]] = tuple
    """Of the HTML report, one for each report; made only if one is asked for."""

    def publish(self, reports: Sequence[Report]) -> int:
        """Write every report that was asked for; returns the exit code.

        Raises InputError when one cannot be written, NothingComparedError when nothing was checked.
        """
        severity = self.fail_on.severity
        kept = [_without(report, self.ignore) for report in reports]
        for format_, path in [parse_report_option(text) for text in self.more]:
            style = Style(fail_on=severity, verbose=self.verbose)
            write_product(self._rendered(format_, kept, style), path)
        text = self.text
        if text is None or self.format is not Format.TEXT:
            text = self._rendered(self.format, kept, self.style(severity))
        if self.ending and self.format is Format.TEXT:
            text = f"{text}\n{self.ending}"
        if self.to_stderr:
            sys.stderr.write(text)
        else:
            write_product(text, self.output)
        results = {report.result(severity) for report in kept}
        if Result.NOTHING in results:
            raise NothingComparedError(
                "nothing was compared: no fact is known on both sides",
                hint="see with --verbose what is unknown and why",
            )
        return 1 if Result.FAIL in results else 0

    def _rendered(self, format_: Format, reports: Sequence[Report], style: Style) -> str:
        if format_ is Format.HTML:
            style = replace(style, extras=self.extras())
        return format_.render(reports, style)

    def style(self, severity: Severity | None = None) -> Style:
        """How a text looks where it goes: on a terminal, in a file, in a pipe."""
        stream = sys.stderr if self.to_stderr else sys.stdout
        if self.output is not None or not stream.isatty():
            return Style(fail_on=severity, verbose=self.verbose, width=100)
        width = min(os.get_terminal_size(stream.fileno()).columns, 120)
        colour = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        return Style(fail_on=severity, verbose=self.verbose, colour=colour, width=width)


def parse_report_option(text: str) -> tuple[Format, Path]:
    """``junit=report.xml``; raises UsageError."""
    name, equals, path = text.partition("=")
    known = ", ".join(f.value for f in Format)
    if not equals or not path:
        raise UsageError(f"--report {text}: give FORMAT=FILE, with a format of {known}")
    try:
        return Format(name), Path(path)
    except ValueError:
        raise UsageError(f"--report {text}: not a format: {name!r}; known are {known}") from None


def _without(report: Report, codes: Sequence[str]) -> Report:
    return replace(report, findings=tuple(f for f in report.findings if f.code not in codes))


def limits_of(path: Path | None) -> Mapping[str, Tolerance] | None:
    """The limits in a user's file; None: envlock's own. Raises InputError."""
    if path is None:
        return None
    from envlock.lock.files import read_bounded  # noqa: PLC0415
    from envlock.rules.behaviour_tolerances import with_overrides  # noqa: PLC0415

    try:
        text = read_bounded(path, limit=1 << 20).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error}") from error
    return with_overrides(text, str(path))


def report_of(command: str, left: str, right: str, judgement: Judgement) -> Report:
    return Report(
        command=command,
        left=left,
        right=right,
        findings=judgement.findings,
        checked=judgement.checked,
        unknown=judgement.unknown,
    )


def write_product(text: str, path: Path | None) -> None:
    """The product of a command: to a file in one step, or to standard output."""
    if path is not None and str(path) != "-":
        from envlock.lock.files import save  # noqa: PLC0415

        save(path, text)
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ClosedPipeError("standard output is closed") from error
    except OSError as error:
        raise InputError(f"standard output: cannot be written: {error.strerror}") from error
