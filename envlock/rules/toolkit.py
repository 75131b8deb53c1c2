"""Compilers: nvcc for extensions, a C compiler for triton; and libraries of a foreign toolkit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import INDEX, versions
from envlock.findings import Severity
from envlock.rules import reading
from envlock.rules.base import DoesNotApplyError, Env, Fault, UndecidedError, check
from envlock.rules.wording import agree

_COMPILES = {
    "flashinfer-python": ("flashinfer-jit-cache", None),
    "vllm": ("flashinfer-jit-cache", "0.13.0"),
    "deepspeed": (None, None),
    "gsplat": (None, None),
    "nvdiffrast": (None, None),
}
"""Distributions that compile CUDA code when they run -> (what makes that needless, since when)."""
_PERHAPS_COMPILE = (*_COMPILES, "deepspeed-mii")


@check("EL321", Severity.ERROR)
def nvcc_major(env: Env) -> Iterator[Fault]:
    """nvcc is of another CUDA major than torch.

    Extensions cannot be compiled: torch refuses with "The detected CUDA version mismatches the
    version that was used to compile PyTorch". Installed wheels do not need nvcc, and a difference
    of minor releases is harmless. It is a warning where all distributions are known, none of them
    compiles CUDA code and TORCH_CUDA_ARCH_LIST does not say that somebody does.

    To do: point CUDA_HOME and PATH to a toolkit of torch's CUDA major, or install a torch build for
    the toolkit's major. Nothing, if nothing is compiled.
    """
    nvcc = env.need("toolkit.nvcc")
    cuda = reading.need_torch_cuda(env)
    have, need = versions.major(nvcc), versions.major(cuda.value)
    if have is None or need is None:
        raise UndecidedError("toolkit.nvcc", "not a version")
    if have == need:
        return
    compiling = [p for name in _PERHAPS_COMPILE if env.peek(p := f"packages.{name}")]
    if env.peek("env.TORCH_CUDA_ARCH_LIST"):
        compiling.append("env.TORCH_CUDA_ARCH_LIST")
    idle = "packages" in env.observation.exhaustive and not compiling
    end = ", which matters only when one is built" if idle else ""
    yield Fault(
        subject="toolkit.nvcc",
        severity=Severity.WARNING if idle else None,
        message=f"nvcc is {nvcc}, torch is built for CUDA {cuda.value}: no CUDA extension can be "
        f"compiled here{end}.",
        hint=f"put a CUDA {need}.x toolkit first (CUDA_HOME and PATH), or install a torch build "
        f"for CUDA {have}.x from {INDEX}",
        evidence=(cuda.path, "toolkit.nvcc_from", "env.CUDA_HOME", *compiling),
    )


@check("EL322", Severity.ERROR)
def nvcc_missing(env: Env) -> Iterator[Fault]:
    """A package compiles CUDA code when it runs, and there is no nvcc.

    torch itself works without a toolkit, so nothing is wrong until such a package needs a kernel.
    The pip packages carry CUDA's libraries, not its compiler.

    To do: install the toolkit of torch's CUDA release, set CUDA_HOME and add its bin folder to
    PATH, or install the package's prebuilt kernels.
    """
    if env.known("toolkit.nvcc") is not None:
        return
    table = env.table("packages")
    found = []
    for name, (prebuilt, since) in _COMPILES.items():
        version = env.package(name) if name in table else None
        old = bool(since and version and versions.below(version, since))
        if name in table and not old and prebuilt not in table:
            found.append(name)
    if found:
        cuda = reading.torch_cuda(env)
        yield Fault(
            subject="toolkit.nvcc",
            message=f"{agree(found, 'compiles', 'compile')} CUDA code at run time, and there is no nvcc.",
            hint=f"install the CUDA {cuda.value if cuda else ''} toolkit and set CUDA_HOME, or install "
            "prebuilt kernels",
            evidence=(*(f"packages.{name}" for name in found), "env.CUDA_HOME"),
        )


@check("EL323", Severity.WARNING)
def no_c_compiler(env: Env) -> Iterator[Fault]:
    """triton is installed, and there is no C compiler.

    torch.compile fails: triton builds a small launcher with the host's C compiler when it runs.
    Runtime images contain none. Eager mode does not need it.

    To do: install gcc in the image, or use the devel flavour, if torch.compile or triton is used.
    """
    if env.known("toolkit.c_compiler") is None and "triton" in env.table("packages"):
        yield Fault(
            subject="toolkit.c_compiler",
            message="triton needs a C compiler when it runs, and there is none: torch.compile fails.",
            hint="apt-get install gcc libc6-dev, or envlock build --flavour devel",
            evidence=("packages.triton", "system.container"),
        )


@check("EL324", Severity.ERROR)
def nccl_for_other_cuda(env: Env) -> Iterator[Fault]:
    """The system's NCCL was built for another CUDA than the one in use.

    Distribution packages carry both versions (2.9.9-1+cuda11.3). With a CUDA runtime of another
    major, or an older one, NCCL stops with an initialization error.

    To do: install the libnccl package for the CUDA in use.
    """
    for soname, library in sorted(env.table("libraries").items()):
        version = library.version if isinstance(library.version, str) else ""
        built = re.search(r"\+cuda(\d+\.\d+)", version)
        if not soname.startswith("libnccl") or built is None:
            continue
        cuda = reading.torch_cuda(env)
        use = cuda.value if cuda else env.need("toolkit.nvcc")
        path = cuda.path if cuda else "toolkit.nvcc"
        if versions.major(use) != versions.major(built.group(1)):
            yield Fault(
                subject=f"libraries.{soname}.version",
                message=f"{soname} {version} was built for CUDA {built.group(1)}, in use is {use}.",
                hint=f"install the libnccl packages for cuda{versions.minor_text(use)}",
                evidence=(path, "nccl.loaded"),
                explains=("nccl*",),
            )


@check("EL325", Severity.ERROR)
def split_site_packages(env: Env) -> Iterator[Fault]:
    """torch 1.13.0 cannot find its CUDA libraries, because they were installed beside it.

    Where lib and lib64 are two folders, torch lands in lib64 and the pure nvidia-* wheels in lib;
    torch 1.13.0 looks only beside itself. Later releases search the whole path.

    To do: use torch 1.13.1 or newer, or a virtual environment with one site-packages folder.
    """
    folders = env.need("python.site_folders")
    torch = reading.torch_release(env)
    if torch is None or versions.numbers(torch.value) != (1, 13, 0):
        raise DoesNotApplyError("only torch 1.13.0")
    tops = {folder.partition("/")[0] for folder in folders if "site-packages" in folder}
    nvidia = [name for name in env.table("packages") if name.startswith("nvidia-")]
    if {"lib", "lib64"} <= tops and nvidia:
        yield Fault(
            subject="python.site_folders",
            message="torch is in lib64 and its CUDA libraries are in lib, where torch 1.13.0 does "
            "not look: it cannot load libcublas.",
            hint="pip install torch==1.13.1, or a virtual environment of its own",
            evidence=(torch.path, *(f"packages.{name}" for name in nvidia[:3])),
            sources=("pytorch/pytorch#90411",),
            explains=("torch.importable",),
        )


@check("EL326", Severity.ERROR)
def mkl_too_new(env: Env) -> Iterator[Fault]:
    """conda's MKL is too new for conda's torch.

    MKL 2024.1 lost a symbol that conda builds of torch up to 2.4 take from it: "undefined symbol:
    iJIT_NotifyEvent". The pip wheels link MKL statically.

    To do: `conda install "mkl<2024.1"`, or install torch from its wheels.
    """
    conda = env.table("conda")
    torch, mkl = conda.get("pytorch"), conda.get("mkl")
    if torch is None or mkl is None:
        raise DoesNotApplyError("no torch and MKL from conda")
    have = versions.minor_of(mkl.version) if isinstance(mkl.version, str) else None
    release = versions.minor_of(torch.version) if isinstance(torch.version, str) else None
    if have and release and have >= (2024, 1) and release <= (2, 4):
        yield Fault(
            subject="conda.mkl",
            message=f"MKL {mkl.version} lacks a symbol that conda's torch {torch.version} needs: "
            "import torch fails.",
            hint='conda install "mkl<2024.1"',
            evidence=("conda.pytorch", "torch.version"),
            sources=("pytorch/pytorch#123097",),
            explains=("torch.importable",),
        )


@check("EL327", Severity.WARNING)
def blackwell_attention(env: Env) -> Iterator[Fault]:
    """cuDNN attention is reported to give wrong results on this GPU.

    On compute capability 10.x torch prefers cuDNN attention again from 2.11 on. With cuDNN 9.19 and
    9.20, models with fewer than 8 key-value heads gave corrupted generations; other libraries refuse
    these releases and fall back to slower backends.

    To do: choose the memory-efficient or math backend, or install a newer nvidia-cudnn over the pin.
    """
    cudnn, torch = env.need("cudnn.loaded"), reading.torch_release(env)
    release = versions.minor_of(torch.value) if torch else None
    if reading.gpu_count(env) == 0:
        raise DoesNotApplyError("no GPU")
    found = reading.capability(env, 0)
    if found is None or torch is None or release is None:
        raise UndecidedError("gpus.0.compute_capability", "not recorded")
    if (
        found.value.startswith("10.")
        and release >= (2, 11)
        and (versions.minor_of(cudnn) in {(9, 19), (9, 20)})
    ):
        yield Fault(
            subject="cudnn.loaded",
            message=f"cuDNN {cudnn} on a GPU of compute capability {found.value}: attention with few "
            "key-value heads is reported to be wrong, and libraries fall back from it.",
            hint="torch.backends.cuda.enable_cudnn_sdp(False), or a newer nvidia-cudnn over the pin",
            evidence=(found.path, torch.path, *_cudnn_packages(env)),
            sources=("facts/behaviour_changes: sdpa-cudnn-b200-gqa",),
        )


def _cudnn_packages(env: Env) -> list[str]:
    table = env.peek_table("packages")
    return [f"packages.{name}" for name in table if name.startswith("nvidia-cudnn-")]
