"""Whether the installed torch can be imported and can use the GPU that is here."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.facts import torch_build
from envlock.findings import Severity
from envlock.lock.observation import BuiltFor
from envlock.rules import reading
from envlock.rules.base import DoesNotApplyError, Env, Fault, UndecidedError, check
from envlock.rules.torch_build import FOLLOWS
from envlock.rules.wording import some

_SIGNS = {
    "driver.version": "an NVIDIA driver",
    "driver.cuda": "an NVIDIA driver",
    "toolkit.nvcc": "nvcc",
    "toolkit.system_cuda": "a CUDA toolkit",
}
_CONDA_SIGNS = ("cudatoolkit", "pytorch-cuda", "cuda-runtime", "cuda-version")


def _signs_of_gpu(env: Env) -> dict[str, str]:
    """Facts that say that this environment is meant to use a GPU, by path."""
    found = {
        f"gpus.{index}.name": str(env.peek(f"gpus.{index}.name") or "a GPU")
        for index in range(len(env.peek("gpus") or []))
    }
    # A toolkit alone, on a machine that is known to have no GPU, serves to compile.
    if found or env.find("gpus") != [] or env.peek("driver.version"):
        found |= {
            path: f"{text} ({env.peek(path)})" for path, text in _SIGNS.items() if env.peek(path)
        }
    conda = env.peek_table("conda")
    found |= {f"conda.{name}": f"conda's {name}" for name in _CONDA_SIGNS if name in conda}
    for name, package in env.peek_table("packages").items():
        if isinstance(package.built_for, BuiltFor) and isinstance(package.built_for.cuda, str):
            found[f"packages.{name}.built_for"] = f"{name} for CUDA {package.built_for.cuda}"
    return found


@check("EL211", Severity.ERROR)
def cpu_only(env: Env) -> Iterator[Fault]:
    """torch is a CPU-only build in an environment that is meant for a GPU.

    `torch.cuda.is_available()` is False whatever the driver says. It comes about when pip falls
    back to another index (`--extra-index-url` prefers neither), when conda solves on a machine
    without a GPU (an image build: the virtual package `__cuda` is missing), or when no wheel of
    the wanted variant exists for this Python or platform.

    To do: install the build of the wanted variant from its own index with `--index-url`. For
    conda, set CONDA_OVERRIDE_CUDA while the environment is solved.
    """
    kind = reading.torch_kind(env)
    if kind is None:
        yield from _cpu_only_image(env)
        raise UndecidedError("torch.build", "not recorded")
    if kind.value != "cpu":
        return
    signs = _signs_of_gpu(env)
    if not signs:
        raise DoesNotApplyError("no GPU, driver or CUDA toolkit here")
    version = reading.torch_version(env)
    yield Fault(
        subject="torch.build",
        message=(
            f"torch{f' {version.value}' if version else ''} is a CPU-only build, beside "
            f"{some(signs.values())}. Nothing runs on a GPU."
        ),
        hint=_gpu_build_hint(env),
        evidence=(kind.path, *([version.path] if version else []), *signs),
        explains=FOLLOWS,
    )


def _gpu_build_hint(env: Env) -> str:
    if env.peek_table("conda"):
        return (
            "set CONDA_OVERRIDE_CUDA to the wanted CUDA release while conda solves, or pin a "
            "pytorch build whose name contains cuda"
        )
    version = reading.torch_release(env)
    build = torch_build(version.value) if version else None
    if build is None:
        return "install a CUDA or ROCm build of torch from its own index, with --index-url"
    tags = ", ".join(v.tag for v in build.variants)
    return f"install torch {build.release} with one of {tags}, from the index of that variant"


def _cpu_only_image(env: Env) -> Iterator[Fault]:
    """A CUDA image whose torch cannot use CUDA, and whose solver was not told about CUDA."""
    if (
        env.peek("torch.cuda_available") is False
        and env.peek("toolkit.system_cuda")
        and env.peek("system.container")
        and env.lacks("env.CONDA_OVERRIDE_CUDA")
    ):
        yield Fault(
            subject="torch.cuda_available",
            message=(
                "The image has CUDA, but its torch cannot use it, and CONDA_OVERRIDE_CUDA is not "
                "set: a solver on a machine without a GPU takes the CPU build."
            ),
            hint="set CONDA_OVERRIDE_CUDA to the image's CUDA release while the image is built",
            evidence=("env.CONDA_OVERRIDE_CUDA", "toolkit.system_cuda", "system.container"),
            explains=FOLLOWS,
        )


@check("EL212", Severity.ERROR)
def not_importable(env: Env) -> Iterator[Fault]:
    """torch is installed and cannot be imported.

    The other findings usually name the cause: a library that is shadowed, missing or of another
    build. This one leads only where none of them does.

    To do: run `python -c "import torch"` and give the text to `envlock doctor --error`.
    """
    if env.known("torch.importable") is False:
        version = reading.torch_version(env)
        yield Fault(
            subject="torch.importable",
            message=f"import torch fails{f' (torch {version.value})' if version else ''}.",
            hint='python -c "import torch", and give the text to envlock doctor --error',
            evidence=("torch.version",),
        )


@check("EL213", Severity.ERROR)
def sees_no_gpu(env: Env) -> Iterator[Fault]:
    """torch has CUDA and the machine has a GPU, but torch cannot use it.

    The other findings usually name the cause: the driver, a variable, a device without
    permission. This one leads only where none of them does.

    To do: run `python -c "import torch; torch.cuda.init()"` and read the error.
    """
    available = env.known("torch.cuda_available")
    kind = reading.torch_kind(env)
    if available is None or kind is None or kind.value not in {"cuda", "rocm"}:
        raise DoesNotApplyError("torch.cuda_available")
    if available is False and reading.gpu_count(env) > 0:
        yield Fault(
            subject="torch.cuda_available",
            message=f"torch is a {kind.value} build and a GPU is here, but torch cannot use it.",
            hint='python -c "import torch; torch.cuda.init()"',
            evidence=("gpus", kind.path),
        )
