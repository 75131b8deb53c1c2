"""A command's signature is its command line: what is accepted, what is refused and how."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import pytest

from envlock.cli import app
from envlock.cli.parser import Argument, Option, parser_of, values_of
from envlock.errors import UsageError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def paint(
    first: Annotated[str, Argument(metavar="FIRST", help="What to paint.")],
    second: Annotated[Path | None, Argument(metavar="SECOND", help="More.")] = None,
    *,
    colour: Annotated[Colour, Option("--colour", "-c", help="In which 100% colour.")] = Colour.RED,
    coats: Annotated[int, Option("--coats", metavar="N", least=1, most=3, help="How often.")] = 2,
    also: Annotated[list[str] | None, Option("--also", help="May be repeated.")] = None,
    wet: Annotated[bool, Option("--wet", help="On wet ground.")] = False,
) -> None:
    """Paint.

    envlock paint wall
    """


def many(
    images: Annotated[list[str], Argument(metavar="IMAGE...", help="Some.")],
    *,
    on: Annotated[bool, Option("--on", help="On.")] = False,
) -> None:
    """Take many."""


def parsed(*arguments: str) -> dict[str, Any]:
    return values_of(parser_of(paint, "envlock paint"), arguments)


def test_what_is_left_out_has_its_default() -> None:
    assert parsed("wall") == {
        "first": "wall",
        "second": None,
        "colour": Colour.RED,
        "coats": 2,
        "also": None,
        "wet": False,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["wall", "door", "--wet", "-c", "blue", "--also", "a", "--also=b"],
        ["wall", "--wet", "door", "--colour=blue", "--also", "a", "--also", "b"],
        ["--wet", "--also", "a", "-cblue", "wall", "--also", "b", "door"],
        ["--wet", "--also", "a", "--also", "b", "-c", "blue", "--", "wall", "door"],
    ],
)
def test_options_and_arguments_stand_in_any_order(arguments: list[str]) -> None:
    found = parsed(*arguments)
    assert (found["first"], found["second"]) == ("wall", Path("door"))
    assert (found["colour"], found["also"], found["wet"]) == (Colour.BLUE, ["a", "b"], True)


def test_a_dash_is_an_argument_and_anything_is_after_two() -> None:
    assert parsed("-")["first"] == "-"
    assert parsed("--wet", "--", "--privileged")["first"] == "--privileged"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: FIRST"),
        (["a", "b", "c"], "one argument too many: 'c'"),
        (["a", "--colou", "red"], "no such option: --colou; did you mean --colour?"),
        (["a", "--token=hunter2"], "no such option: --token"),
        (["a", "-c", "bleu"], "'bleu' is not one of red, blue; did you mean blue?"),
        (["a", "--coats", "4"], "4 is not from 1 to 3"),
        (["a", "--coats", "0"], "0 is not from 1 to 3"),
        (["a", "--coats", "two"], "'two' is not a whole number"),
        (["a", "--coats"], "expected one argument"),
        (["a", "--wet=yes"], "ignored explicit argument"),
    ],
)
def test_what_is_refused(arguments: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(*arguments)
    assert "usage: envlock paint [OPTIONS] FIRST [SECOND]" in str(caught.value.hint)
    assert says in caught.value.message
    assert "hunter2" not in caught.value.message


def test_several_arguments_of_one_name() -> None:
    parser = parser_of(many, "envlock many")
    assert values_of(parser, ["a", "--on", "b", "c"]) == {"images": ["a", "b", "c"], "on": True}
    with pytest.raises(UsageError, match="required"):
        values_of(parser, [])


def test_the_help_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        parsed("--help")
    assert ended.value.code == 0
    page = capsys.readouterr().out
    assert page.startswith(
        "usage: envlock paint [OPTIONS] FIRST [SECOND]\n\nPaint.\n\nenvlock paint"
    )
    assert "  -c, --colour COLOUR  In which 100% colour. red, blue. [default: red]\n" in page
    assert "  --wet                On wet ground.\n" in page


@pytest.mark.parametrize("name", app.SHORT)
def test_every_command_loads_and_explains_itself(name: str) -> None:
    page = parser_of(app.load(name), f"envlock {name}").format_help()
    assert page.startswith(f"usage: envlock {name} ")
    assert f"\nenvlock {name}" in page or f'"$(envlock {name}' in page  # its examples
