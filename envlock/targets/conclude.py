"""What follows from a probe's answer: an Observation, checked, redacted and completed.

The answer is untrusted: it is validated against the model, and a second redaction pass stands
behind the one in the probe. Imported while the probe runs: the models take as long to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.markers import Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envlock.errors import TargetError
from envlock.lock.observation import Observation
from envlock.lock.shape import ShapeError
from envlock.lock.strict import spot
from envlock.redact import redact
from envlock.targets import deep_cache
from envlock.targets.base import Target

_SEEDS = ("pip", "setuptools", "wheel")

Json = dict[str, Any]


def conclude(answer: Json, deep: Json | None, target: Target) -> Observation:
    """``answer`` of the probe ``observe`` and ``deep`` of ``observe_torch``, if that ran.

    Without ``deep``, build facts of an earlier deep look at the same torch are added. Raises
    TargetError.
    """
    observed = _table(answer.get("observed"), target)
    requirements = _Requirements.of(answer)
    observed["seeds"] = requirements.seeds(observed)
    observed["unmet"] = requirements.unmet()
    observed["set_by_envlock"] = list(target.set_by_envlock)
    if deep is None:
        deep_cache.add(observed)
    else:
        found = _table(deep.get("observed"), target)
        deep_cache.save(observed, found)
        deep_cache.merge(observed, found)
    return _validated(_redacted(observed), target)


def _table(raw: object, target: Target) -> Json:
    if not isinstance(raw, dict):
        raise TargetError(
            f"{target.describe()}: the probe's answer holds no observation",
            hint="something else answered in its place",
        )
    return dict(raw)


def _validated(observed: Json, target: Target) -> Observation:
    try:
        return Observation.read(observed)
    except ShapeError as error:
        raise TargetError(
            f"{target.describe()}: the probe's answer is not an observation: "
            f"{spot(['observed', *error.path])}: {error.what}",
            hint="the answer was changed on its way, or something else gave it",
        ) from error


def _redacted(value: Any) -> Any:
    """A net behind the probe's own redaction; package names and other keys have a grammar."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class _Requirements:
    """Who requires what, with the markers evaluated for the target's Python."""

    versions: Mapping[str, str]
    requires: Mapping[str, Sequence[Requirement]]

    @classmethod
    def of(cls, answer: Json) -> _Requirements:
        markers = {k: v for k, v in _mapping(answer.get("markers")).items() if isinstance(v, str)}
        packages = _mapping(_mapping(answer.get("observed")).get("packages"))
        versions = {
            name: package["version"]
            for name, package in packages.items()
            if isinstance(package, dict) and isinstance(package.get("version"), str)
        }
        requires = {
            name: [r for r in map(_parsed, texts) if r and _applies(r.marker, markers)]
            for name, texts in _mapping(answer.get("requires")).items()
            if isinstance(texts, list)
        }
        return cls(versions=versions, requires=requires)

    def seeds(self, observed: Json) -> dict[str, str]:
        """Take what venv and its like put in out of ``packages``.

        pip always; setuptools and wheel where nothing else that is installed requires them.
        """
        packages = observed.get("packages")
        if not isinstance(packages, dict):
            return {}
        needed = {
            canonicalize_name(requirement.name)
            for name, requirements in self.requires.items()
            if name not in _SEEDS
            for requirement in requirements
        }
        found = {
            name: self.versions[name]
            for name in _SEEDS
            if name in self.versions and (name == "pip" or name not in needed)
        }
        observed["packages"] = {k: v for k, v in packages.items() if k not in found}
        return found

    def unmet(self) -> list[Json]:
        """Requirements that what is installed does not meet, as ``pip check`` finds them."""
        faults: list[Json] = []
        for name, requirements in sorted(self.requires.items()):
            for requirement in requirements:
                installed = self.versions.get(canonicalize_name(requirement.name))
                if installed is None or not _meets(installed, requirement):
                    faults.append(
                        {
                            "distribution": name,
                            "requirement": str(requirement),
                            "installed": {"absent": True} if installed is None else installed,
                        }
                    )
        return faults


def _mapping(raw: object) -> Json:
    return raw if isinstance(raw, dict) else {}


def _parsed(text: object) -> Requirement | None:
    """None for what old tools wrote and the grammar does not know; pip passes it over as well."""
    try:
        return Requirement(str(text))
    except InvalidRequirement:
        return None


def _applies(marker: Marker | None, markers: Mapping[str, str]) -> bool:
    try:
        return marker is None or marker.evaluate({**markers, "extra": ""})
    except (UndefinedComparison, UndefinedEnvironmentName, InvalidVersion):
        return False  # no installer could have read it either


def _meets(installed: str, requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(Version(installed), prereleases=True)
    except InvalidVersion:
        return not requirement.specifier
