"""What the driver says about the GPU before this process touches it: its library, by ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Dict, Iterator

_INSUFFICIENT_SIZE = 7


class _Memory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


@contextlib.contextmanager
def device() -> Iterator[Any]:
    """The library and the handle of the GPU that torch calls 0. Raises OSError without either."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    _check(nvml.nvmlInit_v2(), "nvmlInit")
    try:
        handle = ctypes.c_void_p()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
        if visible.isdigit():
            code = nvml.nvmlDeviceGetHandleByIndex_v2(int(visible), ctypes.byref(handle))
        else:
            code = nvml.nvmlDeviceGetHandleByUUID(visible.encode(), ctypes.byref(handle))
        _check(code, "the GPU's handle")
        yield nvml, handle
    finally:
        nvml.nvmlShutdown()


def _check(code: int, what: str) -> None:
    if code != 0:
        raise OSError("the driver library refused %s with code %d" % (what, code))


def used_bytes() -> int:
    """In use on the whole GPU, whoever uses it."""
    with device() as (nvml, handle):
        memory = _Memory()
        _check(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)), "memory")
        return int(memory.used)


def neighbours() -> Dict[str, int]:
    """Compute processes on the GPU and the memory in use, before this process has a context.

    The call is given no room on purpose: it then answers with the number of processes alone. Seen
    from a container the driver hides the others, so their memory is looked at as well.
    """
    with device() as (nvml, handle):
        count = ctypes.c_uint(0)
        code = nvml.nvmlDeviceGetComputeRunningProcesses(handle, ctypes.byref(count), None)
        if code != _INSUFFICIENT_SIZE:
            _check(code, "the list of processes")
    return {"processes": int(count.value), "used": used_bytes()}
