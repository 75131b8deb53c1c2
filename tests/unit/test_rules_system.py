"""The system, its limits, variables and switches: what trips each detector and what must not."""

from __future__ import annotations

import pytest

from envlock.findings import Severity
from tests.unit.envs import (
    ABSENT,
    Facts,
    check_lead,
    codes,
    gpu,
    lead,
    loud,
    one,
    package,
    pair,
    torch,
)

CU121 = torch("2.3.0+cu121", "12.1")
MIB, GIB = 2**20, 2**30
DETERMINISTIC: Facts = {"torch/switches": {"deterministic_algorithms": True}}
TWO_MODELS: Facts = {
    "gpus": [gpu("8.6", "NVIDIA GeForce RTX 3060"), gpu("8.9", "NVIDIA GeForce RTX 4090")]
}
TWO_4090: Facts = {"gpus": [gpu("8.9", "NVIDIA GeForce RTX 4090")] * 2}
P2P_UNSET: Facts = {"env": {"NCCL_P2P_DISABLE": ABSENT, "NCCL_IB_DISABLE": ABSENT}}
TRAINER: Facts = {"packages": {"transformers": package("4.41.0")}}


def variables(**values: str | None) -> Facts:
    env = {k: ABSENT if v is None else v for k, v in values.items()}
    return {"env": env, "exhaustive": ["env"]}


TRIPS: dict[str, tuple[Facts, str, Severity]] = {
    "torch 2.7 on glibc 2.27": (
        {
            **torch("2.7.0+cu126", "12.6"),
            "system/glibc": "2.27",
            "system/distribution": "ubuntu 18.04",
        },
        "EL601",
        Severity.ERROR,
    ),
    "a wheel whose tag asks for more": (
        {
            "packages": {"xformers": package("0.0.30", tags=["cp39-abi3-manylinux_2_28_x86_64"])},
            "system/glibc": "2.17",
        },
        "EL601",
        Severity.ERROR,
    ),
    "vllm on CentOS 7": (
        {
            "packages": {"vllm": package("0.5.0")},
            "system/glibc": "2.17",
            "system/distribution": "centos 7",
        },
        "EL601",
        Severity.ERROR,
    ),
    "a prebuilt flash-attn on Ubuntu 20.04": (
        {"packages": {"flash-attn": package("2.8.3")}, "system/glibc": "2.31"},
        "EL601",
        Severity.ERROR,
    ),
    "the system's libstdc++ in a conda environment": (
        {
            "python/environment": "conda",
            "conda": {"libstdcxx-ng": {"version": "13.2.0"}},
            "system/libstdcxx": "system",
            "system/glibcxx": "3.4.25",
        },
        "EL605",
        Severity.ERROR,
    ),
    "no OpenGL": (
        {"sonames": {"libGL.so.1": {"needed_by": ["opencv-python"], "path_class": ABSENT}}},
        "EL606",
        Severity.ERROR,
    ),
    "no InfiniBand for NVSHMEM": (
        {
            "sonames": {
                "libfabric.so.1": {
                    "needed_by": ["nvidia-nvshmem-cu13"],
                    "path_class": ABSENT,
                    "on_demand": True,
                }
            }
        },
        "EL609",
        Severity.INFO,
    ),
    "Docker's default /dev/shm": (
        {"system/container": "docker", "limits/shm_bytes": 64 * MIB},
        "EL611",
        Severity.WARNING,
    ),
    "Docker's default /dev/shm and several GPUs": (
        {
            "system/container": "docker",
            "limits/shm_bytes": 64 * MIB,
            "gpus": [gpu("8.0"), gpu("8.0")],
        },
        "EL611",
        Severity.ERROR,
    ),
    "a cgroup far below the machine": (
        {"limits/cgroup_memory_bytes": 16 * GIB, "system/memory_bytes": 256 * GIB},
        "EL612",
        Severity.WARNING,
    ),
    "a device for root only": ({"limits/devices": {"nvidia0": "denied"}}, "EL613", Severity.ERROR),
    "few files": ({"limits/open_files": 256}, "EL614", Severity.WARNING),
    "expandable segments beside vllm": (
        {
            **variables(PYTORCH_ALLOC_CONF="expandable_segments:True"),
            "packages": {"vllm": package("0.9.0")},
        },
        "EL702",
        Severity.WARNING,
    ),
    "an option that this torch does not know": (
        {
            **torch("2.0.1+cu118", "11.8"),
            **variables(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
        },
        "EL703",
        Severity.WARNING,
    ),
    "the new name with an old torch": (
        {**CU121, **variables(PYTORCH_ALLOC_CONF="max_split_size_mb:128")},
        "EL703",
        Severity.WARNING,
    ),
    "two spellings that differ": (
        variables(NCCL_BLOCKING_WAIT="1", TORCH_NCCL_BLOCKING_WAIT="0"),
        "EL704",
        Severity.WARNING,
    ),
    "deterministic without a workspace": (
        {**CU121, **DETERMINISTIC, **variables(CUBLAS_WORKSPACE_CONFIG=None)},
        "EL721",
        Severity.ERROR,
    ),
    "deterministic with another workspace": (
        {**CU121, **DETERMINISTIC, **variables(CUBLAS_WORKSPACE_CONFIG=":0:0")},
        "EL721",
        Severity.ERROR,
    ),
    "a device of a larger machine": (
        {**variables(CUDA_VISIBLE_DEVICES="2,3"), "gpus": [gpu("8.0"), gpu("8.0")]},
        "EL722",
        Severity.ERROR,
    ),
    "hidden by an empty value": (
        {**variables(CUDA_VISIBLE_DEVICES=""), "gpus": [gpu("8.0")]},
        "EL726",
        Severity.WARNING,
    ),
    "hidden by an empty value, and torch is blind": (
        {**variables(CUDA_VISIBLE_DEVICES=""), "gpus": [gpu("8.0")], "torch/cuda_available": False},
        "EL726",
        Severity.ERROR,
    ),
    "a container without the compute capability": (
        {**variables(NVIDIA_DRIVER_CAPABILITIES="utility"), "system/container": "docker"},
        "EL727",
        Severity.ERROR,
    ),
    "extensions for other GPUs": (
        {**variables(TORCH_CUDA_ARCH_LIST="7.0;7.5"), "gpus": [gpu("8.6")]},
        "EL728",
        Severity.WARNING,
    ),
    "TF32 by default": (
        {"torch/version": "1.10.2", "gpus": [gpu("8.0", "NVIDIA A100")]},
        "EL731",
        Severity.WARNING,
    ),
    "a split size that torch refuses": (
        variables(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:16"),
        "EL732",
        Severity.WARNING,
    ),
    "a threshold that torch refuses": (
        variables(PYTORCH_CUDA_ALLOC_CONF="garbage_collection_threshold:80"),
        "EL732",
        Severity.WARNING,
    ),
    "expandable segments of the other backend": (
        variables(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync,expandable_segments:True"),
        "EL732",
        Severity.WARNING,
    ),
    "no caching": (variables(PYTORCH_NO_CUDA_MEMORY_CACHING="1"), "EL734", Severity.WARNING),
    "the runtime's variable on the host": (
        {**variables(NVIDIA_VISIBLE_DEVICES="0"), "system/container": None},
        "EL723",
        Severity.WARNING,
    ),
    "a number on a mixed machine": (
        {**variables(CUDA_VISIBLE_DEVICES="0"), **TWO_MODELS},
        "EL724",
        Severity.WARNING,
    ),
    "a number on a mixed machine, fastest first on purpose": (
        {**variables(CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="FASTEST_FIRST"), **TWO_MODELS},
        "EL724",
        Severity.WARNING,
    ),
    "two RTX 40 cards": ({**TWO_4090, **P2P_UNSET, **TRAINER}, "EL725", Severity.ERROR),
    "two RTX 40 cards, half of it": (
        {**TWO_4090, **TRAINER, **variables(NCCL_P2P_DISABLE="1", NCCL_IB_DISABLE=None)},
        "EL725",
        Severity.ERROR,
    ),
}

NEAR_MISSES: dict[str, tuple[Facts, str]] = {
    "torch 2.7 on glibc 2.28": ({**torch("2.7.0+cu126", "12.6"), "system/glibc": "2.28"}, "EL601"),
    "torch 2.6 on glibc 2.17": ({**torch("2.6.0+cu124", "12.4"), "system/glibc": "2.17"}, "EL601"),
    "two tags, one of which fits": (
        {
            "packages": {
                "x": package("1", tags=["cp311-cp311-manylinux_2_17_x86_64.manylinux_2_28_x86_64"])
            },
            "system/glibc": "2.17",
        },
        "EL601",
    ),
    "an older flash-attn on Ubuntu 20.04": (
        {"packages": {"flash-attn": package("2.5.8")}, "system/glibc": "2.31"},
        "EL601",
    ),
    "conda's own libstdc++": (
        {"python/environment": "conda", "conda": {"libstdcxx-ng": {}}, "system/libstdcxx": "conda"},
        "EL605",
    ),
    "no conda": (
        {"python/environment": "venv", "conda": None, "system/libstdcxx": "system"},
        "EL605",
    ),
    "the driver's library on a machine without GPU": (
        {"sonames": {"libcuda.so.1": {"needed_by": ["torch"], "path_class": ABSENT}}},
        "EL606",
    ),
    "a library that is there": (
        {"sonames": {"libGL.so.1": {"needed_by": ["opencv-python"], "path_class": "system"}}},
        "EL606",
    ),
    "a larger /dev/shm": ({"system/container": "docker", "limits/shm_bytes": 8 * GIB}, "EL611"),
    "half a small machine's memory in /dev/shm": (
        {"system/container": None, "limits/shm_bytes": 512 * MIB},
        "EL611",
    ),
    "what envlock's own run gave": (
        {
            "system/container": "docker",
            "limits/shm_bytes": 64 * MIB,
            "set_by_envlock": ["limits.shm_bytes"],
        },
        "EL611",
    ),
    "no cgroup limit": (
        {"limits/cgroup_memory_bytes": None, "system/memory_bytes": 256 * GIB},
        "EL612",
    ),
    "a cgroup near the machine": (
        {"limits/cgroup_memory_bytes": 200 * GIB, "system/memory_bytes": 256 * GIB},
        "EL612",
    ),
    "devices that open": ({"limits/devices": {"nvidia0": "rw", "kfd": "missing"}}, "EL613"),
    "enough files": ({"limits/open_files": 1024}, "EL614"),
    "expandable segments without pools": (
        {
            **variables(PYTORCH_ALLOC_CONF="expandable_segments:True"),
            "packages": {"x": package("1")},
        },
        "EL702",
    ),
    "vllm without expandable segments": (
        {
            **variables(PYTORCH_ALLOC_CONF="expandable_segments:False"),
            "packages": {"vllm": package("0.9.0")},
        },
        "EL702",
    ),
    "an option that this torch knows": (
        {**CU121, **variables(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")},
        "EL703",
    ),
    "two spellings that agree": (
        variables(NCCL_BLOCKING_WAIT="1", TORCH_NCCL_BLOCKING_WAIT="1"),
        "EL704",
    ),
    "deterministic with the right workspace": (
        {**CU121, **DETERMINISTIC, **variables(CUBLAS_WORKSPACE_CONFIG=":16:8")},
        "EL721",
    ),
    "not deterministic": (
        {
            **CU121,
            "torch/switches": {"deterministic_algorithms": False},
            **variables(CUBLAS_WORKSPACE_CONFIG=None),
        },
        "EL721",
    ),
    "deterministic on the CPU": (
        {**torch("2.3.0+cpu"), **DETERMINISTIC, **variables(CUBLAS_WORKSPACE_CONFIG=None)},
        "EL721",
    ),
    "an empty value without GPUs": ({**variables(CUDA_VISIBLE_DEVICES=""), "gpus": []}, "EL726"),
    "an unset value": ({**variables(CUDA_VISIBLE_DEVICES=None), "gpus": [gpu("8.0")]}, "EL726"),
    "compute and utility": (
        {**variables(NVIDIA_DRIVER_CAPABILITIES="compute,utility"), "system/container": "docker"},
        "EL727",
    ),
    "capabilities outside a container": (
        {**variables(NVIDIA_DRIVER_CAPABILITIES="utility"), "system/container": None},
        "EL727",
    ),
    "extensions for this GPU": (
        {**variables(TORCH_CUDA_ARCH_LIST="8.0 9.0+PTX"), "gpus": [gpu("8.6")]},
        "EL728",
    ),
    "PTX for a newer GPU": (
        {**variables(TORCH_CUDA_ARCH_LIST="9.0+PTX"), "gpus": [gpu("12.0")]},
        "EL728",
    ),
    "TF32 off by default": ({"torch/version": "1.12.0", "gpus": [gpu("8.0")]}, "EL731"),
    "an older card": ({"torch/version": "1.10.2", "gpus": [gpu("7.5")]}, "EL731"),
    "TF32 switched off": (
        {"torch/version": "1.10.2", "gpus": [gpu("8.0")], **variables(NVIDIA_TF32_OVERRIDE="0")},
        "EL731",
    ),
    "values that torch takes": (
        variables(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128,garbage_collection_threshold:0.8"),
        "EL732",
    ),
    "no allocator variable": (variables(), "EL732"),
    "caching as usual": (variables(PYTORCH_NO_CUDA_MEMORY_CACHING="0"), "EL734"),
    "devices that exist": (
        {**variables(CUDA_VISIBLE_DEVICES="1,0"), "gpus": [gpu("8.0"), gpu("8.0")]},
        "EL722",
    ),
    "all hidden on purpose": (
        {**variables(CUDA_VISIBLE_DEVICES="-1"), "gpus": [gpu("8.0")]},
        "EL722",
    ),
    "devices by UUID": (
        {**variables(CUDA_VISIBLE_DEVICES="GPU-0000"), "gpus": [gpu("8.0")]},
        "EL722",
    ),
    "the runtime's variable in a container": (
        {**variables(NVIDIA_VISIBLE_DEVICES="0"), "system/container": "docker"},
        "EL723",
    ),
    "both variables": (
        {
            **variables(NVIDIA_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="0"),
            "system/container": None,
        },
        "EL723",
    ),
    "bus order on a mixed machine": (
        {**variables(CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID"), **TWO_MODELS},
        "EL724",
    ),
    "a number on a machine with one model": (
        {**variables(CUDA_VISIBLE_DEVICES="1"), "gpus": [gpu("8.0", "NVIDIA A100")] * 2},
        "EL724",
    ),
    "one RTX 40 card": (
        {"gpus": [gpu("8.9", "NVIDIA GeForce RTX 4090")], **P2P_UNSET, **TRAINER},
        "EL725",
    ),
    "two RTX 6000 Ada": (
        {"gpus": [gpu("8.9", "NVIDIA RTX 6000 Ada Generation")] * 2, **P2P_UNSET, **TRAINER},
        "EL725",
    ),
    "two RTX 40 cards with a newer driver": (
        {**TWO_4090, **P2P_UNSET, **TRAINER, "driver/version": "560.35.03"},
        "EL725",
    ),
    "two RTX 40 cards without accelerate": (
        {**TWO_4090, **P2P_UNSET, "packages": {"torch": package("2.3.0")}},
        "EL725",
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


ALLOC = "PYTORCH_CUDA_ALLOC_CONF"
DIFFERENCES: dict[str, tuple[Facts, Facts, str, Severity]] = {
    "expandable segments on one side": (
        variables(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
        variables(),
        "EL701",
        Severity.WARNING,
    ),
    "another backend of the allocator": (
        {"torch/allocator": "native", "env": {ALLOC: "a:1"}},
        {"torch/allocator": "cudaMallocAsync", "env": {ALLOC: "a:1"}},
        "EL701",
        Severity.WARNING,
    ),
    "another order on a mixed machine": (
        {**variables(CUDA_DEVICE_ORDER="PCI_BUS_ID"), **TWO_MODELS},
        {**variables(), **TWO_MODELS},
        "EL729",
        Severity.WARNING,
    ),
    "the default of TF32 moved": (
        {"torch/version": "1.11.0", "gpus": [gpu("8.6")]},
        {"torch/version": "1.12.1", "gpus": [gpu("8.6")]},
        "EL733",
        Severity.WARNING,
    ),
    "TF32 forbidden on one side": (
        variables(NVIDIA_TF32_OVERRIDE="0"),
        variables(),
        "EL705",
        Severity.WARNING,
    ),
    "a TF32 switch": (
        {"torch/switches": {"matmul_allow_tf32": False}},
        {"torch/switches": {"matmul_allow_tf32": True}},
        "EL705",
        Severity.WARNING,
    ),
    "benchmarking": (
        {"torch/switches": {"cudnn_benchmark": False}},
        {"torch/switches": {"cudnn_benchmark": True}},
        "EL706",
        Severity.WARNING,
    ),
    "another workspace": (
        variables(CUBLAS_WORKSPACE_CONFIG=":4096:8"),
        variables(),
        "EL706",
        Severity.WARNING,
    ),
    "an attention backend": (
        {"torch/switches": {"sdp_cudnn": True}},
        {"torch/switches": {"sdp_cudnn": False}},
        "EL707",
        Severity.WARNING,
    ),
    "buffers of NCCL": (variables(NCCL_BUFFSIZE="8388608"), variables(), "EL708", Severity.WARNING),
    "a search path": (variables(), variables(LD_LIBRARY_PATH="~/lib"), "EL709", Severity.INFO),
    "threads": (variables(OMP_NUM_THREADS="8"), variables(), "EL790", Severity.INFO),
    "a missing system library": (
        {
            "sonames": {
                "libGL.so.1": {"needed_by": ["cv2"], "path_class": "system", "os_package": "libgl1"}
            }
        },
        {"sonames": {"libGL.so.1": {"needed_by": ["cv2"], "path_class": ABSENT}}},
        "EL606",
        Severity.ERROR,
    ),
    "wheels for a newer glibc": (
        {**torch("2.7.0+cu126", "12.6"), "system/glibc": "2.35"},
        {"system/glibc": "2.17", "packages": {}},
        "EL602",
        Severity.ERROR,
    ),
    "another glibc": ({"system/glibc": "2.35"}, {"system/glibc": "2.31"}, "EL603", Severity.INFO),
    "a device that only the other machine has": (
        {**variables(CUDA_VISIBLE_DEVICES="1"), "gpus": [gpu("8.0"), gpu("8.0")]},
        {**variables(CUDA_VISIBLE_DEVICES="1"), "gpus": [gpu("8.0")]},
        "EL722",
        Severity.ERROR,
    ),
    "an order that only the other side sets": (
        {**variables(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID"), **TWO_MODELS},
        {**variables(CUDA_VISIBLE_DEVICES="1"), **TWO_MODELS},
        "EL724",
        Severity.WARNING,
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences(name: str) -> None:
    left, right, code, severity = DIFFERENCES[name]
    check_lead(pair(left, right), code, severity)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        # The same settings under two names, in another order, with blanks.
        (
            variables(PYTORCH_CUDA_ALLOC_CONF="a:1,b:2"),
            variables(PYTORCH_ALLOC_CONF="b:2, a:1"),
        ),
        (variables(PYTORCH_CUDA_ALLOC_CONF=""), variables()),
    ],
)
def test_the_same_allocator_settings(left: Facts, right: Facts) -> None:
    assert "EL701" not in codes(pair(left, right))


def test_the_remedy_sets_the_variable_as_the_reference_has_it() -> None:
    left = variables(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True,max_split_size_mb:128")
    assert lead(pair(left, variables())).hint == (
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128"
    )
    assert lead(pair(variables(), left)).hint == "unset PYTORCH_CUDA_ALLOC_CONF"


def test_a_variable_that_one_side_does_not_know_is_no_difference() -> None:
    assert loud(pair(variables(NVIDIA_TF32_OVERRIDE="0"), {"env": {}})) == []


def test_the_other_side_says_which_package_owns_a_library() -> None:
    def library(where: str | None) -> Facts:
        fact = {"needed_by": ["x"], "path_class": where or ABSENT, "os_package": "libfoo7"}
        return {"sonames": {"libfoo.so.7": fact}, "exhaustive": ["sonames"]}

    (finding,) = loud(pair(library("system"), library(None)))
    assert finding.code == "EL606"
    assert [(f.code, f.hint) for f in finding.folded] == [("EL607", "apt-get install libfoo7")]


def test_other_needs_are_one_note() -> None:
    left = {"sonames": {"libcuda.so.1": {"needed_by": ["torch"]}}, "exhaustive": ["sonames"]}
    right: Facts = {"sonames": {}, "exhaustive": ["sonames"]}
    assert codes(pair(left, right)) == ["EL608"]


def test_what_only_plug_ins_need_is_one_note() -> None:
    fact = {"needed_by": ["nvidia-nvshmem-cu13"], "path_class": ABSENT, "on_demand": True}
    plug_ins: Facts = {"sonames": {"libfabric.so.1": fact, "libucp.so.0": fact}}
    assert loud(one(plug_ins)) == []
    (note,) = [finding for finding in one(plug_ins).findings if finding.code == "EL609"]
    assert note.message == (
        "libfabric.so.1, libucp.so.0 are not there, which only plug-ins of nvidia-nvshmem-cu13 need."
    )
    left: Facts = {"sonames": {"libucp.so.0": {**fact, "path_class": "system"}}}
    assert loud(pair(left, plug_ins)) == []
    required = {"sonames": {"libucp.so.0": {**fact, "on_demand": False}}}
    assert [finding.code for finding in loud(pair(left, required))] == ["EL606"]


def test_a_soname_is_named_with_the_package_that_owns_it() -> None:
    facts = {"sonames": {"libGL.so.1": {"needed_by": ["cv2"], "path_class": ABSENT}}}
    assert lead(one(facts)).hint == "apt-get install libgl1"
