"""Which way an image is built, and why: by assembling, or a Dockerfile by Docker or by Buildah."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from envlock.errors import TargetError, UsageError
from envlock.image.choices import EngineChoice
from envlock.image.options import BuildOptions
from envlock.image.output import Kind, Output
from envlock.targets.engine import Engine
from envlock.targets.process import find_program

_NEITHER = "start a Docker Engine, or install buildah, which needs no daemon"


class Way(Enum):
    ASSEMBLER = "assembling from wheel files, nothing is run"
    DOCKER = "building a Dockerfile by Docker"
    BUILDAH = "building a Dockerfile by Buildah"


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    way: Way
    why: str
    output: Output


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Which engines this machine has. Each raises TargetError that says why it has not."""

    docker: Callable[[], object] = Engine.connect
    buildah: Callable[[], object] = lambda: find_program("buildah", hint=_NEITHER)


def choose(options: BuildOptions, needs: Sequence[str], machine: Machine) -> Chosen:
    """``needs``: what only a Dockerfile can do. Raises UsageError, or TargetError without an engine."""
    way, why = _way(options, needs, machine)
    usual = Kind.STORAGE if way is Way.BUILDAH else Kind.DOCKER
    output = options.output or Output(kind=usual)
    if options.engine is EngineChoice.NONE and output.kind is Kind.DOCKER:
        raise UsageError(
            "--engine none: there is no engine to put the image into",
            hint="say where to: -o oci:FOLDER or -o docker-archive:FILE",
        )
    if output.kind is Kind.STORAGE and options.tag is None:
        raise UsageError(
            "an image in containers-storage needs a name, or nobody finds it again",
            hint="give one with -t, or write the image elsewhere: -o oci:FOLDER",
        )
    return Chosen(way=way, why=why, output=output)


def _way(options: BuildOptions, needs: Sequence[str], machine: Machine) -> tuple[Way, str]:
    match options.engine:
        case EngineChoice.DOCKER:
            return Way.DOCKER, "--engine docker"
        case EngineChoice.BUILDAH:
            machine.buildah()
            return Way.BUILDAH, "--engine buildah"
        case EngineChoice.NONE if needs:
            raise UsageError(
                f"--engine none cannot build this: {'; '.join(needs)}",
                hint="leave --engine none away, or name one: --engine buildah needs no daemon",
            )
        case EngineChoice.AUTO if needs:
            return _by_engine("; ".join(needs), machine)
    return Way.ASSEMBLER, "every package is a wheel"


def check_sources(way: Way, os_packages: Sequence[str]) -> None:
    """What is built from source must not fetch what no lock names. Raises UsageError where it could."""
    if way is Way.BUILDAH:
        raise UsageError(
            "Buildah without a daemon cannot cut a step off from the network, and what is built "
            "from source could fetch anything",
            hint="start a Docker Engine for it; or build the wheels once, and capture again with "
            "--wheelhouse DIR",
        )
    if os_packages:
        raise UsageError(
            "packages of the distribution need the network during the build, and what is built "
            "from source must not have it",
            hint="build the wheels once, and capture again with --wheelhouse DIR",
        )


def _by_engine(why: str, machine: Machine) -> tuple[Way, str]:
    try:
        machine.docker()
    except TargetError as error:
        no_docker = error.message
    else:
        return Way.DOCKER, f"{why}; a Docker Engine answers"
    try:
        machine.buildah()
    except TargetError as error:
        raise TargetError(
            f"nothing here can build a Dockerfile, which is needed: {why}\n"
            f"Docker: {no_docker}\nBuildah: it is not on PATH",
            hint=_NEITHER,
        ) from error
    return Way.BUILDAH, f"{why}; no Docker Engine answers, Buildah needs none"
