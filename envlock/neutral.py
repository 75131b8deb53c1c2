"""Foreign text made harmless for people to read.

Names of GPUs, packages and machines come from locks that strangers send. Printed as they are, they
can move the cursor, hide the verdict, turn the writing direction, or steer a CI runner. Each output
format adds its own encoder after this one.
"""

from __future__ import annotations

LIMIT = 256
"""Characters of one value that a person is shown."""

ELLIPSIS = "…"

_RUNNER_COMMANDS = ("##[", "##vso[")
"""Some CI runners obey these anywhere in a line; ``::`` only counts at its start, see below."""


def neutral(text: str, limit: int = LIMIT) -> str:
    """One line of printable text: everything else as a visible escape, cut at ``limit``.

    Printable as ``str.isprintable`` has it: no controls, format characters (bidirectional marks),
    private use, surrogates, line separators, or odd spaces.
    """
    cut = text if len(text) <= limit else text[: limit - 1] + ELLIPSIS
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else _escape(c) for c in cut)
    for command in _RUNNER_COMMANDS:
        cut = cut.replace(command, r"#\x23" + command[2:])
    return cut if len(cut) <= limit else cut[: limit - 1] + ELLIPSIS


def quiet_line(line: str) -> str:
    """A finished output line that no CI runner takes as a command: ``::error …`` after blanks."""
    rest = line.lstrip()
    if not rest.startswith("::"):
        return line
    return line[: len(line) - len(rest)] + r"\x3a" + rest[1:]


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
