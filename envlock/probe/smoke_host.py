"""The machine and the settings around the figures: what must agree before they are compared."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from typing import Any, Dict

import observe_common
import observe_machine

SHM = "/dev/shm"  # noqa: S108 - the folder that shared memory lives in, not a place for files
_PR_SET_PDEATHSIG = 1
USER_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "MALLOC_ARENA_MAX",
    "MALLOC_TRIM_THRESHOLD_",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)


def die_with_parent() -> None:
    """So that nothing goes on computing when the host ends the probe: Linux only."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    except (AttributeError, OSError, TypeError):
        pass


def pin(torch: Any, threads: int) -> None:
    """The settings every figure is taken under; the user's own are recorded before (``env``)."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    # The public name for this imports the whole compiler first, which takes two seconds.
    torch._C._set_deterministic_algorithms(True, warn_only=True)  # noqa: SLF001


def plain_attention_only(torch: Any) -> None:
    """The formula instead of a fused kernel: it keeps the whole score matrix."""
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)


def environment(torch: Any) -> Dict[str, Any]:
    """Versions and switches that select the tolerance column and are named in reports."""
    gpu: Any = {"absent": True}
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_name(0)
    return {
        "gpu": gpu,
        "torch": str(torch.__version__),
        "isa": cpu_capability(torch),
        "processor": processor(),
        "libs": libraries(torch),
        "user": user_settings(torch),
        "limits": limits(),
    }


def processor() -> Any:
    """Vendor, family and model. Not the marketing name, which tells more than is needed."""
    text = observe_common.read_text("/proc/cpuinfo", 1 << 16) or ""
    found = []
    for name in ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part"):
        match = re.search(r"^%s\s*: (\S+)$" % name, text, re.MULTILINE)
        if match:
            found.append(match.group(1))
    return " ".join(found) or {"unknown": "this system does not say"}


def cpu_capability(torch: Any) -> Any:
    """``AVX2``, ``AVX512``, ``NEON``, ``DEFAULT``."""
    ask = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None)
    if ask is not None:
        return str(ask())
    found = re.search(r"CPU capability usage: (\S+)", torch.__config__.show())
    return found.group(1) if found else {"unknown": "this torch does not say"}


def libraries(torch: Any) -> Dict[str, str]:
    """What computes: oneDNN and MKL from the build report, cuDNN and CUDA by their calls."""
    found = {}
    report = torch.__config__.show()
    for name, pattern in (
        ("onednn", r"(?:MKL-DNN|oneDNN) v(\S+)"),
        ("mkl", r"oneAPI Math Kernel Library Version (\S+)|Math Kernel Library Version (\S+)"),
        ("cuda", r"CUDA Runtime (\S+)"),
    ):
        match = re.search(pattern, report)
        if match:
            found[name] = next(group for group in match.groups() if group)
    if torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def user_settings(torch: Any) -> Dict[str, str]:
    """As the environment has them, before ``pin``."""
    switches = {
        "threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()),
        "matmul_allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }
    found = {name: str(value) for name, value in switches.items()}
    for name in USER_VARIABLES:
        if name in os.environ:
            found[name] = os.environ[name][:200]
    return found


def limits() -> Dict[str, Any]:
    """Bytes; ``{"absent": true}`` means no limit."""
    shm: Any = {"unknown": "no /dev/shm"}
    try:
        stat = os.statvfs(SHM)
        shm = stat.f_blocks * stat.f_frsize
    except (OSError, AttributeError):
        pass
    return {"memory": observe_machine.cgroup_memory(), "shm": shm}
