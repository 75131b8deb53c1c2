"""Variables that choose devices or are demanded by them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import fit, versions
from envlock.findings import Severity
from envlock.lock.observation import Absent, Unknown
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

_WORKSPACES = frozenset({":4096:8", ":16:8"})
"""The two values with which cuBLAS is deterministic (torch's documentation on reproducibility)."""


@check("EL721", Severity.ERROR)
def workspace_for_determinism(env: Env) -> Iterator[Fault]:
    """Deterministic algorithms are required, but cuBLAS is not told to be deterministic.

    With CUDA 10.2 or newer the first matrix product stops and asks for CUBLAS_WORKSPACE_CONFIG.

    To do: `export CUBLAS_WORKSPACE_CONFIG=:4096:8` before the process starts (24 MiB a stream), or
    `:16:8`, which is smaller and slower.
    """
    if not env.need("torch.switches.deterministic_algorithms"):
        raise DoesNotApplyError("deterministic algorithms are off")
    kind = reading.torch_kind(env)
    if kind is not None and kind.value != "cuda":
        raise DoesNotApplyError("no CUDA")
    value = env.known("env.CUBLAS_WORKSPACE_CONFIG")
    if value in _WORKSPACES:
        return
    yield Fault(
        subject="env.CUBLAS_WORKSPACE_CONFIG",
        message="Deterministic algorithms are on, and CUBLAS_WORKSPACE_CONFIG is "
        f"{value or 'not set'}: the first matrix product on the GPU will stop.",
        hint="export CUBLAS_WORKSPACE_CONFIG=:4096:8",
        evidence=("torch.switches.deterministic_algorithms",),
    )


@check("EL722", Severity.ERROR)
def no_such_device(env: Env) -> Iterator[Fault]:
    """CUDA_VISIBLE_DEVICES names a GPU that this machine does not have.

    An index at or above the number of GPUs hides itself and everything after it; where it is the
    first one, no GPU is visible, although nvidia-smi shows them. The value fitted another machine.

    To do: name an index that exists, or unset the variable.
    """
    value = env.need("env.CUDA_VISIBLE_DEVICES")
    count = reading.gpu_count(env)
    if count == 0:
        raise DoesNotApplyError("no GPU")
    wanted = [entry.strip() for entry in value.split(",")]
    bad = [e for e in wanted if re.fullmatch(r"-?\d{1,4}", e) and not 0 <= int(e) < count]
    if bad == ["-1"] and wanted[0] == "-1":
        return  # the usual way to hide every GPU on purpose
    if bad:
        all_hidden = wanted[0] == bad[0]
        yield Fault(
            subject="env.CUDA_VISIBLE_DEVICES",
            message=f"CUDA_VISIBLE_DEVICES is {value}, but this machine has {count} GPU(s), numbered "
            f"from 0: {'no GPU is' if all_hidden else 'only those before it are'} visible.",
            hint="export CUDA_VISIBLE_DEVICES=0, or unset it",
            evidence=("gpus",),
            explains=("torch.cuda_available",),
        )


@check("EL723", Severity.WARNING)
def variable_of_the_runtime(env: Env) -> Iterator[Fault]:
    """NVIDIA_VISIBLE_DEVICES is set outside a container, where nothing reads it.

    It tells the container runtime which GPUs to mount. CUDA itself reads CUDA_VISIBLE_DEVICES.

    To do: set CUDA_VISIBLE_DEVICES instead.
    """
    value = env.need("env.NVIDIA_VISIBLE_DEVICES")
    if env.known("system.container"):
        raise DoesNotApplyError("in a container")
    if value in {"all", "void", "none"} or env.peek("env.CUDA_VISIBLE_DEVICES") is not None:
        return
    yield Fault(
        subject="env.NVIDIA_VISIBLE_DEVICES",
        message=f"NVIDIA_VISIBLE_DEVICES={value} hides nothing outside a container: CUDA reads "
        "CUDA_VISIBLE_DEVICES, which is not set.",
        hint=f"export CUDA_VISIBLE_DEVICES={value}",
        evidence=("env.CUDA_VISIBLE_DEVICES", "system.container"),
    )


@check("EL724", Severity.WARNING)
def order_of_devices(env: Env) -> Iterator[Fault]:
    """A GPU is chosen by number on a machine with different models, without a fixed order.

    CUDA numbers the cards fastest first, nvidia-smi by PCI bus: GPU 1 of the one is not GPU 1 of
    the other, so the job can land on the small card or on the one that drives the display.

    To do: `export CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    """
    chosen = env.need("env.CUDA_VISIBLE_DEVICES")
    names = {gpu.name for gpu in env.need("gpus") if isinstance(gpu.name, str)}
    if len(names) < 2 or not re.search(r"\d", chosen):
        raise DoesNotApplyError("one model of GPU, or none chosen by number")
    if env.known("env.CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        yield Fault(
            subject="env.CUDA_DEVICE_ORDER",
            message=f"CUDA_VISIBLE_DEVICES={chosen} counts the fastest card first, nvidia-smi counts "
            f"by PCI bus, and the models differ ({listed(sorted(names))}): it may be another card.",
            hint="export CUDA_DEVICE_ORDER=PCI_BUS_ID",
            evidence=("env.CUDA_VISIBLE_DEVICES",),
        )


@check("EL725", Severity.ERROR)
def no_peer_to_peer(env: Env) -> Iterator[Fault]:
    """Several GeForce RTX 40 cards, and NCCL is not told to do without peer-to-peer.

    These cards have no peer-to-peer transfer. accelerate (also inside transformers' Trainer)
    refuses to start unless NCCL_P2P_DISABLE and NCCL_IB_DISABLE are set, and with older drivers
    NCCL hangs or returns wrong data. Drivers from 550.40.07 on report it correctly.

    To do: `export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1`; `accelerate launch` does it by itself.
    """
    gpus = env.need("gpus")
    cards = [
        i
        for i, gpu in enumerate(gpus)
        if isinstance(gpu.name, str) and re.search(r"rtx 40(?:\d\d)?\b", gpu.name, re.IGNORECASE)
    ]
    if len(cards) < 2:
        raise DoesNotApplyError("fewer than two RTX 40 cards")
    packages = env.table("packages")
    if not ({"accelerate", "transformers"} & packages.keys()):
        raise DoesNotApplyError("accelerate is not installed")
    driver = env.peek("driver.version")
    if driver and versions.at_least(driver, "550.40.07"):
        return
    unset = [n for n in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE") if env.known(f"env.{n}") != "1"]
    if unset:
        yield Fault(
            subject=f"env.{unset[0]}",
            message=f"{len(cards)} GeForce RTX 40 cards have no peer-to-peer transfer, and "
            f"{' and '.join(unset)} are not 1: accelerate refuses to start.",
            hint=f"export {' '.join(f'{n}=1' for n in unset)}",
            evidence=(f"gpus.{cards[0]}.name", *(f"env.{n}" for n in unset)),
        )


@check("EL726", Severity.WARNING)
def all_hidden(env: Env) -> Iterator[Fault]:
    """CUDA_VISIBLE_DEVICES is set to nothing, which hides every GPU.

    An empty value is not the same as an unset variable. Where torch sees no GPU for that reason
    although the machine has one, it is an error.

    To do: unset it, or name a GPU.
    """
    if env.need("env.CUDA_VISIBLE_DEVICES").strip():
        return
    if reading.gpu_count(env) == 0:
        raise DoesNotApplyError("no GPU")
    blind = env.peek("torch.cuda_available") is False
    yield Fault(
        subject="env.CUDA_VISIBLE_DEVICES",
        severity=Severity.ERROR if blind else None,
        message="CUDA_VISIBLE_DEVICES is set and empty: no GPU is visible to torch.",
        hint="unset CUDA_VISIBLE_DEVICES",
        evidence=("gpus", "torch.cuda_available"),
        explains=("torch.cuda_available",),
    )


@check("EL727", Severity.ERROR)
def no_compute_capability(env: Env) -> Iterator[Fault]:
    """The container's NVIDIA_DRIVER_CAPABILITIES leave out compute.

    The runtime then mounts nvidia-smi, but not libcuda: the GPU is listed and torch cannot use it.

    To do: set NVIDIA_DRIVER_CAPABILITIES=compute,utility for the container.
    """
    value = env.need("env.NVIDIA_DRIVER_CAPABILITIES")
    if not env.need("system.container"):
        raise DoesNotApplyError("not in a container")
    if not {"compute", "all"} & {part.strip() for part in value.split(",")}:
        yield Fault(
            subject="env.NVIDIA_DRIVER_CAPABILITIES",
            message=f"NVIDIA_DRIVER_CAPABILITIES is {value}: without compute the container has no "
            "libcuda, so torch finds no GPU.",
            hint="docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            evidence=("system.container",),
            explains=("torch.cuda_available", "driver.*"),
        )


@check("EL728", Severity.WARNING)
def extensions_for_other_gpus(env: Env) -> Iterator[Fault]:
    """TORCH_CUDA_ARCH_LIST leaves out the GPU of this machine.

    Extensions that are compiled here get no kernels for it: "no kernel image is available" from the
    extension, while torch itself works.

    To do: add the GPU's compute capability to the list, or unset the variable.
    """
    value = env.need("env.TORCH_CUDA_ARCH_LIST")
    targets = [
        f"{kind}_{major}{minor}"
        for major, minor, ptx in re.findall(r"(\d{1,2})\.(\d)a?(\+PTX)?", value)
        for kind in (("sm", "compute") if ptx else ("sm",))
    ]
    if reading.gpu_count(env) == 0:
        raise DoesNotApplyError("no GPU")
    found = reading.capability(env, 0)
    if found is None or not targets:
        raise UndecidedError("gpus.0.compute_capability", "not recorded")
    if fit(found.value, targets) == "none":
        yield Fault(
            subject="env.TORCH_CUDA_ARCH_LIST",
            message=f"TORCH_CUDA_ARCH_LIST is {value}, and the GPU has compute capability "
            f"{found.value}: extensions compiled here have no kernels for it.",
            hint=f"export TORCH_CUDA_ARCH_LIST={found.value}",
            evidence=(found.path,),
        )


@difference("EL729", Severity.WARNING)
def other_selection(pair: Pair) -> Iterator[Fault]:
    """Devices are chosen or numbered otherwise on a machine with different models of GPU.

    cuda:0 is another card then, with other memory and another compute capability.

    To do: set both variables as the reference has them.
    """
    names = {g.name for g in pair.right.peek("gpus") or [] if isinstance(g.name, str)}
    if len(names) < 2:
        raise DoesNotApplyError("one model of GPU")
    for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"):
        left, right = pair.left.find(f"env.{name}"), pair.right.find(f"env.{name}")
        if isinstance(left, Unknown) or isinstance(right, Unknown) or left == right:
            continue
        texts = ["not set" if isinstance(v, Absent) else v for v in (left, right)]
        yield Fault(
            subject=f"env.{name}",
            message=f"{name} is {texts[0]} in {REFERENCE} and {texts[1]} in {HERE}, where the GPUs "
            f"are of different models ({listed(sorted(names))}): cuda:0 may be another card.",
            hint=f"unset {name}" if isinstance(left, Absent) else f"export {name}={texts[0]}",
            evidence=("gpus.0.name",),
        )
