"""What an image is for: to run what the lock holds, or also to compile extensions for it.

``runtime`` stands upon a slim base and has CUDA from the wheels alone. ``devel`` stands upon
NVIDIA's image with the compilers of exactly the lock's CUDA. Pure: nothing is asked of a registry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from envlock.errors import BuildError
from envlock.facts import versions
from envlock.facts.cuda import release_of_wheels
from envlock.image.choices import Flavour
from envlock.image.plan import Base, BuildPlan
from envlock.lock.model import Lock
from envlock.lock.observation import value_of

NVIDIA = "docker.io/nvidia/cuda:{cuda}-devel-{system}"
"""Without cuDNN: the wheels bring the one that torch loads."""
_SYSTEMS = (((11, 7), "ubuntu22.04"), ((11, 0), "ubuntu20.04"))
"""From which CUDA on NVIDIA offers its images upon which system, the newest first."""
_COMPILERS = re.compile(
    r"(?:g\+\+|clang)(?:-[0-9.]+)?|build-essential|nvidia-cuda-toolkit"
    r"|cuda-(?:nvcc|compiler|toolkit|libraries-dev)(?:-[0-9-]+)?",
    re.ASCII,
)
"""OS packages that extensions are compiled with. A C compiler alone is not: Triton needs one to run."""
_NAME_ONE = "name a base that has it: --base REF; or build without compilers: --flavour runtime"


@dataclass(frozen=True, kw_only=True, slots=True)
class Flavoured:
    flavour: Flavour
    """RUNTIME or DEVEL."""
    why: str

    def line(self) -> str:
        return f"flavour {self.flavour.value}: {self.why}"


def choose_flavour(wanted: Flavour, lock: Lock, os_packages: Sequence[str]) -> Flavoured:
    """What was asked for; else ``devel`` where compilers are, and the lock's torch has CUDA."""
    if wanted is not Flavour.AUTO:
        return Flavoured(flavour=wanted, why=f"--flavour {wanted.value}")
    names = [pin.partition("=")[0].partition(":")[0] for pin in os_packages]
    compilers = [name for name in names if _COMPILERS.fullmatch(name)]
    if not compilers:
        return Flavoured(flavour=Flavour.RUNTIME, why="nothing is to be compiled in it")
    if cuda_of(lock) is None:
        why = f"{compilers[0]} is asked for, but the lock's torch has no CUDA to compile for"
        return Flavoured(flavour=Flavour.RUNTIME, why=why)
    return Flavoured(flavour=Flavour.DEVEL, why=f"{compilers[0]} is asked for")


def cuda_of(lock: Lock) -> str | None:
    """``12.1``, which the lock's torch was compiled for; None where that is none or not known."""
    cuda = value_of(lock.observed.find("torch.cuda"))
    return cuda if isinstance(cuda, str) and versions.minor_of(cuda) else None


def devel_base(lock: Lock) -> str:
    """NVIDIA's image with exactly the lock's CUDA, by its tag.

    Raises BuildError where the lock does not say which release that is.
    """
    cuda = cuda_of(lock)
    if cuda is None:
        raise BuildError(
            "flavour devel: the lock's torch has no CUDA, or it is not known which",
            hint=_NAME_ONE,
        )
    release = _full_release(lock, cuda)
    if release is None:
        raise BuildError(
            f"flavour devel: the lock does not say which update of CUDA {cuda} it has",
            hint=_NAME_ONE,
        )
    minor = versions.minor_of(release)
    system = next((name for first, name in _SYSTEMS if minor and minor >= first), None)
    if system is None:
        raise BuildError(
            f"flavour devel: no image of NVIDIA's is known for CUDA {release}", hint=_NAME_ONE
        )
    return NVIDIA.format(cuda=release, system=system)


def _full_release(lock: Lock, cuda: str) -> str | None:
    """``12.1.1``: by the CUDA wheels, else by the toolkit that was on the captured machine."""
    release = release_of_wheels(
        {one.name: str(one.version) for one in lock.packages if one.version is not None}
    )
    on_machine = value_of(lock.observed.find("toolkit.system_cuda"))
    for found in (release.cuda if release else None, on_machine):
        if (
            isinstance(found, str)
            and re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}", found, re.ASCII)
            and versions.minor_of(found) == versions.minor_of(cuda)
        ):
            return found
    return None


def check_flavour(flavour: Flavour, base: Base, lock: Lock) -> str | None:
    """What a person should know of the CUDA in a base; None: there is nothing to say.

    Raises BuildError for a devel base with another CUDA than the lock's.
    """
    has, needs = base.settings.told().env.get("CUDA_VERSION"), cuda_of(lock)
    if flavour is Flavour.RUNTIME or needs is None:
        return None
    if has is None:
        return f"the base does not say which CUDA it has (CUDA_VERSION); the lock has {needs}"
    if versions.minor_of(has) != versions.minor_of(needs):
        raise BuildError(
            f"flavour devel: the base has CUDA {has}, the lock has {needs}",
            hint=f"name a base with the compilers of CUDA {needs}: --base REF",
        )
    return None


def twice(plan: BuildPlan) -> str | None:
    """What is said where the base has CUDA and the wheels bring it too."""
    has = plan.base.settings.told().env.get("CUDA_VERSION")
    wheels = next((layer.packages for layer in plan.layers if layer.name == "cuda"), ())
    if has is None or not wheels:
        return None
    return (
        f"CUDA is in this image twice: {has} of the base, which is for compiling, and "
        f"{len(wheels)} wheels, which is what torch loads"
    )
