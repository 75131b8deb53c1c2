"""Error messages and the facts that explain them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from envlock.facts.tables import Confidence, rows


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorMessage:
    id: str
    fragments: tuple[str, ...]
    raised_by: str
    causes: tuple[str, ...]
    proving_facts: tuple[str, ...]
    remedies: tuple[str, ...]
    confidence: Confidence
    source: tuple[str, ...]


def _message(row: dict[str, Any]) -> ErrorMessage:
    return ErrorMessage(
        id=row["id"],
        fragments=tuple(row["message_fragments"]),
        raised_by=row["raised_by"],
        causes=tuple(row["causes"]),
        proving_facts=tuple(row["proving_facts"]),
        remedies=tuple(row["remedies"]),
        confidence=row["confidence"],
        source=tuple(row["source"]),
    )


@functools.cache
def error_messages() -> tuple[ErrorMessage, ...]:
    return tuple(_message(row) for row in rows("errors"))


def explain_error(text: str) -> tuple[ErrorMessage, ...]:
    """The known messages that a traceback or log holds, the one with the longest match first."""
    folded = text.casefold()
    hits = [
        (max((len(f) for f in message.fragments if f.casefold() in folded), default=0), message)
        for message in error_messages()
    ]
    found = sorted((hit for hit in hits if hit[0]), key=lambda hit: -hit[0])
    return tuple(message for _, message in found)
