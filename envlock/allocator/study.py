"""Everything ``envlock memory`` says about one recorded run, as one JSON object.

Bytes are whole numbers. ``validated`` is true only where recordings of a real GPU cover what a
figure depends on; ``reason`` says what it rests on in either case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from packaging.version import Version

from envlock.allocator.history import History, RecordedOom
from envlock.allocator.replay import decisions_right, replay, score
from envlock.allocator.rules import NEWEST, Rules, Ties, rules_for
from envlock.allocator.segments import OutOfDeviceMemoryError
from envlock.allocator.settings import Settings, parse_settings
from envlock.allocator.timeline import Timeline, largest_alive, trace_memory
from envlock.allocator.validation import validation_of
from envlock.allocator.whatif import Workload, need, oom_capacity, oom_workload, run_on, workload
from envlock.errors import InputError

SCHEMA: Final = "envlock-memory/1"

CANDIDATES: Final = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "roundup_power2_divisions:8",
)
"""Settings that are tried unasked, as far as the release knows them."""

_MOST_OOMS: Final = 3
"""Failures that are explained; a program that catches hundreds fails for the same reason."""

_MOST_PLACES: Final = 100_000
"""Allocations whose places are compared too; of more, decisions say enough, in half the time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    torch: Version | None = None
    """The release that made the recording, if it is known; the newest known one otherwise."""
    settings: tuple[str, ...] = ()
    """More allocator settings to try."""
    card: int | None = None
    """Bytes of the card that is asked about."""
    outside: int = 0
    """Bytes of that card that are not the allocator's: context, libraries, other processes."""

    @property
    def release(self) -> Version:
        return self.torch or NEWEST


def study(histories: Sequence[History], question: Question) -> dict[str, Any]:
    """Answer a question about each card of a recording.

    Raises InputError for settings that the release does not know.
    """
    for text in question.settings:
        parse_settings(text, question.release)
    try:
        cards = [_study_card(history, question) for history in histories]
    except OutOfDeviceMemoryError as error:
        raise InputError(
            f"the run asks for more memory than any card has ({error})",
            hint="see that no memory fraction of 0 is set",
        ) from error
    return {
        "schema": SCHEMA,
        "torch": str(question.release),
        "torch_known": question.torch is not None,
        "card": question.card,
        "outside": question.outside,
        "cards": cards,
    }


def _study_card(history: History, question: Question) -> dict[str, Any]:
    rules = rules_for(question.release)
    if question.torch is None:  # unknown: most recordings are from before ties went by age
        rules = replace(rules, ties=Ties.ADDRESS)
    settings, settings_note = _recorded_settings(history, question.release)
    sizes, agreement = _compare(history, rules, settings)
    timeline = trace_memory(history, sizes)
    peak = timeline.peak.operation
    texts = _texts(history, question)
    work = workload(history, settings=len(texts), around=peak)
    return {
        "source": history.source,
        "device": history.device,
        "operations": len(history.operations),
        "allocations": history.allocations,
        "streams": len({context.stream for context in history.contexts}),
        "settings": history.settings_text,
        "settings_note": settings_note,
        "estimate": history.estimate or None,
        "start": {
            "blocks": len(history.start_requests),
            "reserved": history.start_reserved,
            "unknown": history.start_unknown or None,
        },
        "agreement": agreement,
        "peak": _peak(timeline),
        "timeline": [asdict(point) for point in timeline.points],
        "largest": [asdict(one) for one in largest_alive(history, sizes, peak)],
        "settings_tried": [_tried(work, rules, text, question) for text in texts],
        "ooms": [_oom(history, rules, oom, texts, question) for oom in history.ooms[:_MOST_OOMS]],
    }


def _recorded_settings(history: History, torch: Version) -> tuple[Settings, str | None]:
    if not history.settings_text:
        return Settings(), None
    try:
        return parse_settings(history.settings_text, torch), None
    except InputError as error:
        return Settings(), f"the recorded settings were not understood: {error.message}"


def _compare(
    history: History, rules: Rules, settings: Settings
) -> tuple[dict[int, int], dict[str, Any]]:
    """What blocks really took, and how often the model decided as the recorded allocator did."""
    sizes = {one.block: one.size for segment in history.start for one in segment.blocks}
    if history.start_unknown or settings.backend != "native":
        return sizes, {"compared": False, "reason": history.start_unknown or settings.backend}
    # limits are shares of a card whose size the recording does not say
    # pages of expandable segments come in portions that have no counterpart here
    with_places = not settings.expandable and history.allocations <= _MOST_PLACES
    found = replay(
        history,
        rules,
        replace(settings, fraction=None, throw_early=False),
        name_places=with_places,
    )
    sizes.update(zip(found.blocks, found.sizes, strict=True))
    if not history.decisions.placed:
        return sizes, {"compared": False, "reason": "the file holds no decisions of an allocator"}
    return sizes, {
        "compared": True,
        "allocations": len(found.blocks),
        "decisions_right": decisions_right(history, found),
        "placements_right": score(history, found).placements_right if with_places else None,
        "peak_reserved": found.peak_reserved,
    }


def _peak(timeline: Timeline) -> dict[str, Any]:
    return {
        **asdict(timeline.peak),
        "fragmentation": round(timeline.fragmentation, 4),
        "peak_reserved": timeline.peak_reserved,
    }


def _texts(history: History, question: Question) -> list[str]:
    """The recorded settings first, then what the user asked about, then the candidates."""
    texts: list[str] = []
    for text in (history.settings_text or "", *question.settings, *CANDIDATES):
        if text in texts:
            continue
        try:
            if parse_settings(text, question.release).backend == "native":
                texts.append(text)
        except InputError:
            continue
    return texts


def _tried(work: Workload, rules: Rules, text: str, question: Question) -> dict[str, Any]:
    settings = parse_settings(text, question.release)
    found = need(work, rules, settings)
    answer: dict[str, Any] = {
        "settings": text,
        "peak_reserved": found.peak_reserved,
        "smallest": found.smallest,
        "smallest_card": found.smallest + question.outside,
        "retries": found.retries,
        "validated": found.validation.validated,
        "reason": found.validation.reason,
    }
    if question.card is not None:
        answer["on_card"] = asdict(
            run_on(work, rules, settings, max(question.card - question.outside, 0))
        )
    return answer


def _oom(
    history: History, rules: Rules, oom: RecordedOom, texts: Sequence[str], question: Question
) -> dict[str, Any]:
    """Would a setting have served the allocation that failed, with the memory there was?"""
    capacity = oom_capacity(history, oom)
    work = oom_workload(history, oom)
    tried = []
    for text in texts:
        settings = parse_settings(text, question.release)
        outcome = run_on(work, rules, settings, capacity)
        validation = validation_of(
            settings, rules, work.contexts, retries=outcome.retries, caveats=work.caveats
        )
        tried.append(
            {"settings": text, "avoided": outcome.finished, "retries": outcome.retries}
            | asdict(validation)
        )
    return {
        "operation": oom.operation,
        "requested": oom.requested,
        "device_free": oom.device_free,
        "capacity": capacity,
        "tried": tried,
    }
