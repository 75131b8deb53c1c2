"""Lists that serve several systems at once, read for one: Linux on x86_64.

What another system alone would get is left out; what depends on more (the Python version, extras,
groups) is unknown.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass, field

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName

from envlock.lock.strict import shown
from envlock.targets.texts.tree import Tree, unknown

_LINUX = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
    "extra": "",
}
_PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
_MARKER_LIMIT = 1024


@functools.lru_cache(maxsize=4096)
def holds(marker: str) -> bool | None:
    """Whether a marker holds on Linux x86_64; None where that alone does not decide it."""
    if len(marker) > _MARKER_LIMIT or "extra" in marker or "dependency_groups" in marker:
        return None
    try:
        parsed = Marker(marker)
        answers = {
            parsed.evaluate({**_LINUX, "python_version": v, "python_full_version": f"{v}.0"})
            for v in _PYTHONS
        }
    except (InvalidMarker, UndefinedEnvironmentName, RecursionError):
        return None
    return answers.pop() if len(answers) == 1 else None


@dataclass(slots=True)
class Choices:
    """The versions of each name: those that are surely installed, and those that may be."""

    certain: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    possible: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, name: str, version: object, *, certain: bool) -> None:
        """``version`` may be missing, where a package is built from source."""
        names = self.certain if certain else self.possible
        names[name].add(version if isinstance(version, str) else "")

    def names(self) -> list[str]:
        return sorted(self.certain.keys() | self.possible.keys())

    def version(self, name: str) -> str | Tree:
        certain = self.certain.get(name, set())
        versions = sorted(certain | self.possible.get(name, set()))
        if versions == [""]:
            return unknown("the lock gives no version, since it is built from source")
        if len(versions) > 1:
            return unknown(f"one of {shown(versions)}, by system or Python version")
        if not certain:
            return unknown(f"{versions[0]}, only with some extra, group or Python version")
        return versions[0]
