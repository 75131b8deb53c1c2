"""CUDA libraries, compilers and what is shadowed: what trips each detector and what must not."""

from __future__ import annotations

from typing import Any

import pytest

from envlock.findings import Severity
from tests.unit.envs import Facts, check_lead, codes, gpu, lead, loud, one, package, pair, torch

CU121 = torch("2.3.0+cu121", "12.1")
CU128 = torch("2.8.0+cu128", "12.8")


def packages(**versions: str) -> Facts:
    return {"packages": {name.replace("_", "-"): package(v) for name, v in versions.items()}}


def loaded(soname: str, where: str, version: str | None, wheel: str | None) -> Facts:
    """A library from ``where`` that hides the wheel's copy."""
    copy: dict[str, Any] = {"path_class": "wheel"} | ({"version": wheel} if wheel else {})
    entry: dict[str, Any] = {"path_class": where, "shadowed": [copy]}
    return {"libraries": {soname: entry | ({"version": version} if version else {})}}


TRIPS: dict[str, tuple[Facts, str, Severity]] = {
    "an older cuDNN from a module": (
        {
            "cudnn/compiled": "8.9.2",
            "cudnn/loaded": "8.5.0",
            "env": {"LD_LIBRARY_PATH": "/apps/cudnn/8.5.0/lib64"},
        },
        "EL301",
        Severity.ERROR,
    ),
    "a cuDNN of another major": (
        {"cudnn/compiled": "8.9.2", "cudnn/loaded": "9.1.0", "cudnn/path_class": "conda"},
        "EL301",
        Severity.ERROR,
    ),
    "a library that asks for a newer cuDNN": (
        {
            "cudnn/loaded": "9.10.2",
            "unmet": [
                {
                    "distribution": "natten",
                    "requirement": "cudnn>=9.15",
                    "installed": {"absent": True},
                }
            ],
        },
        "EL303",
        Severity.WARNING,
    ),
    "a contested nccl": (
        {"contested": {"nvidia/nccl/lib/libnccl.so.2": ["nvidia-nccl-cu11", "nvidia-nccl-cu12"]}},
        "EL305",
        Severity.ERROR,
    ),
    "cudnn for two CUDA majors": (
        packages(nvidia_cudnn_cu12="9.10.2.21", nvidia_cudnn_cu13="9.20.0.48"),
        "EL306",
        Severity.ERROR,
    ),
    "nccl for CUDA 11 and 12": (
        packages(nvidia_nccl_cu11="2.21.5", nvidia_nccl_cu12="2.20.5"),
        "EL306",
        Severity.ERROR,
    ),
    "an older nccl than compiled for": (
        {"nccl/loaded": "2.18.3", "nccl/compiled": "2.21.5", "nccl/path_class": "system"},
        "EL307",
        Severity.ERROR,
    ),
    "an older nccl than the tables say": (
        {**CU121, "nccl/loaded": "2.18.1"},
        "EL307",
        Severity.ERROR,
    ),
    "an older nccl wheel": (
        {**CU121, **packages(nvidia_nccl_cu12="2.18.1")},
        "EL307",
        Severity.ERROR,
    ),
    "an older libnvJitLink first": (
        loaded("libnvJitLink.so.12", "ld-library-path", "12.1.105", "12.8.93"),
        "EL308",
        Severity.ERROR,
    ),
    "a copy of unknown version first": (
        loaded("libcublas.so.12", "system", None, "12.8.4.1"),
        "EL308",
        Severity.ERROR,
    ),
    "a newer copy first": (
        loaded("libcublas.so.12", "conda", "12.9.1.4", "12.8.4.1"),
        "EL308",
        Severity.WARNING,
    ),
    "an older toolkit on the path": (
        {**CU128, "env": {"LD_LIBRARY_PATH": "/usr/local/cuda-12.2/lib64:/usr/lib"}},
        "EL309",
        Severity.ERROR,
    ),
    "an older toolkit of a cluster": (
        {**CU128, "env": {"LD_LIBRARY_PATH": "/apps/cuda/12.1.1/lib64"}},
        "EL309",
        Severity.ERROR,
    ),
    "a newer toolkit on the path": (
        {**CU121, "env": {"LD_LIBRARY_PATH": "/usr/local/cuda-12.6/lib64"}},
        "EL309",
        Severity.WARNING,
    ),
    "an older cuDNN on the path": (
        {**CU121, "env": {"LD_LIBRARY_PATH": "/apps/cudnn/v8.0.3.33-cuda.11.0/lib64"}},
        "EL311",
        Severity.ERROR,
    ),
    "an nvidia library that another framework has moved": (
        {
            "unmet": [
                {
                    "distribution": "torch",
                    "requirement": "nvidia-cudnn-cu12==8.9.2.26",
                    "installed": "9.3.0.75",
                }
            ]
        },
        "EL312",
        Severity.ERROR,
    ),
    "an nvidia library moved a little": (
        {
            "unmet": [
                {
                    "distribution": "torch",
                    "requirement": "nvidia-cublas-cu12==12.1.3.1; platform_system == 'Linux'",
                    "installed": "12.4.5.8",
                }
            ]
        },
        "EL312",
        Severity.WARNING,
    ),
    "nvcc of another major": ({**CU121, "toolkit/nvcc": "11.8.89"}, "EL321", Severity.ERROR),
    "nvcc newer by a major": (
        {**torch("2.4.0+cu118", "11.8"), "toolkit/nvcc": "12.4"},
        "EL321",
        Severity.ERROR,
    ),
    "nvcc of another major, and nothing that compiles": (
        {
            **CU121,
            "toolkit/nvcc": "13.0.88",
            **packages(numpy="1.26.4"),
            "exhaustive": ["packages"],
        },
        "EL321",
        Severity.WARNING,
    ),
    "nvcc of another major, and deepspeed": (
        {
            **CU121,
            "toolkit/nvcc": "13.0.88",
            **packages(deepspeed="0.14.0"),
            "exhaustive": ["packages"],
        },
        "EL321",
        Severity.ERROR,
    ),
    "nvcc of another major, and the variable of a build": (
        {
            **CU121,
            "toolkit/nvcc": "13.0.88",
            **packages(numpy="1.26.4"),
            "env": {"TORCH_CUDA_ARCH_LIST": "8.0"},
            "exhaustive": ["packages"],
        },
        "EL321",
        Severity.ERROR,
    ),
    "flashinfer without nvcc": (
        {
            "toolkit/nvcc": None,
            **packages(flashinfer_python="0.5.0"),
            "env": {"CUDA_HOME": {"absent": True}},
        },
        "EL322",
        Severity.ERROR,
    ),
    "a newer vllm without nvcc": (
        {"toolkit/nvcc": None, **packages(vllm="0.14.1")},
        "EL322",
        Severity.ERROR,
    ),
    "triton without a C compiler": (
        {"toolkit/c_compiler": None, **packages(triton="3.1.0")},
        "EL323",
        Severity.WARNING,
    ),
    "the system's nccl for another CUDA": (
        {
            **CU121,
            "libraries": {"libnccl.so.2": {"path_class": "system", "version": "2.18.3-1+cuda11.8"}},
        },
        "EL324",
        Severity.ERROR,
    ),
    "torch 1.13.0 in lib64, its libraries in lib": (
        {
            "torch/version": "1.13.0+cu117",
            "python/site_folders": ["lib64/python3.9/site-packages", "lib/python3.9/site-packages"],
            **packages(nvidia_cublas_cu11="11.10.3.66"),
        },
        "EL325",
        Severity.ERROR,
    ),
    "a new MKL with conda's torch": (
        {"conda": {"pytorch": {"version": "2.2.2"}, "mkl": {"version": "2024.2.0"}}},
        "EL326",
        Severity.ERROR,
    ),
    "cuDNN attention on a B200": (
        {
            **torch("2.11.0+cu130", "13.0"),
            "cudnn/loaded": "9.19.0",
            "gpus": [gpu("10.0", "NVIDIA B200")],
        },
        "EL327",
        Severity.WARNING,
    ),
}

NEAR_MISSES: dict[str, tuple[Facts, str]] = {
    "the compiled cuDNN": ({"cudnn/compiled": "8.9.2", "cudnn/loaded": "8.9.2"}, "EL301"),
    "a newer minor of cuDNN": ({"cudnn/compiled": "9.1.0", "cudnn/loaded": "9.10.2"}, "EL301"),
    "another patch of cuDNN": ({"cudnn/compiled": "8.9.7", "cudnn/loaded": "8.9.2"}, "EL301"),
    "contested tests": ({"contested": {"tests/__init__.py": ["a", "b"]}}, "EL305"),
    "libraries of two majors in folders of their own": (
        packages(nvidia_cublas_cu12="12.8.4.1", nvidia_cublas="13.1.0.3"),
        "EL306",
    ),
    "a runtime for each major": (
        packages(nvidia_cuda_runtime_cu11="11.8.89", nvidia_cuda_runtime_cu12="12.1.105"),
        "EL306",
    ),
    "the pinned nccl": ({**CU121, **packages(nvidia_nccl_cu12="2.20.5")}, "EL307"),
    "a newer nccl": ({"nccl/loaded": "2.27.5", "nccl/compiled": "2.21.5"}, "EL307"),
    "an nccl that no table knows": ({**torch("2.99.0", "12.1"), "nccl/loaded": "2.1"}, "EL307"),
    "the same version from elsewhere": (
        loaded("libcublas.so.12", "conda", "12.8.4.1", "12.8.4.1"),
        "EL308",
    ),
    "the wheel's copy first": (
        {
            "libraries": {
                "libcublas.so.12": {
                    "path_class": "wheel",
                    "version": "12.8.4.1",
                    "shadowed": [{"path_class": "system", "version": "12.1.3.1"}],
                }
            }
        },
        "EL308",
    ),
    "a system library without a wheel": (
        {"libraries": {"libcublas.so.12": {"path_class": "system", "version": "12.1"}}},
        "EL308",
    ),
    "torch's own CUDA release on the path": (
        {**CU121, "env": {"LD_LIBRARY_PATH": "/usr/local/cuda-12.1/lib64"}},
        "EL309",
    ),
    "a toolkit of another major has other file names": (
        {**CU121, "env": {"LD_LIBRARY_PATH": "/usr/local/cuda-11.8/lib64"}},
        "EL309",
    ),
    "a toolkit without a version in its path": (
        {**CU121, "env": {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}},
        "EL309",
    ),
    "the loader's answer counts more than the path": (
        {
            **CU128,
            "env": {"LD_LIBRARY_PATH": "/usr/local/cuda-12.2/lib64"},
            "libraries": {"libcublas.so.12": {"path_class": "wheel"}},
            "exhaustive": ["libraries"],
        },
        "EL309",
    ),
    "torch's own cuDNN on the path": (
        {**CU121, "env": {"LD_LIBRARY_PATH": "/apps/cudnn/8.9.7/lib64"}},
        "EL311",
    ),
    "a cuDNN on the path that is not the one loaded": (
        {
            **CU121,
            "env": {"LD_LIBRARY_PATH": "/apps/cudnn/8.0.3/lib64"},
            "cudnn/loaded": "8.9.2",
            "cudnn/compiled": "8.9.2",
        },
        "EL311",
    ),
    "a requirement of another distribution": (
        {
            "unmet": [
                {"distribution": "jax", "requirement": "nvidia-cudnn-cu12==9.1", "installed": "8.9"}
            ]
        },
        "EL312",
    ),
    "nvcc of another minor": ({**CU121, "toolkit/nvcc": "12.4.131"}, "EL321"),
    "nvcc and a torch without CUDA": (
        {**torch("2.3.0+cpu"), "torch/cuda": None, "toolkit/nvcc": "11.8"},
        "EL321",
    ),
    "no nvcc and nothing that compiles": (
        {"toolkit/nvcc": None, **packages(transformers="4.41.0")},
        "EL322",
    ),
    "prebuilt kernels": (
        {"toolkit/nvcc": None, **packages(flashinfer_python="0.5.0", flashinfer_jit_cache="0.5.0")},
        "EL322",
    ),
    "an older vllm": ({"toolkit/nvcc": None, **packages(vllm="0.8.5")}, "EL322"),
    "a compiler is there": (
        {"toolkit/c_compiler": "gcc 12.2.0", **packages(triton="3.1.0")},
        "EL323",
    ),
    "no triton": ({"toolkit/c_compiler": None, **packages(numpy="2.0.0")}, "EL323"),
    "the system's nccl for this CUDA": (
        {
            **CU121,
            "libraries": {"libnccl.so.2": {"path_class": "system", "version": "2.20.5-1+cuda12.4"}},
        },
        "EL324",
    ),
    "a later torch searches everywhere": (
        {
            "torch/version": "2.0.1+cu117",
            "python/site_folders": ["lib64/python3.9/site-packages", "lib/python3.9/site-packages"],
            **packages(nvidia_cublas_cu11="11.10.3.66"),
        },
        "EL325",
    ),
    "an older MKL": (
        {"conda": {"pytorch": {"version": "2.2.2"}, "mkl": {"version": "2023.1.0"}}},
        "EL326",
    ),
    "cuDNN attention on an H100": (
        {**torch("2.11.0+cu130", "13.0"), "cudnn/loaded": "9.19.0", "gpus": [gpu("9.0")]},
        "EL327",
    ),
}


@pytest.mark.parametrize("name", TRIPS)
def test_trips(name: str) -> None:
    facts, code, severity = TRIPS[name]
    assert check_lead(one(facts), code, severity).hint


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    facts, code = NEAR_MISSES[name]
    assert code not in codes(one(facts))


DIFFERENCES: dict[str, tuple[Facts, Facts, str, Severity]] = {
    "nccl on one node": (
        {"nccl/loaded": "2.18.3"},
        {"nccl/loaded": "2.20.5"},
        "EL304",
        Severity.ERROR,
    ),
    "nccl by its wheel": (
        packages(nvidia_nccl_cu12="2.20.5"),
        packages(nvidia_nccl_cu12="2.21.5"),
        "EL304",
        Severity.ERROR,
    ),
    "cudnn of another minor": (
        {"cudnn/loaded": "9.1.0"},
        {"cudnn/loaded": "9.5.1"},
        "EL302",
        Severity.WARNING,
    ),
    "cudnn of another major": (
        packages(nvidia_cudnn_cu12="8.9.2.26"),
        packages(nvidia_cudnn_cu12="9.1.0.70"),
        "EL302",
        Severity.ERROR,
    ),
    "cublas against torch's pin": (
        {**CU121, **packages(nvidia_cublas_cu12="12.1.3.1")},
        {**CU121, **packages(nvidia_cublas_cu12="12.4.5.8")},
        "EL113",
        Severity.WARNING,
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences(name: str) -> None:
    left, right, code, severity = DIFFERENCES[name]
    finding = check_lead(pair(left, right), code, severity)
    assert {e.side.value for e in finding.evidence} == {"left", "right"}


def test_a_version_and_its_wheel_are_one_version() -> None:
    left, right = {"cudnn/loaded": "8.9.2"}, packages(nvidia_cudnn_cu12="8.9.2.26")
    assert loud(pair(left, right)) == []
    assert loud(pair({"nccl/loaded": "2.20.5"}, packages(nvidia_nccl_cu12="2.20.5"))) == []


def test_a_shadowed_cudnn_explains_its_version() -> None:
    left = {**CU121, "cudnn/loaded": "8.9.2", "cudnn/compiled": "8.9.2"}
    right = {
        **CU121,
        "cudnn/loaded": "8.0.3",
        "cudnn/compiled": "8.9.2",
        "env": {"LD_LIBRARY_PATH": "/apps/cudnn/8.0.3/lib64"},
    }
    judged = pair({**left, "env": {}, "exhaustive": ["env"]}, right)
    assert [f.code for f in loud(judged)] == ["EL301"]
    assert "EL302" in {f.code for f in lead(judged).folded}


def test_one_shadowing_folder_is_one_finding() -> None:
    entry = {
        "path_class": "ld-library-path",
        "version": "12.1",
        "shadowed": [{"path_class": "wheel", "version": "12.8"}],
    }
    names = ("libcublas.so.12", "libcublasLt.so.12", "libcusparse.so.12", "libnvJitLink.so.12")
    judged = one({"libraries": dict.fromkeys(names, entry)})
    assert codes(judged) == ["EL308"]
    assert "1 more" in lead(judged).message


def test_libraries_from_another_place_are_a_note() -> None:
    left = {"libraries": {"libcudart.so.12": {"path_class": "wheel"}}}
    right = {"libraries": {"libcudart.so.12": {"path_class": "conda"}}}
    assert [(f.code, f.severity) for f in pair(left, right).findings if f.code != "EL901"] == [
        ("EL310", Severity.INFO)
    ]
