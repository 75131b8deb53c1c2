"""Strict reading: what fits is kept as it is, everything else is refused with its spot."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest

from envlock.lock.shape import (
    ABSENT,
    NOT_RECORDED,
    Absent,
    Fact,
    Length,
    Matches,
    Model,
    ShapeError,
    Unknown,
    Within,
)

Short = Annotated[str, Length(4)]
Steps = Annotated[list[int], Length(2, least=1)]


class Failed(Model):
    status: Literal["failed"]
    reason: str


class Done(Model):
    status: Literal["ok"]
    steps: Steps


class Inner(Model):
    name: Fact[Short] = NOT_RECORDED
    share: Fact[float] = NOT_RECORDED


class Outer(Model):
    schema_: Literal["outer/1"] = "outer/1"
    size: Annotated[int, Within(0, 10)]
    on: bool = False
    digest: Annotated[str, Matches("[0-9a-f]{2}")] = "00"
    inner: Fact[Inner] = NOT_RECORDED
    table: Fact[dict[Short, Inner]] = NOT_RECORDED
    notes: list[Short] = []  # noqa: RUF012 - copied for each
    outcome: Done | Failed | None = None
    raw: dict[str, Any] = {}  # noqa: RUF012


def test_what_fits_is_read_and_written_back_the_same() -> None:
    data = {
        "size": 3,
        "on": True,
        "inner": {"name": "a", "share": {"absent": True}},
        "table": {"x": {"name": {"unknown": "not said"}}},
        "notes": ["b"],
        "outcome": {"status": "failed", "reason": "c"},
        "raw": {"any": [1, {"thing": None}]},
    }
    found = Outer.read(data)
    assert found.plain() == data
    assert found == Outer.read(found.plain())
    assert found.inner == Inner(name="a", share=ABSENT)
    assert found.table == {"x": Inner(name=Unknown(unknown="not said"))}
    assert isinstance(found.outcome, Failed)
    assert (found.schema_, found.digest) == ("outer/1", "00")


def test_a_whole_number_serves_as_a_float_and_nothing_else_is_converted() -> None:
    share = Inner.read({"share": 2}).share
    assert (share, type(share)) == (2.0, float)


@pytest.mark.parametrize(
    ("data", "path", "what"),
    [
        ([], [], "a table is needed"),
        ({}, [], "size is missing"),
        ({"size": 1, "colour": "red"}, ["colour"], "unknown key"),
        ({"size": 1, "defaults": {}}, ["defaults"], "unknown key"),
        ({"size": 1, "schema_": "outer/1"}, ["schema_"], "unknown key"),
        ({"size": 1, "schema": "outer/2"}, ["schema"], "must be 'outer/1'"),
        ({"size": "1"}, ["size"], "a whole number is needed"),
        ({"size": True}, ["size"], "a whole number is needed"),
        ({"size": 1.0}, ["size"], "a whole number is needed"),
        ({"size": 10}, ["size"], "must be from 0 to below 10"),
        ({"size": -1}, ["size"], "must be from 0 to below 10"),
        ({"size": 1, "on": 1}, ["on"], "true or false is needed"),
        ({"size": 1, "digest": "0g"}, ["digest"], "must be of the form [0-9a-f]{2}"),
        ({"size": 1, "digest": "00\n"}, ["digest"], "must be of the form [0-9a-f]{2}"),
        ({"size": 1, "notes": "ab"}, ["notes"], "a list is needed"),
        ({"size": 1, "notes": ["a", 2]}, ["notes", 1], "a text is needed"),
        ({"size": 1, "notes": ["abcde"]}, ["notes", 0], "too long (5 characters; at most 4)"),
        ({"size": 1, "notes": ["\ud800"]}, ["notes", 0], "not UTF-8 (a lone surrogate)"),
        ({"size": 1, "inner": {"name": 1}}, ["inner", "name"], "a text is needed"),
        ({"size": 1, "inner": {"share": float("nan")}}, ["inner", "share"], "a finite number"),
        ({"size": 1, "inner": {"share": True}}, ["inner", "share"], "a finite number is needed"),
        ({"size": 1, "inner": None}, ["inner"], "a table is needed"),
        ({"size": 1, "inner": {"absent": False}}, ["inner", "absent"], "must be True"),
        ({"size": 1, "inner": {"absent": 1}}, ["inner", "absent"], "must be True"),
        ({"size": 1, "inner": {"unknown": "x" * 401}}, ["inner", "unknown"], "too long (401"),
        ({"size": 1, "table": {"x": []}}, ["table", "x"], "a table is needed"),
        ({"size": 1, "table": {"xxxxx": {}}}, ["table", "xxxxx"], "too long (5 characters"),
        ({"size": 1, "table": {3: {}}}, ["table", 3], "a text is needed"),
        ({"size": 1, "outcome": {"status": "new"}}, ["outcome"], "status must be 'ok' or 'failed'"),
        ({"size": 1, "outcome": {"status": []}}, ["outcome"], "status must be 'ok' or 'failed'"),
        ({"size": 1, "outcome": {"status": "ok"}}, ["outcome"], "steps is missing"),
        ({"size": 1, "outcome": {"status": "ok", "steps": []}}, ["outcome", "steps"], "too short"),
        ({"size": 1, "raw": []}, ["raw"], "a table is needed"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_spot(
    data: object, path: list[object], what: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        Outer.read(data)
    assert caught.value.path == path
    assert what in caught.value.what


def test_models_are_frozen_and_share_no_default() -> None:
    one, other = Outer(size=1), Outer(size=1)
    one.notes.append("mine")
    assert (other.notes, Outer.read({"size": 1}).notes) == ([], [])
    with pytest.raises(AttributeError, match="frozen"):
        one.size = 2  # type: ignore[misc]


def test_a_model_is_made_of_its_fields_only() -> None:
    with pytest.raises(TypeError, match="size is missing"):
        Outer()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no field colour"):
        Outer(size=1, colour="red")  # type: ignore[call-arg]


def test_another_value_leaves_the_first_as_it_was() -> None:
    one = Outer(size=1)
    assert one.changed(size=2, on=True) == Outer(size=2, on=True)
    assert one == Outer(size=1)
    assert one != Outer(size=1, on=True)


def test_marks_are_the_same_objects_wherever_they_are_read() -> None:
    found = Inner.read({"name": {"absent": True}, "share": {"unknown": "not recorded"}})
    assert found.name is ABSENT
    assert found.share is NOT_RECORDED
    assert isinstance(found.name, Absent)
    assert found.plain() == {"name": {"absent": True}}
