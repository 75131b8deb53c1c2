"""What ``envlock memory`` finds in a recorded or traced run, as findings with codes.

Reads the answer of ``envlock.allocator.study`` (``envlock-memory/1``); sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envlock.findings import Finding, JsonValue, Severity
from envlock.rules.base import page

DOES_NOT_FIT = page(
    "EL840",
    Severity.ERROR,
    """
    The recorded run does not finish on a card of this size.

    Its requests and frees were played to a model of the CUDA caching allocator with the memory
    that the card leaves to torch. Freed memory is no help where it is cut up: a request needs one
    block, and blocks of different segments never merge.

    To do: the report names the allocator settings that were tried, and which of them finish; set
    one with PYTORCH_CUDA_ALLOC_CONF. If none does, the run needs less at its peak: a smaller
    batch, checkpointing, or what the list of the largest allocations shows.
    """,
)

ONLY_BY_RETRIES = page(
    "EL841",
    Severity.WARNING,
    """
    The recorded run finishes on this card only because the allocator empties its cache.

    When the driver has nothing left, torch gives every unused segment back and asks again. That
    waits for all kernels, and the next slightly larger batch fails. Another process on the card,
    or libraries that take more than was assumed, have the same effect.

    To do: take the setting with the smallest card, or leave more room.
    """,
)

RECORDED_OOM = page(
    "EL842",
    Severity.INFO,
    """
    The recording holds an allocation that failed for want of memory.

    The model was given what the allocator had of the card at that moment, and the run up to the
    failure under every setting that was tried.

    To do: the setting that would have served it, if the report names one; otherwise less memory at
    the peak.
    """,
)

PAGES = (DOES_NOT_FIT, ONLY_BY_RETRIES, RECORDED_OOM)


def judge_memory(answer: Mapping[str, Any], card: str) -> tuple[Finding, ...]:
    """Findings on every card of a recording; ``card`` is the name of the one asked about."""
    found = [finding for one in answer["cards"] for finding in _on_card(one, answer, card)]
    return tuple(sorted(found, key=lambda finding: finding.severity.rank))


def _on_card(one: Mapping[str, Any], answer: Mapping[str, Any], card: str) -> Iterator[Finding]:
    subject = f"memory.cuda:{one['device']}"
    recorded = one["settings_tried"][0]
    outcome = recorded.get("on_card")
    if outcome is not None and not outcome["finished"]:
        fitting = fitting_settings(one)
        left = size(left_by_card(answer) or 0)
        yield Finding(
            code=DOES_NOT_FIT.code,
            severity=Severity.ERROR,
            subject=subject,
            message=f"The run needs a card with {size(recorded['smallest_card'])} and does not "
            f"finish on {card}, where {left} are left for the allocator. {_rests_on(recorded)}",
            hint=_set(fitting[0]) if fitting else lower_peak(one),
        )
    elif outcome is not None and outcome["retries"]:
        yield Finding(
            code=ONLY_BY_RETRIES.code,
            severity=Severity.WARNING,
            subject=subject,
            message=f"On {card} the cache has to be emptied {outcome['retries']} times for the run "
            f"to finish. {_rests_on(recorded)}",
            hint=_set(smallest_setting(one)),
        )
    for oom in one["ooms"]:
        avoided = [row for row in oom["tried"] if row["avoided"]]
        hint = _set(avoided[0]["settings"]) if avoided else lower_peak(one)
        yield Finding(
            code=RECORDED_OOM.code,
            severity=Severity.INFO,
            subject=subject,
            message=f"An allocation of {size(oom['requested'])} failed where the allocator had "
            f"{size(oom['capacity'])} in all. "
            + (
                "It would have been served under "
                + ", ".join(name_of(row["settings"]) for row in avoided)
                if avoided
                else "None of the settings that were tried would have served it"
            )
            + ".",
            hint=hint,
        )


def left_by_card(answer: Mapping[str, Any]) -> int | None:
    """Bytes that the card asked about leaves to the allocator."""
    return None if answer["card"] is None else max(answer["card"] - answer["outside"], 0)


def fitting_settings(one: Mapping[str, Any]) -> list[str]:
    """The settings under which the run finishes on the card asked about, best first."""
    rows = [row for row in one["settings_tried"] if row.get("on_card", {}).get("finished")]
    return [row["settings"] for row in sorted(rows, key=lambda row: row["smallest_card"])]


def smallest_setting(one: Mapping[str, Any]) -> str:
    rows: Sequence[Mapping[str, Any]] = one["settings_tried"]
    return str(min(rows, key=lambda row: row["smallest_card"])["settings"])


def name_of(settings: str) -> str:
    return settings or "default settings"


def lower_peak(one: Mapping[str, Any]) -> str:
    return (
        f"lower the peak of {size(one['peak']['requested'])}: a smaller batch, checkpointing, or "
        "what the largest allocations at the peak show"
    )


def _set(settings: str) -> str:
    if not settings:
        return "unset PYTORCH_CUDA_ALLOC_CONF"
    return f"export PYTORCH_CUDA_ALLOC_CONF={settings}"


def _rests_on(row: Mapping[str, Any]) -> str:
    return "" if row["validated"] else f"Not validated by a recording: {row['reason']}."


def size(count: int) -> str:
    """Bytes as memory is sold: ``18.5 GiB``."""
    return f"{count / 2**30:.4g} GiB" if count >= 1 << 30 else f"{count / 2**20:.4g} MiB"


def evidence(answer: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The figures for a table of facts, by name."""
    return {
        f"cuda:{one['device']} {row['settings'] or 'default'}": row["smallest_card"]
        for one in answer["cards"]
        for row in one["settings_tried"]
    }
