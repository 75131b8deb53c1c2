"""A small valid lock, and ways to change it. Not a test module."""

from __future__ import annotations

import string
from random import Random
from typing import Any

from packaging.pylock import Package, Pylock

from envlock.lock.digest import lock_id, machine_id
from envlock.lock.io import with_end
from envlock.lock.model import End, EnvlockTable, ImageTable, Lock
from envlock.lock.observation import Observation

DIGEST = "0" * 64
_HARMFUL = "\"'\\$`${}#;&|<>()[]*?!~%^=, -+:/@AaZz09_."
_PRINTABLE = [c for c in string.printable if c.isprintable()]


def random_variables(random_: Random) -> dict[str, str]:
    """Variables of an image whose values a careless template would let a builder read."""
    return {
        f"OMP_{''.join(random_.choices(string.ascii_uppercase, k=8))}_{n}": "".join(
            random_.choices(random_.choice([_HARMFUL, _PRINTABLE]), k=random_.randrange(40))
        )
        for n in range(random_.randrange(1, 4))
    }


def observation(**changes: Any) -> Observation:
    """Two packages, torch 2.3.0+cu121 and Python 3.11.2; ``changes`` replace whole sections."""
    tree: dict[str, Any] = {
        "python": {"version": "3.11.2", "implementation": "cpython", "abi": "cp311"},
        "torch": {"version": "2.3.0+cu121", "release": "2.3.0", "local": "cu121", "cuda": "12.1"},
        "system": {"glibc": "2.36", "arch": "x86_64"},
        "packages": {
            "numpy": {"version": "1.26.4", "record": f"sha256:{DIGEST}"},
            "torch": {"version": "2.3.0", "record": f"sha256:{'1' * 64}"},
        },
        "driver": {"absent": True},
        "cudnn": {"unknown": "not looked for"},
        "exhaustive": ["packages"],
    }
    return Observation.read({**tree, **changes})


def wheel(name: str, version: str, **fields: Any) -> dict[str, Any]:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    entry = {"url": f"https://files.example/{file}", "hashes": {"sha256": DIGEST}, **fields}
    return {key: value for key, value in entry.items() if value is not None}


def packages(entries: list[dict[str, Any]]) -> tuple[Package, ...]:
    tree = {"lock-version": "1.0", "created-by": "test", "packages": entries}
    return tuple(Pylock.from_dict(tree).packages)


def lock(observed: Observation | None = None, **table: Any) -> Lock:
    """A lock whose id fits; ``table`` replaces fields of ``[tool.envlock]``."""
    seen = observed or observation()
    env: dict[str, str] = table.pop("env", {})
    entries = packages(
        [
            {"name": "numpy", "version": "1.26.4", "wheels": [wheel("numpy", "1.26.4")]},
            {"name": "torch", "version": "2.3.0", "wheels": [wheel("torch", "2.3.0")]},
        ]
    )
    fields: dict[str, Any] = {
        "envlock": "0.1.0",
        "id": lock_id(seen, env),
        "machine_id": machine_id(seen),
        "resolved": True,
        "image": ImageTable(env=env),
        "observed": seen,
        "end": End(packages=0),
        **table,
    }
    return Lock(
        requires_python="==3.11.*",
        packages=entries,
        table=with_end(EnvlockTable(**fields), entries),
    )
