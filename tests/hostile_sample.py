"""A document that envlock is given to read, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One document to read, and what must come of it."""

    label: str
    data: bytes
    form: str = "lock"
    """``lock``; ``facts``: an observation as JSON; ``text``: a pasted report."""
    refused: bool
    words: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    """Words that must stand in some output, whether it is refused or not."""
    value: object = None
    may_fail: bool = False
    """Refusing it is right too, if the words are said."""
    base: str | None = None
    """Given with ``--base``: the value is no part of the document."""
