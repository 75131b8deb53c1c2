"""From a target to an Observation: run the probes, and work out what follows from their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from envlock.redact import safe_text
from envlock.targets.base import ProbeCall, ProgressLines, Target

if TYPE_CHECKING:
    from envlock.lock.observation import Observation

OBSERVE_TIMEOUT_S = 60.0
DEEP_TIMEOUT_S = 120.0
"""Importing torch from a cold network disk takes a minute."""
CHECK_FILES_TIMEOUT_S = 3600.0


def observe(  # noqa: PLR0913 - keyword-only, all but the first with a default
    target: Target,
    *,
    deep: bool = False,
    check_files: bool = False,
    preflight: bool = False,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Observation:
    """What is seen in ``target``.

    ``deep`` imports torch there. ``preflight`` reads what a long run needs: disks, compile caches,
    what each GPU does now. ``progress`` is told how many bytes of how many were checked, ``say``
    what was odd on the way. Raises TargetError.
    """
    flags = (("--check-files", check_files), ("--gpu-state", preflight))
    call = ProbeCall(
        probe="observe",
        arguments=[flag for flag, wanted in flags if wanted],
        timeout_s=CHECK_FILES_TIMEOUT_S if check_files else OBSERVE_TIMEOUT_S,
        on_stderr=ProgressLines(progress) if progress else None,
        meanwhile=_load_models,
    )
    answer = target.run_probe(call)
    if say is not None:
        for note in _notes(answer.get("notes")):
            say(f"note: {target.describe()}: {note}")
    deep_call = ProbeCall(probe="observe_torch", timeout_s=DEEP_TIMEOUT_S)
    deep_answer = target.run_probe(deep_call) if deep else None
    if preflight and isinstance(answer.get("observed"), dict):
        more = target.run_probe(ProbeCall(probe="observe_preflight"))
        answer["observed"]["preflight"] = more.get("preflight")
    from envlock.targets.conclude import conclude  # noqa: PLC0415

    return conclude(answer, deep_answer, target)


def _notes(raw: object) -> list[str]:
    """The probe's remarks, from an answer that may hold anything in their place."""
    notes = raw if isinstance(raw, list) else []
    return [safe_text(one, lines=1, width=300) for one in notes[:8] if isinstance(one, str)]


def _load_models() -> None:
    """What the answer will need, loaded on this core while the probe has another."""
    import envlock.lock.layout  # noqa: PLC0415
    import envlock.lock.make  # noqa: PLC0415
    import envlock.targets.conclude  # noqa: F401, PLC0415
