"""Identities: of an environment, of a machine. ``docs/id.md`` lists field by field what is in.

A digest is over an explicit, versioned projection, never over a dumped model: a new field must not
change an old id. Times, paths, URLs and the machine are not part of an environment's identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from envlock.lock.observation import Absent, Model, Observation, Unknown

SHORT = 12
"""Hex digits of the short form."""


def lock_id(observed: Observation, image_env: Mapping[str, str]) -> str:
    """``envlock:v1:<sha256>``: equal for the same environment on any day and any machine."""
    packages = observed.packages
    return "envlock:v1:" + _sha256(
        {
            "python": _pick(observed, "python", ("version", "implementation", "abi")),
            "torch": _pick(observed, "torch", ("version", "cuda", "hip", "git")),
            "packages": _plain(packages)
            if isinstance(packages, Absent | Unknown)
            else {
                name: [_plain(package.version), _plain(package.record)]
                for name, package in packages.items()
            },
            "env": dict(image_env),
        }
    )


def machine_id(observed: Observation) -> str:
    """``envlock-machine:v1:<sha256>`` over driver, GPUs, kernel and limits."""
    gpus = observed.gpus
    return "envlock-machine:v1:" + _sha256(
        {
            "driver": _pick(observed, "driver", ("version", "kernel_module", "cuda")),
            "gpus": _plain(gpus)
            if isinstance(gpus, Absent | Unknown)
            else [
                [_plain(g.name), _plain(g.compute_capability), _plain(g.memory_bytes)] for g in gpus
            ],
            "system": _pick(observed, "system", ("kernel", "arch", "cpu", "cores", "memory_bytes")),
            "limits": _pick(observed, "limits", ("cgroup_memory_bytes", "cpu_quota", "shm_bytes")),
        }
    )


def short(identity: str) -> str:
    return identity.rpartition(":")[2][:SHORT]


def _pick(observed: Observation, section: str, fields: tuple[str, ...]) -> Any:
    fact = getattr(observed, section)
    if isinstance(fact, Absent | Unknown):
        return _plain(fact)
    return [_plain(getattr(fact, field)) for field in fields]


def _plain(fact: Any) -> Any:
    """Why a fact is unknown is not part of an identity, that it is unknown is."""
    if isinstance(fact, Absent):
        return {"absent": True}
    if isinstance(fact, Unknown):
        return {"unknown": True}
    return fact.plain() if isinstance(fact, Model) else fact


def _sha256(projection: Mapping[str, Any]) -> str:
    text = json.dumps(projection, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
