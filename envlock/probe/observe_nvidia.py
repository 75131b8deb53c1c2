"""Driver and GPUs: from files first, then from NVML and libcuda in a child process.

No ``cuInit`` and no context: only calls that answer without touching a GPU's memory. UUIDs, serial
numbers and bus ids are never asked for.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from types import ModuleType

import observe_common
import observe_libraries

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown

NOT_LINUX = "read on Linux only"
_OK, _NOT_SUPPORTED = 0, 3
NVML_NAMES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
_WSL_LIBCUDA = "/usr/lib/wsl/lib/libcuda.so.1"
_CUDA_NAMES = ("libcuda.so.1", _WSL_LIBCUDA)
if os.name == "nt":
    NVML_NAMES, _CUDA_NAMES = ("nvml.dll",), ("nvcuda.dll",)


# --- in the child -----------------------------------------------------------------------------


def ask_driver(*, state: bool) -> dict[str, object]:
    """What NVML and libcuda say. Runs in a child: a broken driver may crash or hang here.

    ``state``: also what each GPU does at this moment.
    """
    import ctypes

    answer = {"cuda": _libcuda_version(ctypes), "nvml_error": ABSENT}
    nvml = open_library(ctypes, NVML_NAMES)
    if nvml is None:
        answer["nvml_error"] = "the NVML library is not there"
        return answer
    code = getattr(nvml, "nvmlInit_v2", nvml.nvmlInit)()
    if code != _OK:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        answer["nvml_error"] = (nvml.nvmlErrorString(code) or b"?").decode("ascii", "replace")
        return answer
    try:
        return _ask_nvml(Nvml(ctypes, nvml), answer, state=state)
    finally:
        nvml.nvmlShutdown()


def open_library(ctypes: ModuleType, names: tuple[str, ...]) -> object:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _libcuda_version(ctypes: ModuleType) -> object:
    library = open_library(ctypes, _CUDA_NAMES)
    if library is None:
        return ABSENT
    number = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(number)) != _OK or not number.value:
        return unknown("cuDriverGetVersion failed")
    return cuda_release(number.value)


def cuda_release(number: int) -> str:
    return "%d.%d" % (number // 1000, number % 1000 // 10)


def _first(outs: Sequence[object]) -> object:
    return outs[0].value


class Nvml:
    """NVML calls whose failure is a fact: not supported is absent, anything else unknown."""

    def __init__(self, ctypes: ModuleType, library: object) -> None:
        self.ctypes, self.library = ctypes, library

    def fact(
        self,
        function: str,
        *arguments: object,
        outs: Sequence[object] = (),
        convert: Callable[[Sequence[object]], object] = _first,
    ) -> object:
        """Call ``function(*arguments, *outs)``; without ``outs`` there is one unsigned number."""
        outs = outs or [self.ctypes.c_uint()]
        call = getattr(self.library, function, None)
        if call is None:
            return unknown("this driver's NVML has no %s" % function)
        code = call(*arguments, *[self.ctypes.byref(out) for out in outs])
        if code == _NOT_SUPPORTED:
            return ABSENT
        if code != _OK:
            return unknown("%s failed with NVML error %d" % (function, code))
        return convert(outs)

    def text(self, function: str, *arguments: object) -> object:
        buffer = self.ctypes.create_string_buffer(96)
        code = getattr(self.library, function)(*arguments, buffer, 96)
        if code != _OK:
            return unknown("%s failed with NVML error %d" % (function, code))
        return buffer.value.decode("utf-8", "replace")


def _ask_nvml(nvml: Nvml, answer: dict[str, object], *, state: bool) -> dict[str, object]:
    ctypes = nvml.ctypes
    answer["version"] = nvml.text("nvmlSystemGetDriverVersion")
    if answer["cuda"] == ABSENT:
        name = "nvmlSystemGetCudaDriverVersion"
        answer["cuda"] = nvml.fact(
            name, outs=[ctypes.c_int()], convert=lambda outs: cuda_release(outs[0].value)
        )
    count = nvml.fact("nvmlDeviceGetCount_v2")
    if not isinstance(count, int):
        answer["gpus"] = count
        return answer
    answer["gpus"] = [_ask_gpu(nvml, index, state=state) for index in range(count)]
    return answer


def _ask_gpu(nvml: Nvml, index: int, *, state: bool) -> dict[str, object]:
    ctypes = nvml.ctypes
    handle = ctypes.c_void_p()
    code = nvml.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    if code != _OK:
        return {"name": unknown("NVML error %d for this GPU" % code)}

    class Memory(ctypes.Structure):
        _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))

    def flag(function: str, outs: list[object] = 1) -> object:
        numbers = [ctypes.c_uint() for _ in range(outs)]
        return nvml.fact(function, handle, outs=numbers, convert=lambda v: bool(v[0].value))

    def pair(outs: Sequence[object]) -> str:
        return "%d.%d" % (outs[0].value, outs[1].value)

    def memory(field: str) -> object:
        return nvml.fact(
            "nvmlDeviceGetMemoryInfo",
            handle,
            outs=[Memory()],
            convert=lambda outs: getattr(outs[0], field),
        )

    capability = [ctypes.c_int(), ctypes.c_int()]
    gpu = {
        "name": nvml.text("nvmlDeviceGetName", handle),
        "compute_capability": nvml.fact(
            "nvmlDeviceGetCudaComputeCapability", handle, outs=capability, convert=pair
        ),
        "memory_bytes": memory("total"),
        "mig": flag("nvmlDeviceGetMigMode", 2),
        "ecc": flag("nvmlDeviceGetEccMode", 2),
        "ecc_uncorrected": nvml.fact(
            "nvmlDeviceGetTotalEccErrors", handle, 1, 0, outs=[ctypes.c_ulonglong()]
        ),
        "persistence": flag("nvmlDeviceGetPersistenceMode"),
    }
    if state:
        gpu["used_bytes"] = memory("used")
        gpu.update(_gpu_state(nvml, handle))
    return gpu


# nvml.h, nvmlClocksEventReasons: why the clock is not the one that was asked for. Left out: idle.
_SLOWED_BY = {
    0x2: "application-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}
_SM_CLOCK = 1


def slowed_by(mask: int) -> list[str]:
    return [name for bit, name in _SLOWED_BY.items() if mask & bit]


def _gpu_state(nvml: Nvml, handle: object) -> dict[str, object]:
    """Clocks and power limits of the moment; what a GPU or a MIG instance has not is absent."""

    def watts(outs: Sequence[object]) -> int:
        return round(outs[0].value / 1000)

    return {
        "slowed_by": nvml.fact(
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            handle,
            outs=[nvml.ctypes.c_ulonglong()],
            convert=lambda outs: slowed_by(outs[0].value),
        ),
        "sm_clock_mhz": nvml.fact("nvmlDeviceGetClockInfo", handle, _SM_CLOCK),
        "max_sm_clock_mhz": nvml.fact("nvmlDeviceGetMaxClockInfo", handle, _SM_CLOCK),
        "power_limit_w": nvml.fact("nvmlDeviceGetEnforcedPowerLimit", handle, convert=watts),
        "default_power_limit_w": nvml.fact(
            "nvmlDeviceGetPowerManagementDefaultLimit", handle, convert=watts
        ),
    }


# --- in the probe -----------------------------------------------------------------------------


def driver_facts(asked: dict[str, object], machine: observe_libraries.Machine | None) -> object:
    """The driver as a fact; absent where neither a module nor a library of it is found."""
    module, is_open = kernel_module()
    found = machine.find("libcuda.so.1") if machine is not None else None
    libcuda = os.path.realpath(found[0]) if found else None
    wsl = os.path.exists(_WSL_LIBCUDA)
    why = unknown("no NVML to ask")
    if not observe_common.is_value(asked):
        asked, why = {"cuda": asked, "nvml_error": asked}, asked
    nothing = module is None and libcuda is None and not wsl
    if nothing and asked.get("version") is None and asked["cuda"] == ABSENT:
        return ABSENT
    named = re.search(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)$", libcuda or "")
    compat = bool(libcuda and "/compat/" in libcuda)
    file_version = named.group(1) if named else None
    version = asked.get("version")
    if version is None:
        version = (None if compat else file_version) or module or why
    return {
        "version": version,
        "kernel_module": module or _no_module(wsl=wsl),
        "open_module": is_open,
        "cuda": asked["cuda"],
        "libcuda": unknown(NOT_LINUX) if machine is None else _libcuda_class(found, libcuda),
        "compat": (file_version or unknown("its file name has no version")) if compat else ABSENT,
        "nvml_error": asked["nvml_error"],
        "fabric_manager": fabric_manager(),
    }


def kernel_module() -> tuple[str | None, object]:
    """(version of the loaded kernel module or None, whether it is the open one)."""
    text = observe_common.read_text("/proc/driver/nvidia/version") or ""
    found = re.search(
        r"^NVRM version:.*?(?:Kernel Module.*?)\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE
    )
    if found:
        return found.group(1), "Open Kernel Module" in text
    version = (observe_common.read_text("/sys/module/nvidia/version") or "").strip()
    if version:
        return version, unknown("/proc/driver/nvidia/version is not readable")
    return None, ABSENT


def _no_module(*, wsl: bool) -> object:
    if not observe_common.LINUX:
        return unknown(NOT_LINUX)
    return unknown("not visible under WSL") if wsl else ABSENT


def _libcuda_class(found: tuple[str, str] | None, real: str | None) -> object:
    if found is None:
        return "wsl" if os.path.exists(_WSL_LIBCUDA) else ABSENT
    if found[1] == "ld-library-path":
        return "ld-library-path"
    if real.startswith("/usr/lib/wsl/"):
        return "wsl"
    return "cuda-home" if real.startswith("/usr/local/cuda") else "system"


def fabric_manager() -> object:
    """Whether NVIDIA's fabric manager runs; a container does not see the host's processes."""
    for path in glob.iglob("/proc/[0-9]*/comm"):
        if (observe_common.read_text(path, 64) or "").startswith("nv-fabricmanage"):
            return True
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return unknown("not visible from inside a container")
    return False


def gpu_facts(asked: dict[str, object], driver: object) -> tuple[object, bool]:
    """The GPUs, with whether the list is complete."""
    if observe_common.is_value(asked) and asked.get("gpus"):
        return asked["gpus"], isinstance(asked["gpus"], list)
    amd = _amd_gpus()
    if amd:  # after NVIDIA's: a processor with graphics of its own is in this list too
        return amd, True
    if driver == ABSENT:
        return [], observe_common.LINUX
    if not observe_common.is_value(asked):
        return asked, False
    if "gpus" in asked:
        return asked["gpus"], True
    names = []
    for path in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information")):
        model = re.search(
            r"^Model:[ \t]*(.+?)[ \t]*$", observe_common.read_text(path) or "", re.MULTILINE
        )
        if model:
            names.append({"name": model.group(1)})
    return names or unknown("NVML could not be asked"), False


def _amd_gpus() -> list[dict[str, object]]:
    """GPUs that the amdgpu kernel driver lists; processors have no gfx version there."""
    gpus = []
    for folder in sorted(glob.glob("/sys/class/kfd/kfd/topology/nodes/*")):
        text = observe_common.read_text(os.path.join(folder, "properties")) or ""
        found = re.search(r"^gfx_target_version (\d+)$", text, re.MULTILINE)
        if not found or found.group(1) == "0":
            continue
        number = int(found.group(1))  # 90010 is gfx90a: major, minor, step in decimal pairs
        gfx = "gfx%d%x%x" % (number // 10000, number // 100 % 100, number % 100)
        memory = 0
        for bank in glob.glob(os.path.join(folder, "mem_banks", "*", "properties")):
            size = re.search(
                r"^size_in_bytes (\d+)$", observe_common.read_text(bank) or "", re.MULTILINE
            )
            memory += int(size.group(1)) if size else 0
        gpus.append(
            {
                "name": unknown("the kernel driver does not tell"),
                "compute_capability": gfx,
                "memory_bytes": memory or unknown("the kernel driver does not tell"),
            }
        )
    return gpus
