"""What a probe saw: facts, each a value, absent, or unknown with a reason.

The same shapes stand in TOML (``[tool.envlock.observed]``) and JSON. A key that is left out means
unknown. Unknown never compares as equal (``envlock.diff.compare``) and is never guessed.
"""

from __future__ import annotations

from typing import Any, Literal

from envlock.lock.fields import Count, Digest, PathClass, Text
from envlock.lock.machine import Driver, Gpu, Limits, Preflight, System
from envlock.lock.shape import ABSENT, NOT_RECORDED, Absent, Fact, Model, T, Unknown

__all__ = ["ABSENT", "NOT_RECORDED", "Absent", "Fact", "Model", "Unknown"]

OBSERVATION_SCHEMA = "envlock-observation/1"


def is_known(fact: object) -> bool:
    """True for a value or a recorded absence; False only for unknown."""
    return not isinstance(fact, Unknown)


def value_of(fact: Fact[T]) -> T | None:
    """The value, or None when it is absent or unknown. Use where the two need no telling apart."""
    return None if isinstance(fact, Absent | Unknown) else fact


class Python(Model):
    version: Fact[Text] = NOT_RECORDED
    implementation: Fact[Text] = NOT_RECORDED
    abi: Fact[Text] = NOT_RECORDED
    """The interpreter's tag, ``cp311`` or ``cp313t``."""
    bits: Fact[Count] = NOT_RECORDED
    arch: Fact[Text] = NOT_RECORDED
    """Of the interpreter, which differs from the machine's under emulation."""
    environment: Fact[Literal["venv", "conda", "system"]] = NOT_RECORDED
    flags: Fact[dict[str, int]] = NOT_RECORDED
    """``sys.flags`` that are not at their default."""
    pythonpath: Fact[list[Text]] = NOT_RECORDED
    """Folders of PYTHONPATH, each with the home folder as ``~`` and otherwise as a kind."""
    user_site: Fact[bool] = NOT_RECORDED
    """Whether ``~/.local`` is searched and exists."""
    site_folders: Fact[list[Text]] = NOT_RECORDED
    """Folders below the prefix that hold distributions, such as ``lib/python3.11/site-packages``."""


class Switches(Model):
    """Backend switches as torch reports them after import (``--deep`` only)."""

    matmul_allow_tf32: Fact[bool] = NOT_RECORDED
    cudnn_allow_tf32: Fact[bool] = NOT_RECORDED
    float32_matmul_precision: Fact[Text] = NOT_RECORDED
    cudnn_enabled: Fact[bool] = NOT_RECORDED
    cudnn_benchmark: Fact[bool] = NOT_RECORDED
    cudnn_deterministic: Fact[bool] = NOT_RECORDED
    deterministic_algorithms: Fact[bool] = NOT_RECORDED
    sdp_flash: Fact[bool] = NOT_RECORDED
    sdp_mem_efficient: Fact[bool] = NOT_RECORDED
    sdp_math: Fact[bool] = NOT_RECORDED
    sdp_cudnn: Fact[bool] = NOT_RECORDED
    fp16_reduced_precision_reduction: Fact[bool] = NOT_RECORDED
    bf16_reduced_precision_reduction: Fact[bool] = NOT_RECORDED
    fp16_accumulation: Fact[bool] = NOT_RECORDED
    default_dtype: Fact[Text] = NOT_RECORDED


class Torch(Model):
    version: Fact[Text] = NOT_RECORDED
    """As ``torch.__version__`` has it, ``2.3.0+cu121``."""
    release: Fact[Text] = NOT_RECORDED
    local: Fact[Text] = NOT_RECORDED
    """The local version tag, ``cu121``; absent where the version has none."""
    build: Fact[Literal["cuda", "cpu", "rocm", "xpu", "mps"]] = NOT_RECORDED
    cuda: Fact[Text] = NOT_RECORDED
    """The CUDA release this build was compiled for, ``12.1``; absent in builds without CUDA."""
    hip: Fact[Text] = NOT_RECORDED
    git: Fact[Text] = NOT_RECORDED
    debug: Fact[bool] = NOT_RECORDED
    cxx11_abi: Fact[bool] = NOT_RECORDED
    path_class: Fact[PathClass] = NOT_RECORDED
    importable: Fact[bool] = NOT_RECORDED
    """``--deep``: whether ``import torch`` worked; unknown carries the error otherwise."""
    cuda_available: Fact[bool] = NOT_RECORDED
    arch_list: Fact[list[Text]] = NOT_RECORDED
    """``sm_80``, ``compute_90``, ``gfx90a``: from the compiled-in flags, no GPU needed."""
    config: Fact[dict[str, Text]] = NOT_RECORDED
    """``torch.__config__``'s build settings, by name."""
    num_threads: Fact[Count] = NOT_RECORDED
    allocator: Fact[Text] = NOT_RECORDED
    """``native`` or ``cudaMallocAsync``."""
    switches: Fact[Switches] = NOT_RECORDED


class Copy(Model):
    """One file that carries a soname."""

    path_class: PathClass
    owner: Fact[Text] = NOT_RECORDED
    """The distribution or OS package that owns the file."""
    version: Fact[Text] = NOT_RECORDED


class Library(Model):
    """A CUDA library as the dynamic loader would map it for torch."""

    path_class: Fact[PathClass] = NOT_RECORDED
    owner: Fact[Text] = NOT_RECORDED
    version: Fact[Text] = NOT_RECORDED
    shadowed: list[Copy] = []
    """Further copies of the same soname, in search order, that lose to the one loaded."""


class Component(Model):
    """A library that torch was compiled with and loads: cuDNN, NCCL, cuBLAS."""

    loaded: Fact[Text] = NOT_RECORDED
    compiled: Fact[Text] = NOT_RECORDED
    path_class: Fact[PathClass] = NOT_RECORDED


class Toolkit(Model):
    nvcc: Fact[Text] = NOT_RECORDED
    """Version of the nvcc that an extension build would take."""
    nvcc_from: Fact[Literal["CUDA_HOME", "PATH", "default"]] = NOT_RECORDED
    system_cuda: Fact[Text] = NOT_RECORDED
    """Release of /usr/local/cuda."""
    ptxas: Fact[Text] = NOT_RECORDED
    c_compiler: Fact[Text] = NOT_RECORDED
    """``gcc 12.2.0``."""


class Source(Model):
    """How a distribution came in, from direct_url.json; an index install records nothing."""

    kind: Literal["index", "archive", "vcs", "editable", "directory", "conda"]
    url: Fact[Text] = NOT_RECORDED
    """Without credentials, query and local paths."""
    commit: Fact[Text] = NOT_RECORDED


class BuiltFor(Model):
    """What an extension says it was compiled for: torchvision's version.py, xformers' cpp_lib.json."""

    torch: Fact[Text] = NOT_RECORDED
    cuda: Fact[Text] = NOT_RECORDED
    """``12.1``; absent: compiled without CUDA."""
    cxx11_abi: Fact[bool] = NOT_RECORDED


class Package(Model):
    version: Fact[Text] = NOT_RECORDED
    record: Fact[Digest] = NOT_RECORDED
    """RECORD digest: equal for one wheel through pip, uv and envlock's own assembler."""
    installer: Fact[Text] = NOT_RECORDED
    source: Fact[Source] = NOT_RECORDED
    path_class: Fact[PathClass] = NOT_RECORDED
    tags: Fact[list[Text]] = NOT_RECORDED
    """Tags of the WHEEL file, ``cp311-cp311-manylinux_2_28_x86_64``."""
    built_for: Fact[BuiltFor] = NOT_RECORDED


class CondaPackage(Model):
    version: Fact[Text] = NOT_RECORDED
    build: Fact[Text] = NOT_RECORDED
    channel: Fact[Text] = NOT_RECORDED


class Broken(Model):
    """A metadata folder that names no usable distribution."""

    folder: Text
    reason: Text


class Unmet(Model):
    """A requirement of an installed distribution that the environment does not meet."""

    distribution: Text
    requirement: Text
    installed: Fact[Text]
    """absent: not installed."""


class Soname(Model):
    """A library from outside the environment that extension modules need (DT_NEEDED)."""

    needed_by: list[Text]
    path_class: Fact[PathClass] = NOT_RECORDED
    """absent: the loader would not find it."""
    os_package: Fact[Text] = NOT_RECORDED
    on_demand: bool = False
    """Only plug-ins need it, or one of several builds of a file: without it nothing fails at import."""


class FileCheck(Model):
    """Installed files hashed against RECORD (``--check-files`` and ``verify``)."""

    checked: Count
    altered: dict[Text, Text] = {}
    """Path below its site folder -> distribution whose RECORD has another hash for it."""
    missing: dict[Text, Text] = {}
    unowned: Fact[dict[Text, Text]] = NOT_RECORDED
    """Path of a file that no RECORD names -> distribution whose package folder it lies in."""


class Indexes(Model):
    """From the target's pip configuration: hosts only."""

    hosts: Fact[list[Text]] = NOT_RECORDED
    find_links: Fact[bool] = NOT_RECORDED
    options: Fact[list[Text]] = NOT_RECORDED
    """Index options inside a requirements file, ``--index-url`` without its value."""


Exhaustive = Literal["packages", "env", "libraries", "sonames", "contested", "conda", "gpus"]


class Observation(Model):
    python: Fact[Python] = NOT_RECORDED
    torch: Fact[Torch] = NOT_RECORDED
    cudnn: Fact[Component] = NOT_RECORDED
    nccl: Fact[Component] = NOT_RECORDED
    cublas: Fact[Component] = NOT_RECORDED
    toolkit: Fact[Toolkit] = NOT_RECORDED
    driver: Fact[Driver] = NOT_RECORDED
    gpus: Fact[list[Gpu]] = NOT_RECORDED
    system: Fact[System] = NOT_RECORDED
    limits: Fact[Limits] = NOT_RECORDED
    indexes: Fact[Indexes] = NOT_RECORDED
    env: Fact[dict[Text, Fact[Text]]] = NOT_RECORDED
    """Variables of the allow-list. Paths in values are replaced by ``~`` or a kind."""
    packages: Fact[dict[Text, Package]] = NOT_RECORDED
    """By normalised name."""
    seeds: Fact[dict[Text, Text]] = NOT_RECORDED
    """Installers that venv and its like put in (pip; setuptools and wheel where nothing requires
    them): name -> version. Not part of the environment's identity."""
    conda: Fact[dict[Text, CondaPackage]] = NOT_RECORDED
    """Everything in conda-meta, by conda's own names."""
    libraries: Fact[dict[Text, Library]] = NOT_RECORDED
    """By soname."""
    sonames: Fact[dict[Text, Soname]] = NOT_RECORDED
    contested: Fact[dict[Text, list[Text]]] = NOT_RECORDED
    """Path below the site folder -> the distributions whose RECORD claims it."""
    duplicates: Fact[dict[Text, list[Text]]] = NOT_RECORDED
    """Name -> versions, where one name has several metadata folders on the path."""
    broken: Fact[list[Broken]] = NOT_RECORDED
    unmet: Fact[list[Unmet]] = NOT_RECORDED
    files: Fact[FileCheck] = NOT_RECORDED
    preflight: Fact[Preflight] = NOT_RECORDED
    set_by_envlock: list[Text] = []
    """Dotted paths of facts that envlock's own run options set; never compared."""
    exhaustive: list[Exhaustive] = []
    """Tables that were read completely: a name that is not in them is absent, not unknown."""
    read_from: dict[Text, Text] = {}
    """Dotted path -> where the fact was read, for the evidence of findings."""

    def find(self, path: str) -> Any:
        """The fact at a dotted path: a value, ``ABSENT``, or ``Unknown``.

        Keys may hold dots themselves (``libraries.libcudnn.so.9.version``).
        """
        node: Any = self
        rest = path
        while rest:
            if isinstance(node, Absent | Unknown):
                return node
            key, rest = _next_key(node, rest)
            node = _child(node, key, exhaustive=self.exhaustive, path=path)
        return node


def _next_key(node: Any, rest: str) -> tuple[str, str]:
    if isinstance(node, dict):
        parts = rest.split(".")
        for end in range(len(parts), 0, -1):
            key = ".".join(parts[:end])
            if key in node:
                return key, ".".join(parts[end:])
        return rest, ""
    key, _, rest = rest.partition(".")
    return key, rest


def _child(node: Any, key: str, *, exhaustive: list[Exhaustive], path: str) -> Any:
    if isinstance(node, Model):
        return getattr(node, key)
    if isinstance(node, dict):
        if key in node:
            return node[key]
        return ABSENT if path.partition(".")[0] in exhaustive else NOT_RECORDED
    if isinstance(node, list) and key.isdecimal():
        if int(key) < len(node):
            return node[int(key)]
        return ABSENT if path.partition(".")[0] in exhaustive else NOT_RECORDED
    raise KeyError(path)
