"""A traceback or error message moves its cause to the top."""

from __future__ import annotations

from dataclasses import replace

from envlock.diff.judge import Judgement
from envlock.facts import ErrorMessage, explain_error
from envlock.findings import Finding
from envlock.rules.errors import CAUSES, KNOWN_ERROR, UNKNOWN_ERROR


def led_by_error(judgement: Judgement, text: str) -> Judgement:
    """The same findings, with those first that cause the error in ``text``.

    A cause that is folded under another finding brings that finding along: it is what to repair.
    """
    messages = explain_error(text)
    if not messages:
        unknown = Finding(
            code=UNKNOWN_ERROR.code,
            severity=UNKNOWN_ERROR.severity,
            subject="error",
            message="The given text holds no error message that envlock knows.",
            hint="give the whole traceback, above all its last lines",
        )
        return replace(judgement, findings=(unknown, *judgement.findings))
    causes = [code for message in messages for code in CAUSES.get(message.id, ())]
    place = {code: index for index, code in reversed(list(enumerate(causes)))}

    def rank(finding: Finding) -> int:
        told = (finding, *finding.folded)
        return min(place.get(f.code, len(causes)) for f in told)

    first = sorted((f for f in judgement.findings if rank(f) < len(causes)), key=rank)
    rest = [f for f in judgement.findings if rank(f) == len(causes)]
    if not first:
        first = [_unexplained(messages[0])]
    return replace(judgement, findings=(*first, *rest))


def _unexplained(message: ErrorMessage) -> Finding:
    return Finding(
        code=KNOWN_ERROR.code,
        severity=KNOWN_ERROR.severity,
        subject="error",
        message=f"{message.fragments[0]!r} ({message.raised_by}): {'; '.join(message.causes)}. "
        f"No finding explains it here; these facts would: {', '.join(message.proving_facts)}.",
        hint="; or ".join(message.remedies),
        sources=message.source,
    )
