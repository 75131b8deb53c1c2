"""Variables by allow-list, and where pip looks for packages: names and hosts, never secrets."""

from __future__ import annotations

import os
import re
import sys

import observe_common

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown

# Every name of envlock/facts/env_vars.json (a test compares). Written by hand in no place else.
CATALOGUE = (
    "ATEN_CPU_CAPABILITY",
    "BNB_CUDA_VERSION",
    "CUBLASLT_HEURISTICS_CACHE_CAPACITY",
    "CUBLASLT_LOG_LEVEL",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
    "CUBLAS_LOGINFO_DBG",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_AUTO_BOOST",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_CACHE_PATH",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_HOME",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "CUDNN_FORWARD_COMPAT_DISABLE",
    "DISABLE_ADDMM_CUDA_LT",
    "GLOO_SOCKET_IFNAME",
    "KMP_DUPLICATE_LIB_OK",
    "LD_LIBRARY_PATH",
    "LRU_CACHE_CAPACITY",
    "MAX_JOBS",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_BUFFSIZE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DESYNC_DEBUG",
    "NCCL_GRAPH_REGISTER",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_IB_TIMEOUT",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_PROTO",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "NCCL_WIN_ENABLE",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_KERNEL_CACHE_PATH",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK",
    "PYTORCH_TUNABLEOP_ENABLED",
    "PYTORCH_TUNABLEOP_FILENAME",
    "PYTORCH_TUNABLEOP_TUNING",
    "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS",
    "TORCHDYNAMO_DISABLE",
    "TORCHDYNAMO_SUPPRESS_ERRORS",
    "TORCHINDUCTOR_AUTOGRAD_CACHE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_CUDAGRAPHS",
    "TORCHINDUCTOR_DETERMINISTIC",
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "TORCHINDUCTOR_FREEZING",
    "TORCHINDUCTOR_FX_GRAPH_CACHE",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCHINDUCTOR_NAN_ASSERTS",
    "TORCHINDUCTOR_SIZE_ASSERTS",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_CHECK_TENSOR_ALL",
    "TORCH_CPP_LOG_LEVEL",
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    "TORCH_CUBLAS_WORKSPACE_CACHE",
    "TORCH_CUDA_ARCH_LIST",
    "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED",
    "TORCH_CUDNN_SDPA_ENABLED",
    "TORCH_CUDNN_USE_HEURISTIC_MODE_B",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TORCH_CUDNN_V8_API_ENABLED",
    "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_DONT_CHECK_COMPILER_ABI",
    "TORCH_EXTENSIONS_DIR",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
    "TORCH_FORCE_WEIGHTS_ONLY_LOAD",
    "TORCH_LINALG_PREFER_CUSOLVER",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_DESYNC_DEBUG",
    "TORCH_NCCL_ENABLE_MONITORING",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_HIGH_PRIORITY",
    "TORCH_NCCL_NAN_CHECK",
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_SHOW_CPP_STACKTRACES",
    "TRITON_ALWAYS_COMPILE",
    "TRITON_CACHE_AUTOTUNING",
    "TRITON_CACHE_DIR",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_F32_DEFAULT",
    "TRITON_HOME",
    "TRITON_INTERPRET",
    "TRITON_PTXAS_PATH",
    "USE_PYTORCH_KERNEL_CACHE",
)

# Names that rules need beside the catalogue.
OTHERS = (
    "CONDA_OVERRIDE_CUDA",
    "CUDA_PATH",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "LD_PRELOAD",
    "PYTHONHASHSEED",
    "PYTHONNOUSERSITE",
    "PYTHONPATH",
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "ROCR_VISIBLE_DEVICES",
)

# Their values are paths of a person: only that they are set is recorded.
SET_ONLY = ("CONDA_PREFIX", "VIRTUAL_ENV")


def env_facts() -> dict[str, object]:
    """Every name of the lists: its value, or absent. No other variable is looked at."""
    found = {}
    for name in CATALOGUE + OTHERS:
        value = os.environ.get(name)
        found[name] = ABSENT if value is None else observe_common.show_text(value)
    for name in SET_ONLY:
        found[name] = "set" if os.environ.get(name) else ABSENT
    return found


_OPTION = re.compile(
    r"^[ \t]*(index[-_]url|extra[-_]index[-_]url|find[-_]links)[ \t]*[=:][ \t]*"
    r"([^\n]*(?:\n[ \t]+[^\n]*)*)",
    re.MULTILINE | re.IGNORECASE,
)
_UV = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")


def index_facts() -> dict[str, object]:
    """Hosts of configured indexes; absent where nothing is configured."""
    urls, links = [], False
    for path in _pip_files():
        for name, value in _OPTION.findall(observe_common.read_text(path) or ""):
            if name.lower().startswith("find"):
                links = True
            else:
                urls += value.split()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", *_UV):
        urls += os.environ.get(name, "").split()
    links = links or bool(os.environ.get("PIP_FIND_LINKS") or os.environ.get("UV_FIND_LINKS"))
    # uv writes a named index as name=URL
    hosts = {observe_common.url_host(re.sub(r"^[\w.\-]+=(?=\w+:)", "", url)) for url in urls}
    return {"hosts": sorted(hosts - {None}) or ABSENT, "find_links": links}


def _pip_files() -> list[str]:
    """The files that pip reads for this interpreter, whether they exist or not."""
    only = os.environ.get("PIP_CONFIG_FILE")
    if only == os.devnull:
        return []
    name = "pip.ini" if os.name == "nt" else "pip.conf"
    folders = [os.path.join(d, "pip") for d in _config_folders()]
    folders += ["/etc", sys.prefix]
    for home in observe_common.HOMES[:1]:
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        folders += [os.path.join(home, ".pip"), os.path.join(config, "pip")]
        folders.append(os.path.join(home, "Library", "Application Support", "pip"))
    return [os.path.join(folder, name) for folder in folders] + ([only] if only else [])


def _config_folders() -> list[str]:
    if os.name == "nt":
        return [os.environ[k] for k in ("PROGRAMDATA", "APPDATA") if os.environ.get(k)]
    return (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
