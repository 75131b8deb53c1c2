"""Build facts of a torch that a ``--deep`` look found, kept for later fast captures.

The key is torch's RECORD digest, so an answer never outlives the torch it came from. Only what the
build decides is kept: switches, threads and availability also depend on variables and the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from envlock.errors import EnvlockError
from envlock.lock import files
from envlock.lock.observation import Component, Model, Torch
from envlock.lock.shape import ShapeError

Json = dict[str, Any]

_OF_THE_BUILD: dict[str, tuple[type[Model], tuple[str, ...]]] = {
    "torch": (Torch, ("arch_list", "config", "cxx11_abi")),
    "cudnn": (Component, ("compiled",)),
    "nccl": (Component, ("compiled",)),
}
_DIGEST = re.compile(r"^sha256:([0-9a-f]{64})$")


def merge(observed: Json, found: Json) -> None:
    """Lay what the deep look found over what was read without importing torch.

    What the deep look could not tell never hides what the other one could.
    """
    for section, facts in found.items():
        base = observed.get(section)
        if not _is_table(facts):
            if not _is_table(base):
                observed[section] = facts
            continue
        merged = dict(base) if isinstance(base, dict) and _is_table(base) else {}
        for name, fact in facts.items():
            if name not in merged or not _is_unknown(fact):
                merged[name] = fact
        observed[section] = merged


def save(observed: Json, found: Json) -> None:
    """Keep the build facts. A folder that cannot be written to costs the next capture a little."""
    path = _path(observed)
    if path is None or not _is_table(found.get("torch")) or "arch_list" not in found["torch"]:
        return
    kept = {
        section: {name: found[section][name] for name in names if name in found[section]}
        for section, (_, names) in _OF_THE_BUILD.items()
        if _is_table(found.get(section))
    }
    with contextlib.suppress(EnvlockError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.save(path, json.dumps(kept, sort_keys=True))


def add(observed: Json) -> None:
    """Add the kept build facts of exactly this torch, if there are any."""
    path = _path(observed)
    if path is None:
        return
    kept = _load(path)
    merge(observed, kept)
    read_from = observed.get("read_from")
    if kept and isinstance(read_from, dict):
        note = "an earlier deep look at the same torch (by RECORD digest)"
        for section, facts in kept.items():
            read_from.update({f"{section}.{name}": note for name in facts})


def _load(path: Path) -> Json:
    """What is kept, or nothing if it is not there or not what this module writes."""
    try:
        kept = json.loads(files.read_bounded(path, limit=1 << 20))
        for section, facts in kept.items():
            model, names = _OF_THE_BUILD[section]
            model.read(facts)
            if not facts.keys() <= set(names):
                return {}
    except (EnvlockError, ValueError, KeyError, AttributeError, ShapeError, RecursionError):
        return {}
    return dict(kept)


def _path(observed: Json) -> Path | None:
    packages = observed.get("packages")
    torch = packages.get("torch") if isinstance(packages, dict) else None
    record = torch.get("record") if isinstance(torch, dict) else None
    found = _DIGEST.match(record) if isinstance(record, str) else None
    folder = cache_folder()
    return None if found is None or folder is None else folder / "deep" / f"{found.group(1)}.json"


def cache_folder() -> Path | None:
    """envlock's folder for what can be found again, or None where there is no home."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "envlock"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises without a home
    if not home.is_absolute():
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "envlock"
    return home / ".cache" / "envlock"


def _is_table(fact: object) -> bool:
    return isinstance(fact, dict) and fact.keys() not in ({"absent"}, {"unknown"})


def _is_unknown(fact: object) -> bool:
    return isinstance(fact, dict) and fact.keys() == {"unknown"}
