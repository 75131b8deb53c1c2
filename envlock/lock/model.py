"""The lock: packages that can be installed, and ``[tool.envlock]``, which says of what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from envlock.lock.fields import Count, Digest, Text
from envlock.lock.observation import NOT_RECORDED, Fact, Model, Observation
from envlock.lock.shape import Matches

if TYPE_CHECKING:
    from packaging.pylock import Package

LOCK_SCHEMA: Literal["envlock-lock/1"] = "envlock-lock/1"

LockId = Annotated[str, Matches("envlock:v1:[0-9a-f]{64}")]
MachineId = Annotated[str, Matches("envlock-machine:v1:[0-9a-f]{64}")]


class LeftOut(Model):
    """A distribution that the lock cannot install."""

    name: Text
    version: Text
    reason: Text
    next_step: Text


class BaseImage(Model):
    """Recorded by the first build; later builds check themselves against it."""

    reference: Text
    digest: Digest
    layers: list[Digest]


class ManagedPython(Model):
    """A standalone build of Python that stands in an image because no base has the lock's."""

    url: Text
    sha256: Annotated[str, Matches("[0-9a-f]{64}")]
    system: Text | None = None
    """The image, with its digest, whose system it stands upon; None: a bootstrapped base's."""


class ImageTable(Model):
    env: dict[Text, Text] = {}
    """The only variables an image sets (``envlock.lock.image_env``)."""
    base: BaseImage | None = None
    python: ManagedPython | None = None
    """None: the base's own is the lock's."""
    id: Digest | None = None
    layers: list[Digest] = []
    """Diff ids of what stands upon the base."""
    engine: Text | None = None
    flavour: Literal["runtime", "devel"] | None = None
    """What ``base`` is for; a lock without it was built as runtime."""


class End(Model):
    """The last table of the file: a lock that was cut off has none."""

    packages: Count


class EnvlockTable(Model):
    """``[tool.envlock]``."""

    schema_: Literal["envlock-lock/1"] = LOCK_SCHEMA
    envlock: Text
    """Version of envlock that wrote it."""
    id: LockId
    machine_id: Fact[MachineId] = NOT_RECORDED
    resolved: bool
    left_out: list[LeftOut] = []
    sources: dict[Text, Text] = {}
    """Package -> host it came from, or ``wheelhouse``."""
    image: ImageTable = ImageTable()
    observed: Observation
    behaviour: dict[Text, Any] = {}
    """``envlock.lock.behaviour.Behaviour`` as data, checked when it was read: most commands have no
    use for it, and its models take longer to load than all others."""
    end: End


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    requires_python: str
    packages: tuple[Package, ...]
    table: EnvlockTable

    @property
    def observed(self) -> Observation:
        return self.table.observed


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """Artifacts for what was observed."""

    packages: tuple[Package, ...]
    left_out: tuple[LeftOut, ...]
    hosts: Mapping[str, str]
    """Package -> host it comes from, or ``wheelhouse``."""


def file_names_only(packages: Sequence[Package]) -> tuple[Package, ...]:
    """The wheelhouse form: each wheel by file name and hash, no place to fetch it from."""
    return tuple(_by_file_name(package) for package in packages)


def _by_file_name(package: Package) -> Package:
    """Sizes go too: an index tells them, a wheelhouse does not, and hashes say more."""
    from packaging.pylock import PackageWheel  # noqa: PLC0415

    wheels = [
        PackageWheel(path=wheel.filename, hashes=_sorted(wheel.hashes))
        for wheel in package.wheels or []
    ]
    sdist = None if wheels else package.sdist
    return replace(package, wheels=wheels or None, sdist=sdist, index=None)


def _sorted(hashes: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(hashes.items()))
