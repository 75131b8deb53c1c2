"""Text as people paste it: line ends of three systems, colours, odd spaces, and endless lines."""

from __future__ import annotations

import re

from envlock.errors import InputError

MAX_TEXT = 64 << 20
MAX_REPORT = 1 << 20
"""A collect_env report of a machine with 16 GPUs and vLLM's sections has 40 kB."""
MAX_LINE = 16 << 10
"""The longest real lines are the CPU flags, about 3 kB."""

MAX_LINES = 1_000_000
"""A requirements file of 20,000 packages with 50 hashes each."""
_HEAD, _TAIL = 1 << 18, 1 << 16

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,32}[A-Za-z]")
_SPACES = str.maketrans(
    dict.fromkeys("\u00a0\u2007\u202f\u3000\t", " ") | {"\u200b": None, "\ufeff": None}
)


def decode(data: bytes) -> str:
    """Bytes of a pasted text: Windows' shells write UTF-16, and old ones an 8-bit code page.

    Bytes that are no UTF-8 become visible escapes; no fact that matters is written in them.
    """
    for mark, encoding in (
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
        (b"\xef\xbb\xbf", "utf-8-sig"),
    ):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    return data.decode("utf-8", "backslashreplace")


def clean(text: str) -> str:
    """The text with plain line ends and spaces. Raises InputError for NUL bytes and bombs."""
    if len(text) > MAX_TEXT:
        raise InputError(f"the text is too long (at most {MAX_TEXT} characters)")
    if "\0" in text:
        raise InputError("the text holds NUL bytes; it is no report or list")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _COLOUR.sub("", text).translate(_SPACES)


def lines_of(text: str, what: str) -> list[str]:
    """The lines, none of them longer than any real one."""
    if text.count("\n") > MAX_LINES:
        raise InputError(f"{what}: too many lines (at most {MAX_LINES})")
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            raise InputError(
                f"{what}: line {number} is too long ({len(line)} characters; at most {MAX_LINE})"
            )
    return lines


def ends_of(text: str) -> str:
    """Enough of a text to tell what it is: every kind shows it near its beginning or end."""
    if len(text) <= _HEAD + _TAIL:
        return text
    return text[:_HEAD].rpartition("\n")[0] + "\n" + text[-_TAIL:].partition("\n")[2]
