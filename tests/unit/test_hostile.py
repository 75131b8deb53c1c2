"""Hostile inputs through every route in this process; ``python -m tests.hostile`` runs the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import lines_of
from tests.hostile_inputs import Input, expression, read_inputs
from tests.hostile_places import samples_of
from tests.hostile_routes import Outcome, check, encodings
from tests.hostile_sample import Sample
from tests.hostile_words import missing_words

OWN = Path(__file__).parent / "data" / "hostile"
INPUTS = read_inputs(OWN)


@pytest.mark.parametrize("item", INPUTS, ids=[item.id for item in INPUTS])
def test_every_route_is_right(item: Input) -> None:
    assert [line for line in lines_of(item, pure=True) if line.faults] == []


REFUSED = Sample(label="x", data=b"", refused=True, words=("packages[0].name",))
ITEM = read_inputs(OWN)[0]
GOOD = Outcome(code=4, stdout="", stderr="error: packages[0].name: no\n\nhint: x\n")


def faults(outcome: Outcome) -> list[str]:
    return list(check(ITEM, REFUSED, outcome))


def test_a_right_refusal_has_no_fault() -> None:
    assert faults(GOOD) == []


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(code=1, stdout="", stderr=GOOD.stderr),
        Outcome(code=4, stdout="x", stderr=GOOD.stderr),
        Outcome(code=4, stdout="", stderr="error: no\n"),
        Outcome(code=4, stdout="", stderr="error: packages[0].name:\nno\n"),
        Outcome(code=4, stdout="", stderr="error: packages[0].name: \x1b[2K\n"),
        Outcome(code=4, stdout="", stderr=GOOD.stderr, events=("socket.connect",)),
        Outcome(code=4, stdout="", stderr=GOOD.stderr, seconds=60),
        Outcome(code=4, stdout="", stderr=GOOD.stderr + "czNjcjN0LWNhbmFyeQ=="),
        Outcome(code=4, stdout="", stderr=GOOD.stderr + "Traceback"),
    ],
)
def test_each_wrong_refusal_is_seen(outcome: Outcome) -> None:
    assert faults(outcome)


def test_a_field_that_is_not_mapped_fails() -> None:
    strange = Input(
        id="x",
        field="no such place",
        values=["a"],
        sentence=None,
        other_fields={},
        action="reject",
        words=[],
        must_not=[],
        twin=None,
        sink=None,
    )
    assert samples_of(strange) is None
    assert [bool(line.faults) for line in lines_of(strange, pure=True)] == [True]


@pytest.mark.parametrize("text", ["__import__('os')", "open('x')", "().__class__", "a symlink"])
def test_only_plain_expressions_are_evaluated(text: str) -> None:
    assert expression(text) is None
    assert expression("' or '.join([\"a\"] * 2) + chr(0x41)") == "a or aA"


def test_a_secret_is_found_in_each_encoding() -> None:
    import base64  # noqa: PLC0415

    for before in ("", "a", "ab"):
        text = base64.b64encode(f"{before}s3cr3t-canary and more".encode()).decode()
        assert any(form in text for form in encodings("s3cr3t-canary"))
    assert "S3CR3T-CANARY" in encodings("s3cr3t-canary")


def test_words_are_asked_for_in_our_names() -> None:
    assert missing_words(["env.A", "Reason"], "tool.envlock.image.env.A: a reason") == []
    assert missing_words(["env.A"], "env.A") == ["tool.envlock.image.env.A"]
