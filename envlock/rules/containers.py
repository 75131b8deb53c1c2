"""The driver as containers meet it: what an image demands, and what the host's engine can give."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import driver_floor, versions
from envlock.findings import Severity
from envlock.rules import reading
from envlock.rules.base import DoesNotApplyError, Env, Fault, UndecidedError, check
from envlock.rules.driver import floor_text, too_old


@check("EL402", Severity.ERROR)
def image_needs_newer(env: Env) -> Iterator[Fault]:
    """The CUDA release of this image needs a newer driver than the host has.

    A container brings its CUDA libraries and uses the host's driver. Within one CUDA major that
    works with any driver of the major; across majors it does not.

    To do: update the host's driver, or build the image on an older CUDA base.
    """
    env.need("system.container")
    image = env.need("toolkit.system_cuda")
    if reading.torch_cuda(env) is not None:
        raise DoesNotApplyError("torch brings its own CUDA libraries")
    short = too_old(env, image)
    if short is None:
        return
    floor = driver_floor(image)
    yield Fault(
        subject=short[0],
        message=(
            f"The image has CUDA {image}, the host's driver has {short[1]} ({short[0]}): "
            f"{floor_text(floor, image)}."
        ),
        hint="update the host's driver"
        + (f" to {floor.driver} or newer" if floor else "")
        + ", or take an image of an older CUDA",
        evidence=("toolkit.system_cuda", "driver.version", "driver.cuda", "system.container"),
        sources=floor.source if floor else (),
        explains=("torch.cuda_available",),
    )


def _condition_holds(condition: str, env: Env) -> bool | None:
    found = re.fullmatch(r"(cuda|driver)(>=|<=|>|<|=)(\d[\d.]{0,20})", condition)
    if found is None:
        return None  # brand, arch: not decided here
    have = env.peek("driver.cuda" if found.group(1) == "cuda" else "driver.version")
    value, wanted = versions.numbers(have) if have else None, versions.numbers(found.group(3))
    if value is None or wanted is None:
        return None
    value = value[: len(wanted)]
    return {
        ">=": value >= wanted,
        "<=": value <= wanted,
        ">": value > wanted,
        "<": value < wanted,
        "=": value == wanted,
    }[found.group(2)]


@check("EL408", Severity.ERROR)
def image_requirement(env: Env) -> Iterator[Fault]:
    """The image demands a newer driver than this host has (NVIDIA_REQUIRE_CUDA).

    The container runtime reads the variable and refuses to start the container: "unsatisfied
    condition: cuda>=...". Alternatives in it are separated by blanks, conditions that must hold
    together by commas.

    To do: update the host's driver, or take an image of an older CUDA. NVIDIA_DISABLE_REQUIRE=1
    skips the check at your own risk.
    """
    text = env.need("env.NVIDIA_REQUIRE_CUDA")
    if (env.peek("env.NVIDIA_DISABLE_REQUIRE") or "").lower() in {"1", "true"}:
        raise DoesNotApplyError("NVIDIA_DISABLE_REQUIRE is set")
    groups = [[_condition_holds(c, env) for c in group.split(",")] for group in text.split()]
    if not groups or any(False not in group for group in groups):
        if groups and all(None in group for group in groups):
            raise UndecidedError("driver.cuda", "not recorded")
        return
    yield Fault(
        subject="env.NVIDIA_REQUIRE_CUDA",
        message=f"The image requires {text.split()[0]}; this host's driver does not meet it.",
        hint="update the host's driver, or take an image of an older CUDA",
        evidence=("driver.version", "driver.cuda"),
    )


@check("EL409", Severity.ERROR)
def container_toolkit(env: Env) -> Iterator[Fault]:
    """A container engine is here, but the NVIDIA container toolkit is not.

    `docker run --gpus all` stops with 'could not select device driver "" with capabilities'.

    To do: install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`
    and restart the engine.
    """
    if env.known("system.container_toolkit") is not None:
        return
    if env.lacks("driver") or env.lacks("driver.version") or env.find("gpus") == []:
        raise DoesNotApplyError("no NVIDIA driver or GPU on this host")
    yield Fault(
        subject="system.container_toolkit",
        message="The NVIDIA container toolkit is not installed: containers get no GPU.",
        hint="install nvidia-container-toolkit; nvidia-ctk runtime configure --runtime=docker",
        evidence=("driver.version",),
    )


@check("EL411", Severity.ERROR, in_rebuild=False)
def no_driver_inside(env: Env) -> Iterator[Fault]:
    """A CUDA torch runs in a container that has no driver.

    The container was started without GPU access, so the runtime mounted neither libcuda nor the
    device nodes: "Found no NVIDIA driver on your system". When an image is only verified this is
    as it should be, and not reported.

    To do: `docker run --gpus all`; where that fails, install the NVIDIA container toolkit (EL409).
    """
    kind = reading.torch_kind(env)
    if kind is None or kind.value != "cuda" or not env.need("system.container"):
        raise DoesNotApplyError("no CUDA torch in a container")
    if env.need("torch.cuda_available") or env.known("gpus"):
        return
    gone = next((p for p in ("driver", "driver.version", "driver.libcuda") if env.lacks(p)), None)
    if gone is not None:
        yield Fault(
            subject=gone,
            message="torch is a CUDA build, and the container has no NVIDIA driver: it was started "
            "without GPU access.",
            hint="docker run --gpus all",
            evidence=("system.container", "torch.cuda_available", kind.path),
            explains=("torch.cuda_available",),
        )
