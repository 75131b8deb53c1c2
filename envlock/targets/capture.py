"""From a target to a lock: observe, measure if asked, find artifacts, give it its identity.

Light to import: the models load while the target answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envlock.targets.base import Target
from envlock.targets.references import Reading, observe_in, open_target

if TYPE_CHECKING:
    from envlock.lock.model import Lock
    from envlock.lock.pip_config import Sources


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOptions:
    sources: Sources | None
    """None: offline. Nothing is resolved, and the lock says so."""
    smoke: bool = False


def capture_lock(reference: str, reading: Reading, options: LockOptions) -> Lock:
    """Raises TargetError when it cannot be read, or its packages cannot be resolved."""
    with open_target(reference, reading) as target:
        observed = observe_in(target, reading)
        behaviour = _measured(target, reading) if options.smoke else None
    from envlock.lock.make import make_lock  # noqa: PLC0415

    if options.sources is None:
        return make_lock(observed, None, behaviour)
    from envlock.lock.resolve import resolve  # noqa: PLC0415

    return make_lock(observed, resolve(observed, options.sources, reading.say), behaviour)


def _measured(target: Target, reading: Reading) -> dict[str, Any]:
    from envlock.targets.smoke import measure_devices  # noqa: PLC0415

    record = measure_devices(target, progress=reading.say)
    return record.plain()
