"""Which variables an image may set, and what their values may hold (``image.env``).

An allow-list: a variable that is not on it is refused, because a deny-list misses one. Never on
it: LD_*, PATH, PYTHON*, PIP_*, UV_*, GIT_*, proxies, SSL_* and NVIDIA_*, which are code, search
paths, credentials or device grants; and what names devices of one machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from envlock.errors import InputError
from envlock.lock.strict import shown

MAX_VALUE = 1024
_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,63}", re.ASCII)
_FAMILIES = re.compile(
    r"(?:OMP|MKL|OPENBLAS|KMP|NCCL|PYTORCH|TORCH|TORCHINDUCTOR|CUBLAS|CUBLASLT|CUDNN|TOKENIZERS)"
    r"_[A-Z0-9_]+",
    re.ASCII,
)
_SINGLE = frozenset({"CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_CACHE_DISABLE"})
_NEVER = frozenset(
    {
        "NCCL_NET_PLUGIN",  # these name a library that is loaded
        "NCCL_TUNER_PLUGIN",
        "NCCL_PROFILER_PLUGIN",
        "NCCL_CONF_FILE",
        "CUDNN_LOGDEST_DBG",  # these name files that are written
        "CUBLAS_LOGDEST_DBG",
        "CUBLASLT_LOG_FILE",
        "NCCL_DEBUG_FILE",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_HOME",
        "TORCH_EXTENSIONS_DIR",
        "NCCL_SOCKET_IFNAME",  # names of one machine
        "NCCL_HOSTID",
    }
)


def may_set(name: str) -> bool:
    return name not in _NEVER and bool(_FAMILIES.fullmatch(name) or name in _SINGLE)


def check_image_env(env: Mapping[str, str], spot: str) -> None:
    """Raises InputError that names the variable and the reason."""
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise InputError(f"{spot}: not a variable name: {shown(name)}")
        if not may_set(name):
            raise InputError(
                f"{spot}.{name}: not allowed in an image",
                hint="an image may set tuning variables of torch, CUDA libraries, NCCL, OpenMP "
                "and MKL only",
            )
        if len(value) > MAX_VALUE:
            raise InputError(f"{spot}.{name}: longer than {MAX_VALUE} characters")
        if not value.isascii() or not value.isprintable():
            raise InputError(f"{spot}.{name}: a control character or non-ASCII in {shown(value)}")
