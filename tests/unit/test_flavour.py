"""Which flavour is chosen and why; NVIDIA's image for a lock; what is said before a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.pylock import PackageWheel

from envlock.errors import BuildError
from envlock.facts.cuda import release_of_wheels
from envlock.image.base import BaseChoice, named_base
from envlock.image.choices import Flavour
from envlock.image.fetch import Shelves
from envlock.image.flavour import check_flavour, choose_flavour, devel_base, twice
from envlock.image.plan import Artifact, Base, BaseSettings, make_plan
from envlock.image.sizes import measure_sizes
from envlock.lock.model import BaseImage, ImageTable, Lock
from tests.unit.locks import lock, observation, packages, wheel
from tests.unit.wheels import make_wheel

DIGEST = f"sha256:{'0' * 64}"
CPU = {"torch": {"version": "2.3.0+cpu", "build": "cpu", "cuda": {"absent": True}}}
CU121 = {
    "nvidia-cuda-runtime-cu12": "12.1.105",
    "nvidia-cublas-cu12": "12.1.3.1",
    "nvidia-cuda-nvrtc-cu12": "12.1.105",
}


def locked(pins: dict[str, str], cuda: str = "12.1", **sections: Any) -> Lock:
    """A lock whose torch is for ``cuda``, with these packages as wheels."""
    torch = {"version": "2.3.0", "release": "2.3.0", "cuda": cuda}
    made = lock(observation(torch=torch, **sections))
    entries = [{"name": n, "version": v, "wheels": [wheel(n, v)]} for n, v in pins.items()]
    return Lock(requires_python=made.requires_python, packages=packages(entries), table=made.table)


def base(**env: str) -> Base:
    settings = BaseSettings(env=env)
    return Base(
        reference="a", name="a", digest=DIGEST, python="python3", settings=settings, origin="test"
    )


@pytest.mark.parametrize(
    ("wanted", "observed", "apt", "flavour", "why"),
    [
        (Flavour.AUTO, {}, [], Flavour.RUNTIME, "nothing is to be compiled in it"),
        (Flavour.AUTO, {}, ["gcc=4:12.2.0-3"], Flavour.RUNTIME, "nothing is to be compiled in it"),
        (Flavour.AUTO, {}, ["libgl1=1", "g++-12:amd64=1"], Flavour.DEVEL, "g++-12 is asked for"),
        (Flavour.AUTO, {}, ["cuda-nvcc-12-1=1"], Flavour.DEVEL, "cuda-nvcc-12-1 is asked for"),
        (
            Flavour.AUTO,
            CPU,
            ["build-essential=12.9"],
            Flavour.RUNTIME,
            "build-essential is asked for, but the lock's torch has no CUDA to compile for",
        ),
        (Flavour.DEVEL, CPU, [], Flavour.DEVEL, "--flavour devel"),
        (Flavour.RUNTIME, {}, ["g++=1"], Flavour.RUNTIME, "--flavour runtime"),
    ],
)
def test_the_flavour_and_why(
    wanted: Flavour, observed: dict[str, Any], apt: list[str], flavour: Flavour, why: str
) -> None:
    found = choose_flavour(wanted, lock(observation(**observed)), apt)
    assert (found.flavour, found.why) == (flavour, why)


@pytest.mark.parametrize(
    ("pins", "cuda", "image"),
    [
        (CU121, "12.1", "12.1.1-devel-ubuntu22.04"),
        ({"nvidia-cuda-runtime-cu12": "12.1.55"}, "12.1", "12.1.0-devel-ubuntu22.04"),
        # torch 2.6 pins the runtime of two updates and the cuBLAS of the second.
        (
            {"nvidia-cuda-runtime-cu12": "12.6.77", "nvidia-cublas-cu12": "12.6.4.1"},
            "12.6",
            "12.6.3-devel-ubuntu22.04",
        ),
        (
            {"nvidia-cuda-runtime": "13.0.96", "cuda-toolkit": "13.0.2"},
            "13.0",
            "13.0.2-devel-ubuntu22.04",
        ),
        ({"nvidia-cuda-runtime-cu11": "11.8.89"}, "11.8", "11.8.0-devel-ubuntu22.04"),
    ],
)
def test_nvidias_image_has_exactly_the_locks_cuda(
    pins: dict[str, str], cuda: str, image: str
) -> None:
    assert devel_base(locked(pins, cuda)) == f"docker.io/nvidia/cuda:{image}"


def test_without_cuda_wheels_the_toolkit_of_the_captured_machine_says_which_update() -> None:
    found = locked({}, "11.3", toolkit={"system_cuda": "11.3.1"})
    assert devel_base(found) == "docker.io/nvidia/cuda:11.3.1-devel-ubuntu20.04"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (locked({}), "does not say which update of CUDA 12.1"),
        (locked({"nvidia-cublas-cu12": "12.1.3.1"}), "does not say which update of CUDA 12.1"),
        (locked({"nvidia-cuda-runtime-cu12": "12.1.9999"}), "does not say which update"),
        (locked(CU121, "12.4"), "does not say which update of CUDA 12.4"),
        (locked({}, toolkit={"system_cuda": "12.4.1"}), "does not say which update"),
        (locked({}, toolkit={"system_cuda": "12.1"}), "does not say which update"),
        (locked({}, toolkit={"system_cuda": "12.1.1-x\nRUN y"}), "does not say which update"),
        (locked({}, "10.2", toolkit={"system_cuda": "10.2.1"}), "no image of NVIDIA's is known"),
        (locked(CU121, "12"), "has no CUDA, or it is not known which"),
        (lock(observation(**CPU)), "has no CUDA, or it is not known which"),
    ],
)
def test_an_unknown_cuda_is_an_error_that_says_what_to_do(made: Lock, said: str) -> None:
    with pytest.raises(BuildError, match=said) as caught:
        devel_base(made)
    assert caught.value.hint
    assert "--base REF" in caught.value.hint


def test_a_release_needs_its_runtime_among_the_wheels() -> None:
    assert release_of_wheels({}) is None
    assert release_of_wheels({"nvidia-cublas-cu12": "12.1.3.1"}) is None
    found = release_of_wheels(CU121)
    assert found
    assert found.cuda == "12.1.1"


def test_a_base_with_another_cuda_is_refused() -> None:
    made = locked(CU121)
    with pytest.raises(
        BuildError, match=r"the base has CUDA 12[.]4[.]1, the lock has 12[.]1"
    ) as caught:
        check_flavour(Flavour.DEVEL, base(CUDA_VERSION="12.4.1"), made)
    assert caught.value.hint
    assert check_flavour(Flavour.DEVEL, base(CUDA_VERSION="12.1.0"), made) is None
    assert check_flavour(Flavour.RUNTIME, base(CUDA_VERSION="12.4.1"), made) is None
    unknown = check_flavour(Flavour.DEVEL, base(), made)
    assert unknown == "the base does not say which CUDA it has (CUDA_VERSION); the lock has 12.1"


def test_cuda_is_not_in_an_image_twice_silently() -> None:
    made = lock()
    with_wheels = Lock(
        requires_python=made.requires_python, packages=locked(CU121).packages, table=made.table
    )
    plan = make_plan(with_wheels, base(CUDA_VERSION="12.1.1"))
    assert twice(plan) == (
        "CUDA is in this image twice: 12.1.1 of the base, which is for compiling, and 3 wheels, "
        "which is what torch loads"
    )
    assert twice(make_plan(with_wheels, base())) is None
    assert twice(make_plan(lock(), base(CUDA_VERSION="12.1.1"))) is None


def test_a_recorded_base_serves_the_flavour_that_it_was_recorded_for() -> None:
    made = locked(CU121)

    def recorded(flavour: str | None) -> Lock:
        first = BaseImage(reference="docker.io/a", digest=DIGEST, layers=[])
        image = ImageTable.read({"base": first.plain()}).changed(flavour=flavour)
        return Lock(
            requires_python=made.requires_python,
            packages=made.packages,
            table=made.table.changed(image=image),
        )

    def named(flavour: Flavour, first: str | None) -> str | None:
        return BaseChoice().settled(recorded(first), flavour).reference

    nvidia = "docker.io/nvidia/cuda:12.1.1-devel-ubuntu22.04"
    assert named(Flavour.RUNTIME, None) == f"docker.io/a@{DIGEST}"
    assert named(Flavour.RUNTIME, "devel") is None
    assert named(Flavour.DEVEL, "devel") == f"docker.io/a@{DIGEST}"
    assert named(Flavour.DEVEL, "runtime") == nvidia
    assert named_base("mine", made, Flavour.DEVEL).reference == "mine"


def test_sizes_before_a_build(tmp_path: Path) -> None:
    here = make_wheel(tmp_path, {"demo.py": b"x" * (3 << 20)})
    broken = make_wheel(tmp_path, {"demo.py": b"x"}, name="broken")
    (tmp_path / broken.wheel.filename).write_bytes(b"not a zip")

    def away(name: str, size: int | None) -> Artifact:
        file = PackageWheel(name=f"{name}-1.0-py3-none-any.whl", size=size, hashes={"sha256": "0"})
        return Artifact(name=name, version="1.0", wheel=file)

    shelves = Shelves(folders=[tmp_path], cache=tmp_path / "cache")
    wanted = [here, broken, away("one", 5 << 20), away("other", None)]
    sizes = measure_sizes(wanted, shelves)
    assert sizes.line() == (
        "sizes: to fetch 2 of 4 wheels, at most 5 MiB and 1 of unknown size; "
        "unpacked 3 MiB and 3 of unknown size"
    )
    assert measure_sizes([here], shelves).line() == (
        "sizes: to fetch 0 of 1 wheels, at most 0 MiB; unpacked 3 MiB"
    )
