"""Environments without a fault, as a full capture sees them."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.unit.envs import Facts, gpu

GIB = 2**30


def record(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def installed(versions: dict[str, str], python: str = "cp311") -> dict[str, Any]:
    return {
        name: {
            "version": version,
            "record": record(f"{name} {version} {python}"),
            "installer": "pip",
            "source": {"kind": "index"},
            "path_class": "wheel",
            "tags": [f"{python}-{python}-manylinux_2_17_x86_64"],
        }
        for name, version in versions.items()
    }


_COMMON = {
    "accelerate": "0.30.1",
    "filelock": "3.14.0",
    "fsspec": "2024.5.0",
    "jinja2": "3.1.4",
    "numpy": "1.26.4",
    "packaging": "24.0",
    "pyyaml": "6.0.1",
    "requests": "2.32.0",
    "tqdm": "4.66.4",
    "transformers": "4.41.0",
    "typing-extensions": "4.12.0",
}

_MACHINE: Facts = {
    "python/version": "3.11.9",
    "python/implementation": "cpython",
    "python/abi": "cp311",
    "python/bits": 64,
    "python/arch": "x86_64",
    "python/environment": "venv",
    "python/flags": {},
    "python/pythonpath": None,
    "python/user_site": False,
    "python/site_folders": ["lib/python3.11/site-packages"],
    "system/os": "linux",
    "system/distribution": "ubuntu 22.04",
    "system/kernel": "6.5.0",
    "system/arch": "x86_64",
    "system/glibc": "2.35",
    "system/glibcxx": "3.4.30",
    "system/libstdcxx": "system",
    "system/wsl": False,
    "system/cpu": "AMD EPYC 7763",
    "system/cpu_capability": "AVX2",
    "system/cores": 64,
    "system/memory_bytes": 512 * GIB,
    "system/container": None,
    "limits/cgroup_memory_bytes": None,
    "limits/cpu_quota": None,
    "limits/shm_bytes": 256 * GIB,
    "limits/open_files": 1048576,
    "limits/locked_memory_bytes": None,
    "limits/devices": {"nvidiactl": "rw", "nvidia-uvm": "rw"},
    "toolkit/nvcc": None,
    "toolkit/system_cuda": None,
    "toolkit/c_compiler": "gcc 11.4.0",
    "env": {},
    "seeds": {"pip": "24.0"},
    "conda": None,
    "sonames": {"libstdc++.so.6": {"needed_by": ["torch"], "path_class": "system"}},
    "contested": {},
    "duplicates": {},
    "broken": [],
    "unmet": [],
    "exhaustive": [
        "packages",
        "env",
        "libraries",
        "sonames",
        "contested",
        "conda",
        "gpus",
    ],
}

_DRIVER: Facts = {
    "driver/version": "535.183.01",
    "driver/kernel_module": "535.183.01",
    "driver/cuda": "12.2",
    "driver/libcuda": "system",
    "driver/compat": None,
    "driver/nvml_error": None,
    "driver/fabric_manager": False,
}


def _switches() -> Facts:
    return {
        "torch/switches": {
            "matmul_allow_tf32": False,
            "cudnn_allow_tf32": True,
            "cudnn_benchmark": False,
            "cudnn_deterministic": False,
            "deterministic_algorithms": False,
            "float32_matmul_precision": "highest",
        }
    }


CUDA_TORCH: Facts = {
    **_MACHINE,
    **_DRIVER,
    **_switches(),
    "torch/version": "2.3.0+cu121",
    "torch/release": "2.3.0",
    "torch/local": "cu121",
    "torch/build": "cuda",
    "torch/cuda": "12.1",
    "torch/hip": None,
    "torch/git": "97ff6cfd9c86c5c09d7ce775ab64ec5c99230f5d",
    "torch/debug": False,
    "torch/cxx11_abi": False,
    "torch/path_class": "wheel",
    "torch/importable": True,
    "torch/cuda_available": True,
    "torch/arch_list": ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"],
    "cudnn/loaded": "8.9.2",
    "cudnn/compiled": "8.9.2",
    "cudnn/path_class": "wheel",
    "nccl/loaded": "2.20.5",
    "nccl/compiled": "2.20.5",
    "packages": installed(
        {
            **_COMMON,
            "nvidia-cublas-cu12": "12.1.3.1",
            "nvidia-cuda-runtime-cu12": "12.1.105",
            "nvidia-cudnn-cu12": "8.9.2.26",
            "nvidia-nccl-cu12": "2.20.5",
            "nvidia-nvjitlink-cu12": "12.1.105",
            "torch": "2.3.0",
            "torchaudio": "2.3.0",
            "torchvision": "0.18.0",
            "triton": "2.3.0",
        }
    ),
    "libraries": {
        "libcudart.so.12": {"path_class": "wheel", "version": "12.1.105"},
        "libnccl.so.2": {"path_class": "wheel", "version": "2.20.5"},
    },
    "gpus": [
        gpu(
            "8.0",
            "NVIDIA A100-SXM4-80GB",
            memory_bytes=80 * GIB,
            mig=False,
            ecc=True,
            ecc_uncorrected=0,
            used_bytes=0,
        )
    ],
}

CPU_TORCH: Facts = {
    **_MACHINE,
    **_switches(),
    "driver": {"absent": True},
    "torch/version": "2.6.0+cpu",
    "torch/release": "2.6.0",
    "torch/local": "cpu",
    "torch/build": "cpu",
    "torch/cuda": None,
    "torch/hip": None,
    "torch/cxx11_abi": False,
    "torch/path_class": "wheel",
    "torch/importable": True,
    "torch/cuda_available": False,
    "cudnn": {"absent": True},
    "nccl": {"absent": True},
    "packages": installed({**_COMMON, "torch": "2.6.0+cpu", "torchvision": "0.21.0+cpu"}),
    "libraries": {},
    "gpus": [],
}

NEW_TORCH: Facts = {
    **CUDA_TORCH,
    "torch/version": "2.9.1+cu128",
    "torch/release": "2.9.1",
    "torch/local": "cu128",
    "torch/cuda": "12.8",
    "torch/git": "5811a8d7da873dd699ff6687092c225caffcf1bb",
    "torch/cxx11_abi": True,
    "torch/arch_list": ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
    "cudnn/loaded": "9.10.2",
    "cudnn/compiled": "9.10.2",
    "nccl/loaded": "2.27.5",
    "nccl/compiled": "2.27.5",
    "driver/version": "570.86.10",
    "driver/kernel_module": "570.86.10",
    "driver/cuda": "12.8",
    "packages": installed(
        {
            **_COMMON,
            "numpy": "2.1.3",
            "nvidia-cublas-cu12": "12.8.4.1",
            "nvidia-cudnn-cu12": "9.10.2.21",
            "nvidia-nccl-cu12": "2.27.5",
            "torch": "2.9.1",
            "triton": "3.5.1",
        }
    ),
    "libraries": {"libcudart.so.12": {"path_class": "wheel", "version": "12.8.90"}},
    "gpus": [gpu("9.0", "NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB, ecc_uncorrected=0)],
}

ALL = {"cuda": CUDA_TORCH, "cpu": CPU_TORCH, "new": NEW_TORCH}
