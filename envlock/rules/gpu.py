"""The GPU: kernels for it, its state, and what changes when it is another one."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.facts import INDEX, fit, gpu_arch, torch_build, torch_releases, versions
from envlock.facts.gpus import capability_pair
from envlock.findings import Severity
from envlock.rules import reading
from envlock.rules.base import (
    HERE,
    REFERENCE,
    DoesNotApplyError,
    Env,
    Fault,
    Pair,
    UndecidedError,
    check,
    difference,
)
from envlock.rules.wording import listed

_GIB = 2**30


def _known_gpus(env: Env) -> Iterator[tuple[int, reading.Read]]:
    for index in range(reading.gpu_count(env)):
        found = reading.capability(env, index)
        if found is not None:
            yield index, found


def _gpus(env: Env) -> list[tuple[int, reading.Read]]:
    """Every GPU with a known capability; each capability once, with its first GPU."""
    if reading.gpu_count(env) == 0:
        raise DoesNotApplyError("no GPU")
    first: dict[str, tuple[int, reading.Read]] = {}
    for index, found in _known_gpus(env):
        first.setdefault(found.value, (index, found))
    if not first:
        env.known("gpus.0.compute_capability")  # where it is unknown, the reason is its own
        raise UndecidedError("gpus.0.compute_capability", "not recorded")
    return list(first.values())


def build_for(capability: str, near: str | None) -> str | None:
    """The published build with machine code for a GPU that is closest to the wanted release."""
    releases = list(torch_releases())
    here = releases.index(near) if near in releases else len(releases) - 1
    closest = sorted(range(len(releases)), key=lambda i: (abs(i - here), -i))
    for build in (torch_build(releases[i]) for i in closest):
        for variant in build.variants if build else ():
            if variant.arch_list and fit(capability, variant.arch_list) == "native":
                return f"{build.release}+{variant.tag}" if build else None
    return None


def _other_build_hint(env: Env, capability: str) -> str:
    release = reading.torch_release(env)
    build = build_for(capability, release.value if release else None)
    if build is None:
        return f"install a torch build whose arch list covers {capability}, or build from source"
    return f"pip install torch=={build} --index-url {INDEX}{build.partition('+')[2]}"


def _name(env: Env, index: int, capability: str) -> str:
    name = env.peek(f"gpus.{index}.name")
    return f"{name} ({capability})" if name else f"GPU {index} ({capability})"


@check("EL501", Severity.ERROR)
def no_kernels(env: Env) -> Iterator[Fault]:
    """torch has no kernels for this GPU.

    The first operation stops with "no kernel image is available for execution on the device",
    although `torch.cuda.is_available()` is True. Machine code runs on GPUs of the same major
    compute capability with an equal or higher minor one; newer GPUs need PTX in the build, which
    the published wheels do not carry, and CUDA libraries that know the GPU. New cards need a new
    CUDA variant, old cards an old one: each release drops architectures from some variants.

    To do: install a variant whose arch list covers the GPU. The hint names one.
    """
    gpus = _gpus(env)
    arches = reading.torch_arches(env)
    for index, found in gpus:
        how = fit(found.value, arches.names)
        if how is None:
            raise UndecidedError("torch.arch_list", "holds no target of this GPU's kind")
        if how == "native" or (how == "ptx" and not _libraries_predate(env, found.value)):
            continue
        yield Fault(
            subject=f"gpus.{index}.compute_capability",
            message=(
                f"torch has no kernels for {_name(env, index, found.value)}: it is built for "
                f"{listed(arches.names)}. The first GPU operation will fail."
            ),
            hint=_other_build_hint(env, found.value),
            evidence=(found.path, *arches.paths, "torch.version", "torch.cuda", "torch.hip"),
            sources=arches.sources,
            explains=("gpus.*", "torch.cuda_available"),
        )


def _libraries_predate(env: Env, capability: str) -> bool:
    """PTX of torch would compile, but cuBLAS and cuDNN of that CUDA do not know the GPU."""
    arch, cuda = gpu_arch(capability), reading.torch_cuda(env)
    return bool(arch and cuda and versions.below(cuda.value, arch.min_cuda))


@check("EL502", Severity.WARNING)
def only_ptx(env: Env) -> Iterator[Fault]:
    """torch runs on this GPU only by compiling PTX at the first start.

    The build has no machine code for the GPU, so the driver compiles every kernel when it is first
    used: a start of many minutes, a cache of hundreds of megabytes, and slower kernels.

    To do: install a variant with machine code for the GPU.
    """
    gpus = _gpus(env)
    arches = reading.torch_arches(env)
    for index, found in gpus:
        if fit(found.value, arches.names) == "ptx" and not _libraries_predate(env, found.value):
            yield Fault(
                subject=f"gpus.{index}.compute_capability",
                message=(
                    f"torch has no machine code for {_name(env, index, found.value)}, only PTX "
                    "that the driver compiles at first use."
                ),
                hint=_other_build_hint(env, found.value),
                evidence=(found.path, *arches.paths, "torch.version", "torch.cuda"),
                sources=arches.sources,
            )


@difference("EL503", Severity.ERROR)
def reference_build_has_no_kernels(pair: Pair) -> Iterator[Fault]:
    """The reference's torch has no kernels for the GPU that is here.

    Making this environment equal to the reference would not help on this GPU.

    To do: agree on a variant whose arch list covers the GPUs of both machines.
    """
    gpus = _gpus(pair.right)
    own, other = reading.torch_cuda(pair.right), reading.torch_cuda(pair.left)
    releases = reading.torch_release(pair.left), reading.torch_release(pair.right)
    if other is None or (own == other and releases[0] == releases[1]):
        raise DoesNotApplyError("the same build on both sides")
    try:
        arches = reading.torch_arches(pair.left)
    except UndecidedError as error:
        raise DoesNotApplyError(error.path) from error
    for index, found in gpus:
        if fit(found.value, arches.names) == "none":
            yield Fault(
                subject=f"gpus.{index}.compute_capability",
                message=(
                    f"{REFERENCE.capitalize()}'s torch has no kernels for "
                    f"{_name(pair.right, index, found.value)}, the GPU in {HERE}: it is built "
                    f"for {listed(arches.names)}."
                ),
                hint=_other_build_hint(pair.left, found.value),
                evidence=("torch.version", "torch.cuda", "torch.arch_list"),
                sources=arches.sources,
            )


@difference("EL504", Severity.WARNING)
def tf32_step(pair: Pair) -> Iterator[Fault]:
    """One GPU can use TF32 and the other cannot.

    From compute capability 8.0 on, float32 convolutions (and matrix products in torch 1.7 to 1.11)
    are computed with 10 bits of mantissa by default; older cards always compute in full float32.
    The same script gives results that differ by about 1e-3 relative.

    To do: switch TF32 off on both sides where it matters:
    `torch.backends.cuda.matmul.allow_tf32 = False; torch.backends.cudnn.allow_tf32 = False`, or
    NVIDIA_TF32_OVERRIDE=0 for libraries without such a switch. Or loosen the tolerance.
    """
    left, right = _tf32_capable(pair.left), _tf32_capable(pair.right)
    if left is None or right is None or left[0] == right[0]:
        return
    if _tf32_forbidden(pair.left) and _tf32_forbidden(pair.right):
        return
    can, cannot = (REFERENCE, HERE) if left[0] else (HERE, REFERENCE)
    yield Fault(
        subject=left[1],
        message=(
            f"The GPU in {can} computes float32 with TF32 by default where torch allows it, the one "
            f"in {cannot} cannot ({left[2]} against {right[2]}): float32 results differ by about "
            "1e-3 relative."
        ),
        hint="torch.backends.cuda.matmul.allow_tf32 = False and "
        "torch.backends.cudnn.allow_tf32 = False, or NVIDIA_TF32_OVERRIDE=0",
        evidence=(right[1], "torch.release", "env.NVIDIA_TF32_OVERRIDE"),
        explains=("gpus.*.name", "gpus.*.compute_capability"),
    )


def _tf32_capable(env: Env) -> tuple[bool, str, str] | None:
    """Whether the first GPU has TF32, and the path and value that say so."""
    if not env.peek("gpus"):
        return None
    found = reading.capability(env, 0)
    pair = capability_pair(found.value) if found else None
    return None if found is None or pair is None else (pair >= (8, 0), found.path, found.value)


def _tf32_forbidden(env: Env) -> bool:
    switches = "torch.switches."
    return env.peek("env.NVIDIA_TF32_OVERRIDE") == "0" or (
        env.peek(f"{switches}matmul_allow_tf32") is False
        and env.peek(f"{switches}cudnn_allow_tf32") is False
    )


@difference("EL505", Severity.WARNING)
def smaller_memory(pair: Pair) -> Iterator[Fault]:
    """The GPU here has less memory.

    A run that fits on the reference's card can run out of memory here. `envlock memory` computes
    from a recorded run what another card needs.

    To do: lower the batch size, or run on a card of the same size.
    """
    left, right = pair.left.peek("gpus.0.memory_bytes"), pair.right.peek("gpus.0.memory_bytes")
    if left is None or right is None:
        raise DoesNotApplyError("gpus.0.memory_bytes")
    if right < left * 0.98:  # drivers differ in what they reserve
        yield Fault(
            subject="gpus.0.memory_bytes",
            message=f"The GPU has {left / _GIB:.1f} GiB in {REFERENCE} and {right / _GIB:.1f} GiB "
            f"in {HERE}: what fits there can run out of memory here.",
            hint="envlock memory SNAPSHOT computes what a recorded run needs on a smaller card",
            evidence=("gpus.0.name",),
        )


@check("EL511", Severity.ERROR)
def ecc_errors(env: Env) -> Iterator[Fault]:
    """The GPU reports uncorrectable memory errors.

    CUDA stops with "uncorrectable ECC error encountered", or wrong numbers went unnoticed before.
    It is the hardware, not the software.

    To do: reset the GPU or reboot once; if errors come back, take the GPU out of service.
    """
    if reading.gpu_count(env) == 0:
        raise DoesNotApplyError("no GPU")
    counts = [env.peek(f"gpus.{i}.ecc_uncorrected") for i in range(reading.gpu_count(env))]
    if all(count is None for count in counts):
        env.need("gpus.0.ecc_uncorrected")
    for index, count in enumerate(counts):
        if count:
            yield Fault(
                subject=f"gpus.{index}.ecc_uncorrected",
                message=f"GPU {index} has counted uncorrectable memory errors since the driver was "
                f"loaded ({count}): the hardware is at fault.",
                hint="reset the GPU or reboot once; if it comes back, take the GPU out of service",
                evidence=(f"gpus.{index}.name",),
            )


@check("EL512", Severity.INFO)
def mig(env: Env) -> Iterator[Fault]:
    """The GPU is divided into MIG instances.

    A CUDA process uses a single instance, whatever their number; this is a limit of CUDA and no
    fault. Memory and compute units are those of the instance, not of the card.

    To do: start one process per instance, each with its own CUDA_VISIBLE_DEVICES.
    """
    for index in range(reading.gpu_count(env)):
        if env.peek(f"gpus.{index}.mig"):
            yield Fault(
                subject=f"gpus.{index}.mig",
                message="MIG is on: a process sees one instance, with its share of the memory.",
                hint="one process per instance, each with its own CUDA_VISIBLE_DEVICES",
                evidence=(f"gpus.{index}.name",),
            )
