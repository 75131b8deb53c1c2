"""From a target to a lock: observe, find artifacts, give it its identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from envlock import __version__
from envlock.lock.behaviour import Behaviour
from envlock.lock.digest import lock_id, machine_id
from envlock.lock.image_env import may_set
from envlock.lock.io import with_end
from envlock.lock.model import End, EnvlockTable, ImageTable, Lock
from envlock.lock.observation import Absent, Observation, Unknown, value_of
from envlock.lock.resolve import Resolved, Sources, resolve
from envlock.targets.references import Reading, observe_in, open_target
from envlock.targets.smoke import measure

NOT_RESOLVED = Resolved(packages=(), left_out=(), hosts={})


@dataclass(frozen=True, kw_only=True, slots=True)
class LockOptions:
    sources: Sources | None
    """None: offline. Nothing is resolved, and the lock says so."""
    smoke: bool = False


def capture_lock(reference: str, reading: Reading, options: LockOptions) -> Lock:
    """Observe a live environment, measure it if asked, and lock it.

    Raises TargetError when it cannot be read, or its packages cannot be resolved.
    """
    with open_target(reference, reading) as target:
        observed = observe_in(target, reading)
        behaviour = Behaviour(cpu=measure(target, progress=reading.say)) if options.smoke else None
    lock = lock_of(observed, options, reading.say)
    return replace(lock, table=lock.table.model_copy(update={"behaviour": behaviour}))


def lock_of(observed: Observation, options: LockOptions, say: Callable[[str], None]) -> Lock:
    """A lock of what was observed. Raises TargetError when it cannot be resolved."""
    env = image_env(observed)
    found = NOT_RESOLVED
    if options.sources is not None:
        found = resolve(observed, options.sources, say)
    table = EnvlockTable(
        envlock=__version__,
        id=lock_id(observed, env),
        machine_id=machine_id(observed),
        resolved=options.sources is not None,
        left_out=list(found.left_out),
        sources=dict(sorted(found.hosts.items())),
        image=ImageTable(env=env),
        observed=observed,
        end=End(packages=0),
    )
    return Lock(
        requires_python=_requires_python(observed),
        packages=found.packages,
        table=with_end(table, found.packages),
    )


def image_env(observed: Observation) -> dict[str, str]:
    """The variables of this environment that an image of it sets as well."""
    if isinstance(observed.env, Absent | Unknown):
        return {}
    pinned = {path.partition("env.")[2] for path in observed.set_by_envlock}
    return {
        name: value
        for name, fact in sorted(observed.env.items())
        if (value := value_of(fact)) is not None
        and may_set(name)
        and name not in pinned
        and value.isascii()
        and value.isprintable()
        and not _names_a_place(value)
    }


def _names_a_place(value: str) -> bool:
    """A path of one machine means nothing in an image."""
    return "/" in value or "~" in value or "\\" in value


def _requires_python(observed: Observation) -> str:
    version = value_of(observed.find("python.version"))
    if not isinstance(version, str):
        return ""
    major, minor = version.split(".")[:2]
    return f"=={major}.{minor}.*"
