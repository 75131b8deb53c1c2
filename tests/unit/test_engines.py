"""Which way is taken, and what is said when none can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from envlock.errors import TargetError, UsageError
from envlock.image.base import BaseChoice
from envlock.image.choices import EngineChoice
from envlock.image.engines import Machine, Way, check_sources, choose
from envlock.image.fetch import Shelves
from envlock.image.options import BuildOptions
from envlock.image.output import Kind, Output

APT = ["packages of the distribution are asked for"]
OCI = Output(kind=Kind.OCI, path=Path("x"))


def missing() -> None:
    raise TargetError("it is not here")


def options(
    engine: EngineChoice = EngineChoice.AUTO, output: Output | None = None, tag: str | None = None
) -> BuildOptions:
    shelves = Shelves(folders=[], cache=Path("cache"))
    return BuildOptions(base=BaseChoice(), shelves=shelves, engine=engine, output=output, tag=tag)


BOTH = Machine(docker=lambda: None, buildah=lambda: None)
ONLY_BUILDAH = Machine(docker=missing, buildah=lambda: None)
NEITHER = Machine(docker=missing, buildah=missing)


@pytest.mark.parametrize(
    ("engine", "needs", "machine", "way", "why"),
    [
        (EngineChoice.AUTO, [], NEITHER, Way.ASSEMBLER, "every package is a wheel"),
        (EngineChoice.NONE, [], NEITHER, Way.ASSEMBLER, "every package is a wheel"),
        (EngineChoice.AUTO, APT, BOTH, Way.DOCKER, f"{APT[0]}; a Docker Engine answers"),
        (
            EngineChoice.AUTO,
            APT,
            ONLY_BUILDAH,
            Way.BUILDAH,
            f"{APT[0]}; no Docker Engine answers, Buildah needs none",
        ),
        (EngineChoice.DOCKER, [], BOTH, Way.DOCKER, "--engine docker"),
        (EngineChoice.BUILDAH, [], BOTH, Way.BUILDAH, "--engine buildah"),
    ],
)
def test_the_way_and_why(
    engine: EngineChoice, needs: list[str], machine: Machine, way: Way, why: str
) -> None:
    chosen = choose(options(engine, OCI), needs, machine)
    assert (chosen.way, chosen.why, chosen.output) == (way, why, OCI)


def test_without_any_engine_the_next_step_is_said() -> None:
    with pytest.raises(TargetError, match="Docker: it is not here\nBuildah: ") as caught:
        choose(options(), APT, NEITHER)
    assert caught.value.hint == "start a Docker Engine, or install buildah, which needs no daemon"
    with pytest.raises(TargetError):
        choose(options(EngineChoice.BUILDAH), [], NEITHER)
    with pytest.raises(UsageError, match="--engine none cannot build this: packages of the"):
        choose(options(EngineChoice.NONE, OCI), APT, BOTH)


def test_where_an_image_goes_when_nobody_says() -> None:
    assert choose(options(EngineChoice.DOCKER), [], BOTH).output.kind is Kind.DOCKER
    stored = choose(options(EngineChoice.BUILDAH, tag="a:1"), [], BOTH)
    assert stored.output.kind is Kind.STORAGE
    with pytest.raises(UsageError, match="needs a name"):
        choose(options(EngineChoice.BUILDAH), [], BOTH)
    with pytest.raises(UsageError, match="no engine to put the image into"):
        choose(options(EngineChoice.NONE), [], BOTH)


def test_sources_are_built_only_where_the_network_is_off() -> None:
    check_sources(Way.DOCKER, [])
    with pytest.raises(UsageError, match="Buildah"):
        check_sources(Way.BUILDAH, [])
    with pytest.raises(UsageError, match="must not have it"):
        check_sources(Way.DOCKER, ["hostname=3.23"])
