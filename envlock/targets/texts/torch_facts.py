"""What a text says about torch: from its version, from conda's build string, from a report."""

from __future__ import annotations

import re

from envlock.targets.texts.tree import ABSENT, Tree, unknown

_CUDA_TAG = re.compile(r"cu(?P<major>[0-9]{1,2})(?P<minor>[0-9])(?:\.|$)", re.ASCII)
"""``cu92``, ``cu121``, ``cu130``, ``cu118.cxx11.abi``."""
_CONDA_CUDA = re.compile(r"cuda_?(?P<major>[0-9]{1,2})\.?(?P<minor>[0-9])(?![0-9])", re.ASCII)
"""``py3.10_cuda12.1_cudnn8.9.2_0`` of the pytorch channel, ``cuda118_py310h...`` of conda-forge."""
_CONDA_CUDNN = re.compile(r"cudnn(?P<version>[0-9]+(?:\.[0-9]+){1,3})(?:_|$)", re.ASCII)
_NO_CUDA = {"cpu": "cpu", "rocm": "rocm", "xpu": "xpu"}


def from_version(version: str) -> Tree:
    """A version with a build tag says what ``torch.__version__`` says, and the build.

    Without one, wheels of a package index say nothing about CUDA: 2.3.0 there is 2.3.0+cu121 once
    it is imported, and something else on another system.
    """
    release, plus, local = version.partition("+")
    if not plus:
        reason = "the listed version has no build tag"
        return {
            "release": release,
            "version": unknown(reason),
            "local": unknown(reason),
            "build": unknown(reason),
            "cuda": unknown(reason),
        }
    return {"version": version, "release": release, "local": local, **build_of_tag(local)}


def build_of_tag(local: str) -> Tree:
    """The build that a local version tag such as ``cu121``, ``cpu`` or ``rocm6.0`` names."""
    found = _CUDA_TAG.match(local)
    if found:
        return {"build": "cuda", "cuda": f"{found['major']}.{found['minor']}", "hip": dict(ABSENT)}
    for prefix, build in _NO_CUDA.items():
        if local.startswith(prefix):
            # rocm6.0 is not the whole HIP version that torch.version.hip has.
            hip: Tree = {} if build == "rocm" else {"hip": dict(ABSENT)}
            return {"build": build, "cuda": dict(ABSENT), **hip}
    return {}


def from_conda(version: str, build: str) -> tuple[Tree, Tree]:
    """torch and cudnn of a conda package ``pytorch``."""
    torch: Tree = {"release": version.partition("+")[0]}
    found = _CONDA_CUDA.search(build)
    if found:
        torch |= {"build": "cuda", "cuda": f"{found['major']}.{found['minor']}"}
    elif re.search(r"(?:^|_)cpu", build):
        torch |= {"build": "cpu", "cuda": dict(ABSENT)}
    cudnn = _CONDA_CUDNN.search(build)
    return torch, {"compiled": cudnn["version"]} if cudnn else {}
