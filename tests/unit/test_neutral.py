from __future__ import annotations

import unicodedata

import pytest

from envlock.neutral import ELLIPSIS, neutral, quiet_line

FORBIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def test_every_character_that_a_terminal_obeys_is_escaped() -> None:
    for number in range(0x110000):
        character = chr(number)
        if unicodedata.category(character) in FORBIDDEN:
            shown = neutral(character)
            assert shown.isascii(), hex(number)
            assert shown.startswith("\\"), hex(number)


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA A100-SXM4-80GB",
        "Système d'exploitation",
        "[N/A]",
        "한국어",
        r"C:\Users",
        "c10::Error",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert neutral(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[1Ab", r"a\x1b[1Ab"),
        ("a\nb", r"a\nb"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp", r"\u202egnp"),
        ("\U000e0001", r"\U000e0001"),
        ("\ud800", r"\ud800"),
        ("\ufffe", r"\ufffe"),
        ("x ##[error]y", r"x #\x23[error]y"),
        ("##vso[task]", r"#\x23vso[task]"),
    ],
)
def test_escapes_are_visible(text: str, shown: str) -> None:
    assert neutral(text) == shown


def test_length_is_bounded_after_escaping_too() -> None:
    assert neutral("a" * 256) == "a" * 256
    assert neutral("a" * 257) == "a" * 255 + ELLIPSIS
    assert len(neutral("\x1b" * 1_000_000)) == 256
    assert len(neutral("##[" * 100, limit=50)) == 50


def test_lines_that_a_runner_would_obey_are_defused() -> None:
    assert quiet_line("::error::x") == r"\x3a:error::x"
    assert quiet_line("   ::error::x") == r"   \x3a:error::x"
    assert quiet_line("c10::Error") == "c10::Error"
    assert quiet_line("") == ""
