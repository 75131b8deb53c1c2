"""Facts that several rules read in the same way. Each look-up says which path it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envlock.facts import gpu_arch_of_name, torch_build, versions
from envlock.rules.base import DoesNotApplyError, Env, UndecidedError


class Read(NamedTuple):
    value: str
    path: str


def where_known(env: Env, paths: Iterable[str], fact: str) -> Iterator[str]:
    """The paths whose fact is known. Then the rule ends as open if one is unknown: the others
    being in order says nothing of it. Absent everywhere, it does not apply."""
    facts = {path: f"{path}.{fact}" for path in paths}
    known = [path for path, full in facts.items() if env.peek(full) is not None]
    yield from known
    for full in facts.values():
        env.known(full)  # ends the rule where it is unknown
    if not known:
        raise DoesNotApplyError(fact)


def torch_version(env: Env) -> Read | None:
    """The full version, ``2.3.0+cu121``; the metadata's where torch's own is not known."""
    for path in ("torch.version", "packages.torch.version"):
        found = env.peek(path)
        if found:
            return Read(found, path)
    release = env.peek("torch.release")
    if not release:
        return None
    local = env.peek("torch.local")
    return Read(f"{release}+{local}" if local else release, "torch.release")


def torch_release(env: Env) -> Read | None:
    """The public part, ``2.3.0``."""
    found = env.peek("torch.release")
    if found:
        return Read(found, "torch.release")
    version = torch_version(env)
    return None if version is None else Read(version.value.partition("+")[0], version.path)


def torch_tag(env: Env) -> Read | None:
    """The local tag, ``cu121`` or ``cpu``, from either version."""
    found = env.peek("torch.local")
    if found:
        return Read(found, "torch.local")
    for path in ("torch.version", "packages.torch.version"):
        _, _, local = (env.peek(path) or "").partition("+")
        if local:
            return Read(local, path)
    return None


def torch_cuda(env: Env) -> Read | None:
    """The CUDA release that torch was compiled for."""
    found = env.peek("torch.cuda")
    if found:
        return Read(found, "torch.cuda")
    tag = torch_tag(env)
    if tag is None or env.lacks("torch.cuda"):
        return None
    cuda = versions.cuda_of_tag(tag.value)
    return None if cuda is None else Read(cuda, tag.path)


def need_torch_cuda(env: Env) -> Read:
    """As ``torch_cuda``; ends the rule where it is unknown, or where torch has no CUDA."""
    found = torch_cuda(env)
    if found is not None:
        return found
    env.need("torch.cuda")
    raise UndecidedError("torch.cuda", "not recorded")  # pragma: no cover  (need raises)


def torch_kind(env: Env) -> Read | None:
    """``cuda``, ``cpu``, ``rocm``, ``xpu`` or ``mps``: what the installed torch can compute on."""
    found = env.peek("torch.build")
    if found:
        return Read(found, "torch.build")
    tag = torch_tag(env)
    if tag is not None:
        for prefix in ("cpu", "rocm", "xpu"):
            if tag.value.startswith(prefix):
                return Read(prefix, tag.path)
        if versions.cuda_of_tag(tag.value):
            return Read("cuda", tag.path)
    if env.peek("torch.cuda"):
        return Read("cuda", "torch.cuda")
    if env.peek("torch.hip"):
        return Read("rocm", "torch.hip")
    return _conda_kind(env)


def _conda_kind(env: Env) -> Read | None:
    """From conda's build string, ``py3.8_cpu_0`` or ``cuda118_py310h``."""
    for name in ("pytorch", "libtorch"):
        path = f"conda.{name}.build"
        build = env.peek(path) or ""
        if re.search(r"(?:^|_)cpu(?:_|$)", build):
            return Read("cpu", path)
        if re.search(r"(?:^|_)(?:cuda|gpu)", build):
            return Read("cuda", path)
    return None


class Arches(NamedTuple):
    names: tuple[str, ...]
    paths: tuple[str, ...]
    sources: tuple[str, ...]


def torch_arches(env: Env) -> Arches:
    """GPU targets of the installed torch: observed, else those of the published wheel."""
    seen = env.peek("torch.arch_list")
    if seen:
        return Arches(tuple(seen), ("torch.arch_list",), ())
    cuda, version = need_torch_cuda(env), torch_version(env)
    build = None if version is None else torch_build(version.value)
    tag = versions.tag_of_cuda(cuda.value)
    variant = build.variant(tag) if build and tag else None
    # The table describes Linux x86_64 wheels; a conda or source build has its own list.
    other = (
        env.peek("system.os") not in {None, "linux"}
        or env.peek("system.arch") not in {None, "x86_64", "amd64"}
        or env.peek("torch.path_class") == "source"
        or "pytorch" in env.peek_table("conda")
    )
    if version is None or variant is None or variant.arch_list is None or other:
        raise UndecidedError("torch.arch_list", "not recorded, and no table row for this build")
    return Arches(variant.arch_list, (cuda.path, version.path), variant.source)


def capability(env: Env, index: int) -> Read | None:
    """Compute capability of one GPU: observed, else by its product name."""
    path = f"gpus.{index}.compute_capability"
    found = env.peek(path)
    if found:
        return Read(found, path)
    name = env.peek(f"gpus.{index}.name")
    arch = gpu_arch_of_name(name) if name else None
    return None if arch is None else Read(arch.capability, f"gpus.{index}.name")


def gpu_count(env: Env) -> int:
    """How many GPUs were seen; undecided where nobody looked."""
    gpus = env.known("gpus")
    return 0 if gpus is None else len(gpus)
