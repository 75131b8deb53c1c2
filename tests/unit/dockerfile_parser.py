"""What a builder reads in a Dockerfile, by BuildKit's own parser. Not a test module.

The ``dockerfile`` package wraps BuildKit's Go package ``frontend/dockerfile/parser``: nothing of
envlock's rendering is shared with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import dockerfile  # type: ignore[import-not-found]  # a compiled module without stubs

DockerfileError: type[Exception] = dockerfile.GoParseError
"""BuildKit refuses the text."""

_DIRECTIVE = re.compile(r"#\s*(?P<name>syntax|escape|check)\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Instruction:
    kind: str
    """``FROM``, ``RUN``: upper case."""
    flags: tuple[str, ...]
    words: tuple[str, ...]
    json: bool
    """Arguments were a JSON list: no shell reads them."""


def instructions(text: str) -> list[Instruction]:
    """Every instruction in order. Raises DockerfileError for what BuildKit refuses."""
    return [
        Instruction(
            kind=command.cmd.upper(),
            flags=tuple(command.flags),
            words=tuple(command.value),
            json=bool(command.json),
        )
        for command in dockerfile.parse_string(text)
    ]


def shape(text: str) -> list[str]:
    """The kinds alone: what two renders must have in common."""
    return [instruction.kind for instruction in instructions(text)]


def directives(text: str) -> list[str]:
    """Names of the parser directives: comments at the start that a builder obeys."""
    names = []
    for line in text.splitlines():
        found = _DIRECTIVE.match(line)
        if found is None:
            break
        names.append(found["name"].lower())
    return names


def unquoted(word: str) -> str:
    """The value of a double-quoted word as ``ENV`` and ``LABEL`` keep it.

    By the builder's rules for words (BuildKit ``shell/lex.go``): a backslash keeps the next of
    ``"``, ``$`` and backslash; a bare ``$`` would expand. Raises ValueError where it would.
    """
    if len(word) < 2 or word[0] != '"' or word[-1] != '"':
        raise ValueError(f"not one double-quoted word: {word!r}")
    value, rest = "", word[1:-1]
    while rest:
        if rest[0] == "\\" and rest[1:2] in {'"', "$", "\\"}:
            value, rest = value + rest[1], rest[2:]
        elif rest[0] in {'"', "$"}:
            raise ValueError(f"the builder would read {rest[0]} in {word!r}")
        else:
            value, rest = value + rest[0], rest[1:]
    return value
