"""The facts of a text while they are gathered, in the form in which observations stand in JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envlock.errors import InputError
from envlock.lock.strict import shown
from envlock.redact import redact

Tree = dict[str, Any]

ABSENT: Mapping[str, Any] = {"absent": True}
MAX_PACKAGES = 20_000

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,127}", re.ASCII)
"""Wider than PEP 440: conda's versions and those of old distributions stand in lists as well."""

_EVERYWHERE = ("certifi", "idna", "markupsafe", "packaging", "pip", "six", "typing-extensions")
"""Every environment with torch has one of these; what somebody filtered by a word has none."""


def unknown(reason: str) -> Tree:
    return {"unknown": reason[:400]}


class Packages:
    """``packages`` of an observation; one name may have one version."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._found: dict[str, Tree] = {}

    def add(self, name: str, version: str | Tree, **facts: object) -> None:
        """Raises InputError for a name or version outside its grammar, and for contradictions."""
        key = self.key(name)
        if isinstance(version, str):
            self.check_version(name, version)
        entry: Tree = {"version": version, **facts}
        before = self._found.setdefault(key, entry)
        if before["version"] != version:
            raise InputError(
                f"{self.where}: {key} is listed twice, with version {_words(before['version'])}"
                f" and {_words(version)}",
                hint="give the text of one environment",
            )
        if len(self._found) > MAX_PACKAGES:
            raise InputError(f"{self.where}: too many packages (at most {MAX_PACKAGES})")

    def key(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise InputError(f"{self.where}: {shown(name)} is not the name of a package")
        return canonicalize_name(name)

    def check_version(self, name: str, version: str) -> None:
        if not _VERSION.fullmatch(version):
            raise InputError(f"{self.where}: {name}: {shown(redact(version))} is not a version")

    def get(self, name: str) -> str | None:
        """The version of a distribution, if the text gives one."""
        version = self._found.get(name, {}).get("version")
        return version if isinstance(version, str) else None

    def take(self, name: str) -> str | None:
        """As ``get``, and the distribution is no longer one of these."""
        version = self.get(name)
        if version is not None:
            del self._found[name]
        return version

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def looks_complete(self) -> bool:
        """Whether this lists a whole environment, not what somebody picked from it."""
        return any(name in self._found for name in _EVERYWHERE)

    def tree(self) -> dict[str, Tree]:
        return dict(self._found)


def is_version(text: str) -> bool:
    """Whether a text is a version as PEP 440 has it, in ASCII."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return bool(_VERSION.fullmatch(text))


def free_text(text: str) -> str | Tree:
    """A text from a machine as a fact: without what names a person."""
    clean = redact(" ".join(text.split()))
    return clean if 0 < len(clean) <= 256 else unknown("longer than 256 characters")


def _words(version: object) -> str:
    return version if isinstance(version, str) else "an unknown version"
