"""From a lock to every decision about its image. Pure: nothing is fetched, started or written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from packaging.pylock import Package, PackageWheel

from envlock.errors import BuildError, InputError
from envlock.lock.io import is_sealed
from envlock.lock.model import Lock, ManagedPython
from envlock.lock.observation import value_of
from envlock.lock.references import check_reference
from envlock.lock.strict import shown
from envlock.redact import one_line

FORMAT = 1
"""Version of the image's layout; part of what an image id is a function of."""
EPOCH = 315532800
"""1980-01-01, the oldest time that a wheel can hold: the one time of every file and of the image."""
PREFIX = "/opt/env"
LOCK_PATH = "/opt/envlock/pylock.env.toml"
LABEL = "org.envlock"
USER = "10001:10001"
"""Not root, and no user of any host."""

_OS_PACKAGE = re.compile(
    r"[a-z0-9][a-z0-9+.-]{1,99}(?::[a-z0-9]+)?=[A-Za-z0-9][A-Za-z0-9.+:~-]{0,99}", re.ASCII
)
_LINUX = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
    "extra": "",
}
_CUDA_LIBRARIES = re.compile(r"nvidia-.+|cuda-(?:toolkit|bindings|pathfinder)|triton-cuda.*")
_TORCH = frozenset({"torch", "triton", "pytorch-triton", "pytorch-triton-rocm"})


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseSettings:
    """What a base's config says of its containers. Foreign text: shown escaped, never rendered."""

    entrypoint: tuple[str, ...] = ()
    user: str = ""
    """Empty: root."""
    env: Mapping[str, str] = field(default_factory=dict)

    def told(self) -> BaseSettings:
        """The same on one line each, without control characters and secrets that can be told."""
        env = (one_line(f"{name}={value}").partition("=") for name, value in self.env.items())
        return BaseSettings(
            entrypoint=tuple(one_line(word) for word in self.entrypoint),
            user=one_line(self.user),
            env={name: value for name, _, value in env},
        )

    def lines(self) -> list[str]:
        """For the person who waits: what the base has, and what becomes of it in the image."""
        told = self.told()
        entrypoint = " ".join(told.entrypoint)
        return [
            f"base ENTRYPOINT {f'{entrypoint}: the image has none' if entrypoint else 'none'}",
            f"base USER {told.user or 'root'}: the image has {USER}",
            *(f"base ENV {name}={value}" for name, value in told.env.items()),
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """The image that is built upon."""

    reference: str
    """With the digest: what FROM names."""
    name: str
    """Without the digest: what a lock records and a person reads."""
    digest: str
    python: str
    """Path of its interpreter."""
    layers: tuple[str, ...] = ()
    """Diff ids, as far as they are known."""
    settings: BaseSettings = BaseSettings()
    managed: ManagedPython | None = None
    """The Python that was put upon it, as it had not the lock's."""
    origin: str
    """For people: where it came from and why it was taken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """The one file to install for a package."""

    name: str
    version: str
    wheel: PackageWheel

    @property
    def from_source(self) -> bool:
        """Whether its file is no wheel: what is installed has to be built from it first."""
        return not self.wheel.filename.endswith(".whl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    name: str
    packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlan:
    base: Base
    python_version: str
    artifacts: tuple[Artifact, ...]
    layers: tuple[Layer, ...]
    """By how often they change, the one that changes most last."""
    env: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    os_packages: tuple[str, ...] = ()
    workdir: str | None = None
    """Where the user's own project stands and programs start; None: there is no project."""
    prefix: str = PREFIX
    lock_path: str = LOCK_PATH
    user: str = USER

    @property
    def sources(self) -> tuple[Artifact, ...]:
        """What has to be built from source."""
        return tuple(one for one in self.artifacts if one.from_source)


def make_plan(
    lock: Lock, base: Base, os_packages: Sequence[str] = (), *, allow_source: bool = False
) -> BuildPlan:
    """Raises BuildError for a lock that cannot be built, naming what stands in the way."""
    check_reference(base.reference, "image.base")
    wanted = artifacts(lock, allow_source=allow_source)
    return BuildPlan(
        base=base,
        python_version=python_version(lock),
        artifacts=wanted,
        layers=_layers(wanted),
        env=(*runtime_env(lock), *sorted(lock.table.image.env.items())),
        labels=_labels(lock),
        os_packages=tuple(sorted(_os_package(pin) for pin in os_packages)),
    )


def artifacts(lock: Lock, *, allow_source: bool = False) -> tuple[Artifact, ...]:
    """The files that an image of the lock consists of; raises BuildError as make_plan does."""
    check_buildable(lock)
    return tuple(
        _artifact(package, allow_source=allow_source)
        for package in lock.packages
        if _applies(package, lock)
    )


def skipped(lock: Lock) -> tuple[tuple[str, str], ...]:
    """Packages that the image does not get, and the marker that says so."""
    return tuple(
        (package.name, str(package.marker))
        for package in lock.packages
        if not _applies(package, lock)
    )


def _applies(package: Package, lock: Lock) -> bool:
    """Whether a package's marker holds in the image: Linux on x86_64, with the lock's Python."""
    if package.marker is None:
        return True
    version = python_version(lock)
    return package.marker.evaluate(
        {
            **_LINUX,
            "python_version": version.rpartition(".")[0],
            "python_full_version": version,
            "implementation_version": version,
        }
    )


def check_buildable(lock: Lock) -> None:
    table = lock.table
    if not is_sealed(lock):
        raise InputError(
            "tool.envlock.id does not fit what the lock holds: it was edited after the capture",
            hint="capture the environment again",
        )
    if not table.resolved:
        raise BuildError(
            "this lock was captured with --offline: it has no artifacts to install",
            hint="capture again without --offline",
        )
    if table.left_out:
        first = table.left_out[0]
        names = ", ".join(f"{left.name} {left.version}" for left in table.left_out[:8])
        raise BuildError(
            f"{len(table.left_out)} distributions of this lock cannot be installed: {names}\n"
            f"{first.name}: {first.reason}",
            hint=first.next_step,
        )


def python_version(lock: Lock) -> str:
    version = value_of(lock.observed.find("python.version"))
    if not isinstance(version, str) or not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
        raise BuildError(
            f"the lock does not say which Python to use (python.version is {shown(version)})",
            hint="capture the environment again",
        )
    return version


def _artifact(package: Package, *, allow_source: bool) -> Artifact:
    name, version = package.name, str(package.version)
    if package.wheels and package.version is not None:
        return Artifact(name=name, version=version, wheel=package.wheels[0])
    sdist = package.sdist
    if sdist is None or package.version is None:
        raise BuildError(f"{name} has neither a wheel nor a source archive", hint=_own(package))
    if not allow_source:
        raise BuildError(
            f"{name} has no wheel; building from source is not done silently",
            hint=f"allow it (envlock build --allow-source), or {_own(package)}",
        )
    file = PackageWheel(
        name=sdist.filename, url=sdist.url, path=sdist.path, size=sdist.size, hashes=sdist.hashes
    )
    return Artifact(name=name, version=version, wheel=file)


def _own(package: Package) -> str:
    return (
        f"build its wheel (pip wheel --no-deps {package.name}=={package.version}) and "
        "capture again with --wheelhouse DIR"
    )


def _layers(wanted: Sequence[Artifact]) -> tuple[Layer, ...]:
    """By weight and by how often they change. Pure Python comes last: small, and what moves most."""
    sorts: dict[str, list[str]] = {"cuda": [], "torch": [], "compiled": [], "packages": []}
    for artifact in wanted:
        sorts[_sort(artifact)].append(artifact.name)
    return tuple(
        Layer(name=name, packages=tuple(packages))
        for name, packages in sorts.items()
        if packages or name == "packages"  # which also has the environment and the lock
    )


def _sort(artifact: Artifact) -> str:
    if _CUDA_LIBRARIES.fullmatch(artifact.name):
        return "cuda"
    if artifact.name in _TORCH:
        return "torch"
    return "packages" if artifact.wheel.filename.endswith("-any.whl") else "compiled"


def runtime_env(lock: Lock) -> tuple[tuple[str, str], ...]:
    """What the NVIDIA container runtime reads: it refuses a host whose driver is too old.

    Minor version compatibility lets any driver of a CUDA major's first release run the whole
    major (NVIDIA CUDA Compatibility guide), so the first release is the truthful floor.
    """
    cuda = value_of(lock.observed.find("torch.cuda"))
    if not isinstance(cuda, str) or not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", cuda, re.ASCII):
        return ()
    return (
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        ("NVIDIA_REQUIRE_CUDA", f"cuda>={cuda.partition('.')[0]}.0"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
    )


def _labels(lock: Lock) -> tuple[tuple[str, str], ...]:
    return (
        (f"{LABEL}.format", str(FORMAT)),
        (f"{LABEL}.lock.id", lock.table.id),
        (f"{LABEL}.lock.path", LOCK_PATH),
        (f"{LABEL}.python", f"{PREFIX}/bin/python"),
        # Who wrote the lock, not who builds: an image is a function of the lock, not of the day.
        (f"{LABEL}.version", lock.table.envlock),
    )


def _os_package(pin: str) -> str:
    if not _OS_PACKAGE.fullmatch(pin):
        raise InputError(
            f"--apt: not a pinned package: {shown(pin)}", hint="give NAME=VERSION, the exact one"
        )
    return pin
