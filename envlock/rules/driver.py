"""The NVIDIA driver: old enough to fail, mixed, hidden by a container, or in the way."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import DriverFloor, cuda_of_driver, driver_floor, versions
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

_CONSUMER = re.compile(r"geforce|titan|\b[rg]tx \d{3,4}\b", re.IGNORECASE)
"""Products on which a forward-compatibility libcuda refuses to work."""

_SXM = re.compile(r"sxm|h100 80gb hbm3|h200|\bh20\b|\bb[23]00\b", re.IGNORECASE)
"""Products that hang on NVSwitch when eight of them stand in one machine."""


def too_old(env: Env, cuda: str) -> tuple[str, str] | None:
    """(path, value) of the driver fact that shows it cannot run programs built for ``cuda``.

    None: it can. From CUDA 11 on any driver of the same CUDA major does, before each minor release
    had its own floor. Undecided where neither version nor CUDA level of the driver says it.
    """
    driver, level = env.peek("driver.version"), env.peek("driver.cuda")
    floor = driver_floor(cuda)
    if driver and floor is not None:
        if versions.below(driver, floor.driver):
            return "driver.version", driver
        if versions.at_least(driver, floor.driver):
            return None
    need, have = versions.minor_of(cuda), versions.minor_of(level) if level else None
    if level and need is not None and have is not None:
        short = have[0] < need[0] if need[0] >= 11 else have < need
        return ("driver.cuda", level) if short else None
    if driver and floor is None:
        raise UndecidedError("driver.version", f"no row for the drivers of CUDA {cuda}")
    env.need("driver.version")
    if driver and floor is not None and versions.numbers(driver) is not None:
        raise UndecidedError(
            "driver.version", f"{driver} may be older or newer than {floor.driver}: give all of it"
        )
    raise UndecidedError("driver.version", "the text is no version")


def floor_text(floor: DriverFloor | None, cuda: str) -> str:
    if floor is None:
        return f"CUDA {cuda} needs a driver of its own major release"
    if floor.by_minor_compat:
        return f"CUDA {cuda.partition('.')[0]}.x needs driver {floor.driver} or newer"
    return f"CUDA {cuda} needs driver {floor.driver} or newer"


def _older_build_hint(env: Env, floor: DriverFloor | None) -> str:
    driver, level = env.peek("driver.version"), env.peek("driver.cuda")
    usable = level or (cuda_of_driver(driver) if driver else None)
    update = f"update the driver to {floor.driver} or newer" if floor else "update the driver"
    if usable is None:
        return update
    major = versions.major(usable) or 0
    what = f"CUDA {major}.x" if major >= 11 else f"CUDA {usable} or older"
    return f"install the torch build for {what} (its index tag begins with cu{major}), or {update}"


def _compat_helps(env: Env, cuda: str) -> bool:
    """A forward-compatibility libcuda replaces the driver's, on the GPUs that allow it."""
    compat, floor = env.peek("driver.compat"), driver_floor(cuda)
    return bool(compat and floor and versions.at_least(compat, floor.driver))


@check("EL401", Severity.ERROR)
def below_floor(env: Env) -> Iterator[Fault]:
    """The driver is too old for the CUDA release that torch was built for.

    `torch.cuda.is_available()` is False, or the first CUDA call says that the driver version is
    insufficient. The figure that counts is the minor-version-compatibility floor: since CUDA 11
    any driver of the same CUDA major runs every minor release. The newer driver that ships with a
    toolkit is not required. torch prints the driver's CUDA level as a number: 12080 is 12.8.

    To do: install the torch build for an older CUDA major, or update the driver on the host; a
    container uses the host's driver.
    """
    cuda = reading.need_torch_cuda(env)
    short = too_old(env, cuda.value)
    if short is None or _compat_helps(env, cuda.value):
        return
    floor = driver_floor(cuda.value)
    path, value = short
    name = "driver" if path == "driver.version" else "driver's CUDA level"
    yield Fault(
        subject=path,
        message=(
            f"The {name} is {value}, too old for torch's CUDA {cuda.value}: "
            f"{floor_text(floor, cuda.value)}. torch will not see the GPU."
        ),
        hint=_older_build_hint(env, floor),
        evidence=(cuda.path, "torch.version", "driver.version", "driver.cuda"),
        sources=floor.source if floor else (),
        explains=("torch.cuda_available", "driver.cuda", "driver.version"),
    )


@check("EL403", Severity.ERROR)
def forward_compat(env: Env) -> Iterator[Fault]:
    """A newer libcuda from an image is used on a GPU that does not allow it (error 804).

    CUDA images carry a `compat` folder with the user-mode driver of their own CUDA release. It
    works on data center GPUs only; on GeForce and TITAN cards CUDA stops with "forward
    compatibility was attempted on non supported HW". The compat library must also not be older
    than the kernel module.

    To do: update the host's driver so that the compat library is not needed, take an image whose
    CUDA the driver supports, or remove the compat folder from the library path.
    """
    names = [gpu.name for gpu in env.need("gpus") if isinstance(gpu.name, str)]
    consumer = next((i for i, name in enumerate(names) if _CONSUMER.search(name)), None)
    driver = env.need("driver.version")
    if consumer is None:
        raise DoesNotApplyError("no consumer GPU")
    compat = env.find("driver.compat")
    if isinstance(compat, str):
        newer = versions.below(driver, compat)
        what = f"driver {compat} in the compat folder is loaded instead of the host's {driver}"
    else:
        image = _newer_image_cuda(env, driver)
        newer = image is not None and not env.lacks("driver.compat")
        what = f"the image's CUDA {image} is newer than the host's driver {driver} supports"
    if newer:
        yield Fault(
            subject="driver.version",
            message=(
                f"{what.capitalize()}, so a forward-compatibility libcuda is tried, which a "
                f"{names[consumer]} refuses (error 804)."
            ),
            hint="update the host's driver, or take an image of a CUDA release that it supports",
            evidence=("driver.compat", "toolkit.system_cuda", f"gpus.{consumer}.name"),
            explains=("torch.cuda_available",),
        )


def _newer_image_cuda(env: Env, driver: str) -> str | None:
    """The image's CUDA, where the host's driver is older than that release's own driver."""
    image = env.peek("toolkit.system_cuda")
    supported = env.peek("driver.cuda") or cuda_of_driver(driver)
    if not (image and supported and env.peek("system.container")):
        return None
    need, have = versions.minor_of(image), versions.minor_of(supported)
    return image if need and have and need > have else None


@check("EL404", Severity.ERROR)
def mixed_driver(env: Env) -> Iterator[Fault]:
    """The loaded kernel module and the user-mode driver are of different versions.

    An upgrade replaced the libraries while the old module stays loaded, or a container keeps the
    libraries of the driver that was there when it started. NVML fails with "Driver/library
    version mismatch" and CUDA with error 803.

    To do: finish the upgrade and reload the module (or reboot); restart the container.
    """
    module, user = env.need("driver.kernel_module"), env.need("driver.version")
    if module == user or env.peek("driver.compat"):
        return
    yield Fault(
        subject="driver.kernel_module",
        message=(
            f"The loaded kernel module is {module}, the driver libraries are {user}. "
            "CUDA and NVML do not start with such a mix."
        ),
        hint="finish the driver upgrade and reload the module or reboot; restart containers",
        evidence=("driver.version", "driver.nvml_error"),
        explains=("driver.*", "torch.cuda_available", "gpus", "gpus.*"),
    )


@check("EL405", Severity.ERROR)
def nvml_fails(env: Env) -> Iterator[Fault]:
    """The driver's management library cannot start.

    In a container, "Unknown Error" means that the GPU was taken away while the container ran:
    systemd manages its cgroup and dropped the device rules on a daemon-reload, because /dev/char
    has no links for the NVIDIA devices. Outside, the module is not loaded or does not fit.

    To do: in a container, create it anew, and on the host add the /dev/char links (udev rule of
    the NVIDIA container toolkit) or use the cgroupfs driver. Outside, load or reinstall the driver.
    """
    error = env.need("driver.nvml_error")
    inside = bool(env.peek("system.container"))
    lost = inside and "unknown error" in error.lower()
    yield Fault(
        subject="driver.nvml_error",
        message=f"NVML cannot start: {error}."
        + (" The container has lost its GPUs since it was started." if lost else ""),
        hint=(
            "create the container anew; on the host, nvidia-ctk system create-dev-char-symlinks"
            if lost
            else "load the kernel module (modprobe nvidia), or reinstall the driver"
        ),
        evidence=("system.container",),
        explains=("torch.cuda_available", "gpus", "gpus.*"),
    )


@check("EL407", Severity.ERROR)
def fabric_manager(env: Env) -> Iterator[Fault]:
    """The fabric manager does not run on a machine whose GPUs are joined by NVSwitch.

    CUDA stops with error 802, "system not yet initialized", while nvidia-smi works.

    To do: install nvidia-fabricmanager of exactly the driver's version and start its service.
    """
    gpus = env.need("gpus")
    joined = [i for i, g in enumerate(gpus) if isinstance(g.name, str) and _SXM.search(g.name)]
    if len(joined) < 8:
        raise DoesNotApplyError("no eight GPUs on NVSwitch")
    if not env.known("driver.fabric_manager"):
        driver = env.peek("driver.version")
        branch = f"-{driver.partition('.')[0]}" if driver else ""
        yield Fault(
            subject="driver.fabric_manager",
            message=(
                f"{len(joined)} x {gpus[joined[0]].name}, but no fabric manager runs: CUDA will "
                "not initialise (error 802)."
            ),
            hint=f"install nvidia-fabricmanager{branch} of the driver's own version and start it",
            evidence=(f"gpus.{joined[0]}.name",),
            explains=("torch.cuda_available",),
        )


@check("EL410", Severity.ERROR)
def wsl_driver_path(env: Env) -> Iterator[Fault]:
    """Under WSL the driver's libraries are hidden, or not found.

    They belong to the Windows driver and live in /usr/lib/wsl/lib. A distribution's own folder
    before it in LD_LIBRARY_PATH hides them; programs that search LD_LIBRARY_PATH alone do not
    find them where the variable is not set and the loader's cache does not list them.

    To do: put /usr/lib/wsl/lib first in LD_LIBRARY_PATH, or unset the variable.
    """
    if not env.need("system.wsl"):
        raise DoesNotApplyError("not WSL")
    path = env.known("env.LD_LIBRARY_PATH")
    folders = [folder.rstrip("/") for folder in (path or "").split(":") if folder]
    wsl = next((i for i, folder in enumerate(folders) if folder.endswith("/wsl/lib")), None)
    system = [
        i for i, f in enumerate(folders) if re.match(r"(?:/usr)?/lib(?:64)?(?:/[\w-]+-gnu)?$", f)
    ]
    found_by_loader = env.peek("driver.libcuda")
    hidden = bool(system) and (wsl is None or system[0] < wsl)
    unseen = path is None and found_by_loader is None
    if (hidden and found_by_loader != "wsl") or unseen:
        yield Fault(
            subject="env.LD_LIBRARY_PATH",
            message=(
                f"LD_LIBRARY_PATH puts {folders[system[0]]} before /usr/lib/wsl/lib, where WSL "
                "keeps the libraries of the Windows driver, so they are hidden."
                if hidden
                else "WSL keeps libcuda in /usr/lib/wsl/lib, which is not on LD_LIBRARY_PATH."
            ),
            hint="unset LD_LIBRARY_PATH"
            if hidden
            else "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",
            evidence=("system.wsl", "driver.libcuda"),
            explains=("torch.cuda_available",),
        )


@difference("EL421", Severity.ERROR)
def reference_build_needs_newer(pair: Pair) -> Iterator[Fault]:
    """The reference's torch cannot run with the driver that is here.

    Making this environment equal to the reference would not help: its CUDA build needs a newer
    driver than this machine has.

    To do: update the driver, or agree on a build for an older CUDA major on both sides.
    """
    cuda = reading.torch_cuda(pair.left)
    own = reading.torch_cuda(pair.right)
    if cuda is None or (own is not None and own.value == cuda.value):
        raise DoesNotApplyError("torch.cuda")
    if not (pair.right.peek("driver.version") or pair.right.peek("driver.cuda")):
        raise DoesNotApplyError("driver.version")
    short = too_old(pair.right, cuda.value)
    if short is None or _compat_helps(pair.right, cuda.value):
        return
    floor = driver_floor(cuda.value)
    yield Fault(
        subject=short[0],
        message=(
            f"{REFERENCE.capitalize()}'s torch is built for CUDA {cuda.value}, and "
            f"{HERE} has {short[0]} {short[1]}: {floor_text(floor, cuda.value)}. "
            "The same build would not run here."
        ),
        hint=_older_build_hint(pair.right, floor),
        evidence=("torch.cuda", "driver.version", "driver.cuda"),
        sources=floor.source if floor else (),
    )


@difference("EL422", Severity.INFO)
def driver_differs(pair: Pair) -> Iterator[Fault]:
    """The driver version differs.

    A driver that meets torch's floor (EL401) runs the same code. It compiles PTX itself and owns
    the context, so the memory that is gone before the first tensor can differ by some tens of
    megabytes.

    To do: nothing, as long as memory is not tight.
    """
    left, right = pair.left.peek("driver.version"), pair.right.peek("driver.version")
    if left is None or right is None:
        raise DoesNotApplyError("driver.version")
    if left != right:
        yield Fault(
            subject="driver.version",
            message=f"The driver is {left} in {REFERENCE} and {right} in {HERE}. Both run this "
            "torch unless another finding says so; the context's own memory can differ.",
            evidence=("driver.cuda",),
            explains=("driver.cuda", "driver.kernel_module"),
        )
