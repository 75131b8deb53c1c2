"""Everything that is known of an environment, as a lock. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envlock import __version__
from envlock.lock.digest import lock_id, machine_id
from envlock.lock.image_env import may_set
from envlock.lock.io import with_end
from envlock.lock.model import End, EnvlockTable, ImageTable, Lock, Resolved
from envlock.lock.observation import Absent, Observation, Unknown, value_of


def make_lock(
    observed: Observation, found: Resolved | None, behaviour: Mapping[str, Any] | None = None
) -> Lock:
    """``found`` None: nothing was looked for, and the lock says so."""
    env = image_env(observed)
    artifacts = found or Resolved(packages=(), left_out=(), hosts={})
    table = EnvlockTable(
        envlock=__version__,
        id=lock_id(observed, env),
        machine_id=machine_id(observed),
        resolved=found is not None,
        left_out=list(artifacts.left_out),
        sources=dict(sorted(artifacts.hosts.items())),
        image=ImageTable(env=env),
        observed=observed,
        behaviour=dict(behaviour or {}),
        end=End(packages=0),
    )
    return Lock(
        requires_python=_requires_python(observed),
        packages=artifacts.packages,
        table=with_end(table, artifacts.packages),
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
