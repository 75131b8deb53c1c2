"""Who holds memory on which GPU, by the driver's library: no context, nothing on a GPU is touched.

Runs in a child of its own: a broken driver may crash or hang.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List

import observe_nvidia

INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = 2**64 - 1
MOST_PROCESSES = 512


class Memory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class OldProcess(ctypes.Structure):
    """``nvmlProcessInfo_v1_t``."""

    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong)]


class Process(ctypes.Structure):
    """``nvmlProcessInfo_v2_t``, which v3 of the calls still fills."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def ask() -> List[Dict[str, Any]]:
    """One entry a GPU. Raises OSError without a driver."""
    nvml = observe_nvidia.open_library(ctypes, observe_nvidia.NVML_NAMES)
    if nvml is None:
        raise OSError("there is no NVIDIA driver library (libnvidia-ml.so.1)")
    check(nvml.nvmlInit_v2(), "nvmlInit")
    try:
        count = ctypes.c_uint()
        check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "the number of GPUs")
        return [gpu(nvml, index) for index in range(min(count.value, 64))]
    finally:
        nvml.nvmlShutdown()


def check(code: int, what: str) -> None:
    if code != 0:
        raise OSError("the driver library refused %s with code %d" % (what, code))


def gpu(nvml: Any, index: int) -> Dict[str, Any]:
    handle, memory = ctypes.c_void_p(), Memory()
    check(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)), "a GPU's handle")
    check(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)), "a GPU's memory")
    held: Dict[int, Any] = {}
    for kind in ("Compute", "Graphics"):
        held.update(processes(nvml, handle, kind))
    return {
        "index": index,
        "total": int(memory.total),
        "used": int(memory.used),
        "processes": [[pid, held[pid]] for pid in sorted(held)],
    }


def processes(nvml: Any, handle: Any, kind: str) -> List[Any]:
    for suffix, layout in (("_v3", Process), ("_v2", Process), ("", OldProcess)):
        call = getattr(nvml, "nvmlDeviceGet%sRunningProcesses%s" % (kind, suffix), None)
        if call is None:
            continue
        count = ctypes.c_uint(MOST_PROCESSES)
        found = (layout * MOST_PROCESSES)()
        code = call(handle, ctypes.byref(count), found)
        if code == INSUFFICIENT_SIZE:
            raise OSError("more than %d processes use the GPU" % MOST_PROCESSES)
        check(code, "the list of processes")
        return [
            (int(one.pid), None if one.used == NOT_AVAILABLE else int(one.used))
            for one in found[: count.value]
        ]
    raise OSError("the driver library has no list of processes")
