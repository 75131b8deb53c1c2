"""From the signature of a command to its command line, by argparse.

Commands are plain functions: each parameter is annotated with ``Option`` or ``Argument``, and its
type decides what is accepted. Only the command that was named is imported.
"""

from __future__ import annotations

import argparse
import enum
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

from envlock.errors import UsageError

Command = Callable[..., int | None]

WIDTH = 100
"""Columns of a help page where the terminal has as many."""


@dataclass(frozen=True, slots=True)
class Argument:
    metavar: str
    help: str


class Option:
    """``Option("--memory", metavar="MIB", help=..., least=64)``; bounds are for whole numbers."""

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002 - as argparse calls it
        metavar: str | None = None,
        least: int | None = None,
        most: int | None = None,
    ) -> None:
        self.names, self.help, self.metavar = names, help, metavar
        self.least, self.most = least, most


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print and exit; never guesses an option's name."""

    def __init__(self, name: str, description: str | None) -> None:
        super().__init__(
            prog=name,
            description=description,
            formatter_class=_Help,
            allow_abbrev=False,
            add_help=False,
        )
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action="help", help="Show this page.")

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"usage: {self.usage}\n{self.prog} --help has examples")


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=min(_columns(), WIDTH))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """``-o, --output FILE``: the value named once."""
        names = sorted(action.option_strings, key=len)
        if not names:
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else f" {action.metavar}"
        return ", ".join(names) + value


def _columns() -> int:
    import shutil  # noqa: PLC0415 - loaded by argparse itself, for help only

    return shutil.get_terminal_size((WIDTH, 24)).columns


def parser_of(command: Command, name: str) -> Parser:
    """The parser of ``envlock NAME``."""
    parser = Parser(name, inspect.cleandoc(command.__doc__ or ""))
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        _add(parser, parameter, hints[parameter.name])
    named = [action for action in parser._actions if not action.option_strings]  # noqa: SLF001
    shown = [f"[{a.metavar}]" if a.nargs == "?" else str(a.metavar) for a in named]
    parser.usage = " ".join([name, "[OPTIONS]", *shown])
    return parser


def values_of(parser: Parser, arguments: Sequence[str]) -> dict[str, Any]:
    """The keyword arguments of the command. Raises UsageError."""
    # Intermixed: ``diff a.lock --deep b.lock``. It reads twice, and has lost ``--`` the second time.
    parse = parser.parse_known_args if "--" in arguments else parser.parse_known_intermixed_args
    found, rest = parse(list(arguments))
    if rest:
        parser.error(_too_much(rest[0], parser))
    return vars(found)


def _too_much(text: str, parser: Parser) -> str:
    name = text.partition("=")[0]
    if not name.startswith("-"):
        return f"one argument too many: {text!r}"
    known = [known for action in parser._actions for known in action.option_strings]  # noqa: SLF001
    return f"no such option: {name}{did_you_mean(name, known)}"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    import difflib  # noqa: PLC0415

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _add(parser: Parser, parameter: inspect.Parameter, hint: Any) -> None:
    if get_origin(hint) is not Annotated:  # Python 3.10 puts a default of None into the type
        hint = get_args(hint)[0]
    kind, mark = get_args(hint)
    required = parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    plain, many = _value_type(kind)
    if isinstance(mark, Argument):
        count = ("+" if many else None) if required else "?"
        parser.add_argument(
            parameter.name,
            metavar=mark.metavar,
            help=_escaped(mark.help + _shown([], default)),
            type=_reader(plain),
            nargs=count,
            default=default,
        )
    elif plain is bool:
        parser.add_argument(
            *mark.names, dest=parameter.name, help=_escaped(mark.help), action="store_true"
        )
    else:
        known = _known(plain)
        action = parser.add_argument(
            *mark.names,
            dest=parameter.name,
            metavar=mark.metavar or mark.names[0].lstrip("-").upper(),
            help=_escaped(mark.help + _shown(known, default)),
            type=_whole(mark.least, mark.most) if plain is int else _reader(plain),
            action="append" if many else "store",
            default=default,
        )
        if known:
            action.completer = lambda **_: known  # type: ignore[attr-defined] # for argcomplete


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _value_type(hint: Any) -> tuple[Any, bool]:
    """(type of one value, whether there may be several)."""
    members = [member for member in get_args(hint) if member is not NoneType]
    if get_origin(hint) is list:
        return members[0], True
    return _value_type(members[0]) if members else (hint, False)


def _known(plain: Any) -> list[str]:
    """The values of an option that knows a few; empty for all others."""
    is_enum = isinstance(plain, type) and issubclass(plain, enum.Enum)
    return [member.value for member in plain] if is_enum else []


def _shown(known: list[str], default: object) -> str:
    default = default.value if isinstance(default, enum.Enum) else default
    listed = f" {', '.join(known)}." if known else ""
    return listed + ("" if default is None else f" [default: {default}]")


def _reader(plain: Any) -> Callable[[str], Any]:
    known = _known(plain)
    if not known:
        return Path if plain is Path else str

    def read(text: str) -> Any:
        try:
            return plain(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not one of {', '.join(known)}{did_you_mean(text, known)}"
            ) from None

    return read


def _whole(least: int | None, most: int | None) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{value} is not {bounds}")
        return value

    return read
