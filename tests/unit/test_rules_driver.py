"""Drivers and GPUs: each detector with what trips it and what must not."""

from __future__ import annotations

import pytest

from envlock.findings import Severity
from tests.unit.envs import Facts, check_lead, codes, gpu, lead, loud, one, pair, torch

CU121 = torch("2.3.0+cu121", "12.1")
IN_CONTAINER: Facts = {"system/container": "docker"}
EIGHT = [gpu("9.0", "NVIDIA H200") for _ in range(8)]

TRIPS: dict[str, tuple[Facts, str, Severity]] = {
    "a driver of another major": (
        {**torch("2.11.0", "13.0"), "driver/version": "550.54.15", "driver/cuda": "12.4"},
        "EL401",
        Severity.ERROR,
    ),
    "only the driver's CUDA level is known": (
        {**torch("2.12.0", "13.0"), "driver/cuda": "12.9"},
        "EL401",
        Severity.ERROR,
    ),
    "a driver of the right branch but too early": (
        {**CU121, "driver/version": "525.53"},
        "EL401",
        Severity.ERROR,
    ),
    "before CUDA 11 each minor had its own floor": (
        {**torch("1.5.0", "10.2"), "driver/version": "418.87.01"},
        "EL401",
        Severity.ERROR,
    ),
    "the CUDA level counts exactly before CUDA 11": (
        {**torch("1.5.0", "10.2"), "driver/cuda": "10.1"},
        "EL401",
        Severity.ERROR,
    ),
    "a CUDA 11 torch on a driver of 2020": (
        {**torch("2.1.0+cu118", "11.8"), "driver/version": "440.33.01"},
        "EL401",
        Severity.ERROR,
    ),
    "an image of a newer CUDA major": (
        {**IN_CONTAINER, "toolkit/system_cuda": "12.4", "driver/cuda": "11.4"},
        "EL402",
        Severity.ERROR,
    ),
    "a compat libcuda on a GeForce": (
        {
            "driver/version": "535.54.03",
            "driver/compat": "550.54.15",
            "gpus": [gpu("8.9", "NVIDIA GeForce RTX 4090")],
        },
        "EL403",
        Severity.ERROR,
    ),
    "an image newer than the host's driver, on a GeForce": (
        {
            **IN_CONTAINER,
            "toolkit/system_cuda": "12.4",
            "driver/version": "535",
            "gpus": [gpu("7.5", "GeForce RTX 2080 Ti")],
        },
        "EL403",
        Severity.ERROR,
    ),
    "an upgraded driver with the old module": (
        {"driver/version": "550.54.15", "driver/kernel_module": "535.183.01"},
        "EL404",
        Severity.ERROR,
    ),
    "a container that lost its GPUs": (
        {**IN_CONTAINER, "driver/nvml_error": "Unknown Error"},
        "EL405",
        Severity.ERROR,
    ),
    "no module loaded": ({"driver/nvml_error": "Driver Not Loaded"}, "EL405", Severity.ERROR),
    "NVSwitch without fabric manager": (
        {"gpus": EIGHT, "driver/fabric_manager": False, "driver/version": "550.54.15"},
        "EL407",
        Severity.ERROR,
    ),
    "fabric manager not installed": (
        {"gpus": EIGHT, "driver/fabric_manager": None},
        "EL407",
        Severity.ERROR,
    ),
    "an image that asks for more": (
        {"env": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}, "driver/cuda": "12.2"},
        "EL408",
        Severity.ERROR,
    ),
    "an image whose alternatives all fail": (
        {
            "env": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.1 driver>=525,driver<526"},
            "driver/version": "470.182.03",
            "driver/cuda": "11.4",
        },
        "EL408",
        Severity.ERROR,
    ),
    "an engine without the toolkit": (
        {"system/container_toolkit": None, "driver/version": "550.54.15"},
        "EL409",
        Severity.ERROR,
    ),
    "a container without GPU access": (
        {
            **CU121,
            **IN_CONTAINER,
            "torch/cuda_available": False,
            "driver": {"absent": True},
            "gpus": [],
        },
        "EL411",
        Severity.ERROR,
    ),
    "a container without libcuda": (
        {
            **CU121,
            **IN_CONTAINER,
            "torch/cuda_available": False,
            "driver/libcuda": None,
            "gpus": [],
        },
        "EL411",
        Severity.ERROR,
    ),
    "a folder that hides WSL's": (
        {
            "system/wsl": True,
            "env": {"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu:/usr/lib/wsl/lib"},
        },
        "EL410",
        Severity.ERROR,
    ),
    "a GPU newer than the wheel": (
        {
            **torch("2.5.1+cu121", "12.1"),
            "gpus": [gpu("12.0", "NVIDIA GeForce RTX 5080")],
            "system/os": "linux",
        },
        "EL501",
        Severity.ERROR,
    ),
    "a GPU older than the wheel": (
        {**torch("2.11.0+cu130", "13.0"), "gpus": [gpu("7.0", "Tesla V100")], "system/os": "linux"},
        "EL501",
        Severity.ERROR,
    ),
    "a GPU known by its name": (
        {"torch/arch_list": ["sm_80", "sm_90"], "gpus": [gpu(name="NVIDIA GeForce GTX 1080 Ti")]},
        "EL501",
        Severity.ERROR,
    ),
    "PTX, but libraries that predate the GPU": (
        {
            **torch("1.8.1+cu102", "10.2"),
            "torch/arch_list": ["sm_70", "sm_75", "compute_75"],
            "gpus": [gpu("8.6", "NVIDIA A10")],
        },
        "EL501",
        Severity.ERROR,
    ),
    "an AMD card that the build does not know": (
        {"torch/hip": "6.0", "torch/arch_list": ["gfx906", "gfx1100"], "gpus": [gpu("gfx1031")]},
        "EL501",
        Severity.ERROR,
    ),
    "only PTX for a newer GPU": (
        {
            **torch("2.9.0+cu128", "12.8"),
            "torch/arch_list": ["sm_90", "compute_90"],
            "gpus": [gpu("12.0")],
        },
        "EL502",
        Severity.WARNING,
    ),
    "memory errors": (
        {"gpus": [gpu(ecc_uncorrected=0), gpu(ecc_uncorrected=2)]},
        "EL511",
        Severity.ERROR,
    ),
    "someone else on the GPU": (
        {"gpus": [gpu(used_bytes=40 * 2**30, memory_bytes=80 * 2**30)]},
        "EL513",
        Severity.WARNING,
    ),
    "instances": ({"gpus": [gpu("9.0", "NVIDIA H100", mig=True)]}, "EL512", Severity.INFO),
}

NEAR_MISSES: dict[str, tuple[Facts, str]] = {
    "the floor itself": ({**CU121, "driver/version": "525.60.13"}, "EL401"),
    "a branch whose releases reach the floor": ({**CU121, "driver/version": "525"}, "EL401"),
    "an older minor of the same major": (
        {**torch("2.9.0+cu128", "12.8"), "driver/cuda": "12.2"},
        "EL401",
    ),
    "a driver between floor and the toolkit's own": (
        {**torch("2.9.0+cu128", "12.8"), "driver/version": "535.54.03"},
        "EL401",
    ),
    "a data center GPU with the compat package": (
        {
            **torch("2.11.0", "13.0"),
            "driver/version": "550.54.15",
            "driver/compat": "580.65.06",
            "gpus": [gpu("8.0", "NVIDIA A100-SXM4-80GB")],
        },
        "EL401",
    ),
    "no CUDA in this torch": (
        {**torch("2.3.0+cpu"), "torch/cuda": None, "driver/version": "340.1"},
        "EL401",
    ),
    "a driver that is no version": ({**CU121, "driver/version": "N/A"}, "EL401"),
    "an image of the same CUDA major": (
        {**IN_CONTAINER, "toolkit/system_cuda": "12.4", "driver/cuda": "12.2"},
        "EL402",
    ),
    "an older toolkit on the host is no image": (
        {"toolkit/system_cuda": "12.4", "driver/cuda": "11.4"},
        "EL402",
    ),
    "the compat package on a data center GPU": (
        {
            "driver/version": "535.54.03",
            "driver/compat": "550.54.15",
            "gpus": [gpu("8.0", "NVIDIA A100")],
        },
        "EL403",
    ),
    "no compat folder in the image": (
        {
            **IN_CONTAINER,
            "toolkit/system_cuda": "12.4",
            "driver/version": "535.54.03",
            "driver/compat": None,
            "gpus": [gpu("8.6", "NVIDIA GeForce RTX 3090")],
        },
        "EL403",
    ),
    "module and libraries of one version": (
        {"driver/version": "550.54.15", "driver/kernel_module": "550.54.15"},
        "EL404",
    ),
    "a compat libcuda is another version on purpose": (
        {
            "driver/version": "550.54.15",
            "driver/kernel_module": "535.183.01",
            "driver/compat": "550.54.15",
        },
        "EL404",
    ),
    "NVML works": ({**IN_CONTAINER, "driver/nvml_error": None}, "EL405"),
    "fabric manager runs": ({"gpus": EIGHT, "driver/fabric_manager": True}, "EL407"),
    "eight cards on PCI": (
        {"gpus": [gpu("8.9", "NVIDIA L40S") for _ in range(8)], "driver/fabric_manager": False},
        "EL407",
    ),
    "four cards without NVSwitch": ({"gpus": EIGHT[:4], "driver/fabric_manager": False}, "EL407"),
    "an image that one alternative admits": (
        {
            "env": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4 driver>=470,driver<471"},
            "driver/version": "470.182.03",
            "driver/cuda": "11.4",
        },
        "EL408",
    ),
    "a check that is switched off": (
        {
            "env": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "NVIDIA_DISABLE_REQUIRE": "true"},
            "driver/cuda": "12.2",
        },
        "EL408",
    ),
    "conditions that are not about the driver": (
        {"env": {"NVIDIA_REQUIRE_CUDA": "brand=tesla"}, "driver/cuda": "12.2"},
        "EL408",
    ),
    "an engine on a machine without GPU": (
        {"system/container_toolkit": None, "driver": {"absent": True}, "gpus": []},
        "EL409",
    ),
    "a CPU torch in a container": (
        {
            **torch("2.3.0+cpu"),
            **IN_CONTAINER,
            "torch/cuda_available": False,
            "driver": {"absent": True},
            "gpus": [],
        },
        "EL411",
    ),
    "a machine without driver is no container": (
        {
            **CU121,
            "system/container": None,
            "torch/cuda_available": False,
            "driver": {"absent": True},
            "gpus": [],
        },
        "EL411",
    ),
    "WSL's folder first": (
        {
            "system/wsl": True,
            "env": {"LD_LIBRARY_PATH": "/usr/lib/wsl/lib:/usr/lib/x86_64-linux-gnu"},
        },
        "EL410",
    ),
    "WSL whose loader finds the driver": (
        {"system/wsl": True, "driver/libcuda": "wsl", "env": {"LD_LIBRARY_PATH": {"absent": True}}},
        "EL410",
    ),
    "not WSL": (
        {"system/wsl": False, "env": {"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu"}},
        "EL410",
    ),
    "an equal major and a lower minor": (
        {"torch/arch_list": ["sm_80"], "gpus": [gpu("8.9", "NVIDIA L4")]},
        "EL501",
    ),
    "the variant that keeps old cards": (
        {**torch("2.8.0+cu126", "12.6"), "gpus": [gpu("6.1")], "system/os": "linux"},
        "EL501",
    ),
    "a source build has its own list": (
        {**torch("2.5.1+cu121", "12.1", path_class="source"), "gpus": [gpu("12.0")]},
        "EL501",
    ),
    "no table for Windows wheels": (
        {**torch("2.5.1+cu121", "12.1"), "gpus": [gpu("12.0")], "system/os": "windows"},
        "EL501",
    ),
    "an AMD target with features": (
        {"torch/hip": "6.0", "torch/arch_list": ["gfx90a:sramecc+"], "gpus": [gpu("gfx90a")]},
        "EL501",
    ),
    "the driver's own use of memory": (
        {"gpus": [gpu(used_bytes=500 * 2**20, memory_bytes=80 * 2**30)]},
        "EL513",
    ),
    "no memory errors": ({"gpus": [gpu(ecc_uncorrected=0)]}, "EL511"),
}


@pytest.mark.parametrize("name", TRIPS)
def test_trips(name: str) -> None:
    facts, code, severity = TRIPS[name]
    assert check_lead(one(facts), code, severity).hint


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    facts, code = NEAR_MISSES[name]
    assert code not in codes(one(facts))


def test_an_image_that_is_only_verified_needs_no_driver() -> None:
    inside = {
        **CU121,
        **IN_CONTAINER,
        "torch/cuda_available": False,
        "driver": {"absent": True},
        "gpus": [],
    }
    left = {**CU121, "driver/version": "550.54.15"}
    assert "EL411" not in codes(pair(left, inside, exact=True))
    assert "EL411" in codes(pair(left, inside))


def test_an_unlisted_cuda_is_not_decided() -> None:
    judged = one({**torch("9.0", "99.0"), "driver/version": "550.54.15"})
    assert "EL401" not in codes(judged)
    assert next(o for o in judged.outcomes if o.code == "EL401").why.startswith("driver.version")


@pytest.mark.parametrize(
    ("release", "capability", "build"),
    [
        ("2.5.1+cu121", "12.0", "2.8.0+cu128"),  # the closest release that has it
        ("2.8.0+cu128", "6.1", "2.8.0+cu126"),  # the same release, another variant
        ("2.11.0+cu130", "7.0", "2.11.0+cu126"),
    ],
)
def test_the_remedy_is_a_build_with_kernels_for_the_gpu(
    release: str, capability: str, build: str
) -> None:
    cuda = {"cu121": "12.1", "cu128": "12.8", "cu130": "13.0"}[release.partition("+")[2]]
    facts = {**torch(release, cuda), "gpus": [gpu(capability)], "system/os": "linux"}
    hint = lead(one(facts)).hint
    assert hint.startswith(f"pip install torch=={build} ")


def test_a_second_card_without_kernels_is_found() -> None:
    facts = {"torch/arch_list": ["sm_80"], "gpus": [gpu("8.0"), gpu("6.1", "Tesla P40")]}
    assert lead(one(facts)).subject == "gpus.1.compute_capability"


def test_the_step_to_a_build_that_the_driver_cannot_run_is_the_drivers_fault() -> None:
    left = {**torch("2.10.0", "12.8"), "driver/version": "570.86.10"}
    right = {**torch("2.11.0", "13.0"), "driver/version": "570.86.10"}
    assert lead(pair(left, right)).code == "EL401"


def test_the_step_to_a_variant_without_kernels_is_the_gpus_fault() -> None:
    card = {"gpus": [gpu("5.2", "NVIDIA GeForce GTX 980")], "system/os": "linux"}
    left, right = torch("2.9.0+cu126", "12.6"), torch("2.9.0+cu128", "12.8")
    assert lead(pair({**left, **card}, {**right, **card})).code == "EL501"


def test_the_references_build_would_not_run_here() -> None:
    left = {**CU121, "driver/version": "550.54.15"}
    right = {**torch("2.3.0+cu118", "11.8"), "driver/version": "470.182.03"}
    judged = pair(left, right)
    assert lead(judged).code == "EL201"
    assert "EL421" in codes(judged)


def test_a_machine_without_torch_is_held_against_the_references_build() -> None:
    left = {**CU121, "gpus": [gpu("8.0")]}
    right = {
        "driver/version": "450.80.02",
        "gpus": [gpu("12.0", "NVIDIA GeForce RTX 5090")],
        "system/os": "linux",
    }
    assert {"EL421", "EL503"} <= set(codes(pair({**left, "system/os": "linux"}, right)))


def test_another_driver_is_no_more_than_a_note() -> None:
    judged = pair(
        {**CU121, "driver/version": "535.54.03"}, {**CU121, "driver/version": "550.54.15"}
    )
    assert [(f.code, f.severity) for f in judged.findings] == [("EL422", Severity.INFO)]


CAPABLE: Facts = {"gpus": [gpu("8.6", "NVIDIA A10")]}
INCAPABLE: Facts = {"gpus": [gpu("7.5", "Tesla T4")]}


@pytest.mark.parametrize(("left", "right"), [(CAPABLE, INCAPABLE), (INCAPABLE, CAPABLE)])
def test_a_step_over_tf32(left: Facts, right: Facts) -> None:
    finding = lead(pair(left, right))
    assert (finding.code, finding.severity) == ("EL504", Severity.WARNING)
    assert {e.path for e in finding.evidence} >= {"gpus.0.compute_capability"}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (CAPABLE, {"gpus": [gpu("9.0", "NVIDIA H100")]}),
        (INCAPABLE, {"gpus": [gpu("7.0", "Tesla V100")]}),
        (CAPABLE, {"gpus": []}),
        (CAPABLE, {"gpus": [gpu("gfx90a")]}),
        (
            {**CAPABLE, "env": {"NVIDIA_TF32_OVERRIDE": "0"}},
            {**INCAPABLE, "env": {"NVIDIA_TF32_OVERRIDE": "0"}},
        ),
    ],
)
def test_no_step_over_tf32(left: Facts, right: Facts) -> None:
    assert "EL504" not in codes(pair(left, right))


def test_a_smaller_card_can_run_out_of_memory() -> None:
    big = {"gpus": [gpu("8.0", memory_bytes=80 * 2**30)]}
    small = {"gpus": [gpu("8.0", memory_bytes=40 * 2**30)]}
    assert [f.code for f in loud(pair(big, small))] == ["EL505"]
    assert loud(pair(small, big)) == []


def test_what_a_driver_reserves_is_no_smaller_card() -> None:
    one_card = {"gpus": [gpu("8.0", memory_bytes=85_899_345_920)]}
    other = {"gpus": [gpu("8.0", memory_bytes=85_198_045_184)]}
    assert loud(pair(one_card, other)) == []
