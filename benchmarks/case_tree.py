"""The tree of an observation while a case is read, and the case's key behind each fact."""

from __future__ import annotations

import re
from typing import Any

from envlock.lock.observation import Observation

ABSENT = {"absent": True}
MIB = 2**20
Json = dict[str, Any]


class Translation:
    """The tree of an observation, and the case's key behind each of its facts."""

    def __init__(self, tree: Json) -> None:
        self.tree = tree
        self.keys: dict[str, str] = {}
        """Dotted path in the observation -> dotted key in the case, without ``a.``."""

    def put(self, key: str, path: tuple[str, ...], value: Any) -> None:
        """Record a fact; None is absent."""
        node = self.tree
        for part in path[:-1]:
            below = node.get(part)
            if not isinstance(below, dict) or below.keys() & {"absent", "unknown"}:
                below = node[part] = {}
            node = below
        node[path[-1]] = dict(ABSENT) if value is None else value
        self.keys[".".join(path)] = key

    def gpu(self, key: str, index: int, field: str, value: Any) -> None:
        gpus = self.tree.get("gpus")
        if not isinstance(gpus, list):
            gpus = self.tree["gpus"] = []
        while len(gpus) <= index:
            gpus.append({})
        gpus[index][field] = value
        self.keys[f"gpus.{index}.{field}"] = key

    def append(self, key: str, path: str, value: Any) -> None:
        table = self.tree.setdefault(path, [])
        table.append(value)
        self.keys[f"{path}.{len(table) - 1}"] = key

    def key_of(self, path: str) -> str | None:
        """The case's key for a path of a finding's evidence, wider or narrower ones included."""
        if path in self.keys:
            return self.keys[path]
        for known, key in sorted(self.keys.items(), key=lambda item: -len(item[0])):
            if known.startswith(f"{path}.") or path.startswith(f"{known}."):
                return key
        return None

    def observation(self) -> Observation:
        return Observation.read(self.tree)


def is_version(text: str) -> bool:
    return bool(re.match(r"\d", text))


def version_or_unknown(text: Any) -> Any:
    """A version, or unknown where the thread only says that it is there."""
    return text if isinstance(text, str) and is_version(text) else {"unknown": str(text)[:200]}
