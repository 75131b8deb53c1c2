"""Torch builds and what must fit them: each detector with what trips it and what must not."""

from __future__ import annotations

import pytest

from envlock.findings import Severity
from tests.unit.envs import Facts, check_lead, codes, gpu, lead, loud, one, package, pair, torch

LINUX: Facts = {"system/os": "linux", "system/arch": "x86_64"}


def packages(**versions: str) -> Facts:
    return {"packages": {name.replace("_", "-"): package(v) for name, v in versions.items()}}


TRIPS: dict[str, tuple[Facts, str]] = {
    "cpu torch beside a card": (
        {**torch("2.5.1+cpu"), "gpus": [gpu("8.9", "NVIDIA L4")], "driver/version": "550.54.15"},
        "EL211",
    ),
    "cpu torch by its cuda attribute": (
        {"torch/version": "2.7.0", "torch/build": "cpu", "gpus": [gpu("8.0", "NVIDIA A100")]},
        "EL211",
    ),
    "conda's cpu build beside pytorch-cuda": (
        {
            "torch/version": "2.1.0",
            "conda": {"pytorch": {"build": "py3.10_cpu_0"}, "pytorch-cuda": {"version": "12.1"}},
        },
        "EL211",
    ),
    "cpu torch beside an extension for CUDA": (
        {
            **torch("2.4.1+cpu"),
            "packages": {
                "xformers": package("0.0.28", built_for={"torch": "2.4.1+cu124", "cuda": "12.4"})
            },
        },
        "EL211",
    ),
    "cpu torch with an AMD card": (
        {
            "torch/build": "cpu",
            "torch/hip": None,
            "gpus": [gpu("gfx1100", "AMD Radeon RX 7900 XTX")],
        },
        "EL211",
    ),
    "an image whose solver saw no GPU": (
        {
            "torch/cuda_available": False,
            "toolkit/system_cuda": "12.4",
            "system/container": "docker",
            "env": {"CONDA_OVERRIDE_CUDA": {"absent": True}},
        },
        "EL211",
    ),
    "import fails": ({**torch("2.3.0+cu121", "12.1"), "torch/importable": False}, "EL212"),
    "no GPU for torch, for no reason that shows": (
        {**torch("2.3.0+cu121", "12.1"), "torch/cuda_available": False, "gpus": [gpu("8.0")]},
        "EL213",
    ),
    "cuda torchvision beside a cpu torch": (
        {**LINUX, **torch("2.3.1+cpu"), **packages(torchvision="0.18.1")},
        "EL221",
    ),
    "cpu torchvision beside a cuda torch": (
        {**LINUX, **torch("2.3.1+cu121", "12.1"), **packages(torchvision="0.18.1+cpu")},
        "EL221",
    ),
    "torchaudio of another cuda build": (
        {**LINUX, **torch("2.3.1+cu118", "11.8"), **packages(torchaudio="2.3.1+cu121")},
        "EL221",
    ),
    "torchvision says that it has no cuda": (
        {
            **torch("2.3.1", "12.1"),
            "packages": {"torchvision": package("0.18.1", built_for={"cuda": {"absent": True}})},
        },
        "EL221",
    ),
    "torchvision for another release": (
        {
            **packages(torchvision="0.17.0", torch="2.4.0"),
            "unmet": [
                {"distribution": "torchvision", "requirement": "torch==2.2.0", "installed": "2.4.0"}
            ],
        },
        "EL222",
    ),
    "torchvision of an older release, by the tables": (
        {**torch("2.4.0+cu121", "12.1"), **packages(torchvision="0.18.1")},
        "EL222",
    ),
    "torchaudio of a newer release, by the tables": (
        {"torch/version": "2.1.2", **packages(torchaudio="2.2.0")},
        "EL222",
    ),
    "flash-attn for another torch": (
        {**torch("2.4.0+cu121", "12.1"), **packages(flash_attn="2.5.8+cu122torch2.3cxx11abifalse")},
        "EL223",
    ),
    "an extension for another cuda major": (
        {**torch("2.1.2+cu118", "11.8"), **packages(torch_scatter="2.1.2+pt21cu121")},
        "EL223",
    ),
    "an extension with the new ABI on an old wheel": (
        {
            **torch("2.4.0+cu121", "12.1", cxx11_abi=False),
            **packages(flash_attn="2.6.3+cu123torch2.4cxx11abiTRUE"),
        },
        "EL224",
    ),
    "an extension with the old ABI on a new wheel, by the tables": (
        {
            **LINUX,
            **torch("2.7.0", "12.6"),
            **packages(flash_attn="2.7.4+cu12torch2.7cxx11abiFALSE"),
        },
        "EL224",
    ),
    "bitsandbytes without a library for a newer CUDA": (
        {**LINUX, **torch("2.4.0+cu124", "12.4"), **packages(bitsandbytes="0.43.0")},
        "EL229",
    ),
    "bitsandbytes without a library for an older CUDA": (
        {**LINUX, **torch("1.13.1+cu116", "11.6"), **packages(bitsandbytes="0.41.1")},
        "EL229",
    ),
    "triton too new": ({**torch("2.4.0+cu121", "12.1"), **packages(triton="3.1.0")}, "EL225"),
    "triton too old": ({**torch("2.8.0+cu128", "12.8"), **packages(triton="3.3.1")}, "EL225"),
    "triton outside a compatible range": (
        {**torch("2.14.0+cu130", "13.0"), **packages(triton="3.9.0")},
        "EL225",
    ),
    "triton against torch's own requirement": (
        {
            **packages(triton="3.2.0"),
            "unmet": [
                {"distribution": "torch", "requirement": "triton==3.1.0", "installed": "3.2.0"}
            ],
        },
        "EL225",
    ),
    "torchvision from another channel": (
        {"conda": {"pytorch": {"channel": "conda-forge"}, "torchvision": {"channel": "pytorch"}}},
        "EL227",
    ),
    "transformer-engine in parts": (
        packages(transformer_engine="1.12.0", transformer_engine_torch="1.13.0"),
        "EL228",
    ),
    "flashinfer upgraded alone": (
        packages(flashinfer_python="0.7.0", flashinfer_cubin="0.6.14"),
        "EL228",
    ),
    "numpy 2 with torch 2.1": (
        {**torch("2.1.0+cu121", "12.1"), **packages(numpy="2.0.1")},
        "EL130",
    ),
    "numpy 2 of some release": ({"torch/version": "1.13.1", **packages(numpy="2.x")}, "EL130"),
}

NEAR_MISSES: dict[str, tuple[Facts, str]] = {
    "bitsandbytes with a library for this CUDA": (
        {**LINUX, **torch("2.4.0+cu124", "12.4"), **packages(bitsandbytes="0.43.1")},
        "EL229",
    ),
    "bitsandbytes told to take another library": (
        {
            **LINUX,
            **torch("2.4.0+cu124", "12.4"),
            **packages(bitsandbytes="0.43.0"),
            "env": {"BNB_CUDA_VERSION": "123"},
        },
        "EL229",
    ),
    "bitsandbytes that takes the nearest library": (
        {**LINUX, **torch("2.10.0+cu129", "12.9"), **packages(bitsandbytes="0.50.2")},
        "EL229",
    ),
    "a cpu torch on a machine without GPU": (
        {**torch("2.5.1+cpu"), "gpus": [], "driver": {"absent": True}},
        "EL211",
    ),
    "a cpu torch and a toolkit to compile with, but no GPU": (
        {**torch("2.5.1+cpu"), "gpus": [], "driver": {"absent": True}, "toolkit/nvcc": "12.4.131"},
        "EL211",
    ),
    "a conda cuda build": (
        {"conda": {"pytorch": {"build": "py3.10_cuda12.1_cudnn8.9.2_0"}, "pytorch-cuda": {}}},
        "EL211",
    ),
    "a rocm torch": ({"torch/version": "2.3.0+rocm6.0", "gpus": [gpu("gfx1100")]}, "EL211"),
    "a cuda image where the override was set": (
        {
            "torch/cuda_available": False,
            "toolkit/system_cuda": "12.4",
            "system/container": "docker",
            "env": {"CONDA_OVERRIDE_CUDA": "12.4"},
        },
        "EL211",
    ),
    "cuda is not available without a GPU": (
        {**torch("2.3.0+cu121", "12.1"), "torch/cuda_available": False, "gpus": []},
        "EL213",
    ),
    "the default torchvision with the default torch": (
        {**LINUX, **torch("2.3.0+cu121", "12.1"), **packages(torchvision="0.18.0")},
        "EL221",
    ),
    "both from the cpu index": (
        {
            **LINUX,
            **torch("2.3.0+cpu"),
            **packages(torchvision="0.18.0+cpu", torchaudio="2.3.0+cpu"),
        },
        "EL221",
    ),
    "the default torchvision of Windows is a cpu build": (
        {"system/os": "windows", **torch("2.3.0+cpu"), **packages(torchvision="0.18.0")},
        "EL221",
    ),
    "development builds carry commits as tags": (
        {
            **LINUX,
            "torch/version": "1.7.0a0+9ddd3df",
            "torch/hip": "3.7",
            **packages(torchvision="0.8.0a0+a4736ea"),
        },
        "EL221",
    ),
    "another patch of the right torchvision": (
        {"torch/version": "2.4.0", **packages(torchvision="0.19.1", torchaudio="2.4.1")},
        "EL222",
    ),
    "the torchaudio that fits every later torch": (
        {"torch/version": "2.13.0", **packages(torchaudio="2.11.1")},
        "EL222",
    ),
    "development builds are in no table": (
        {"torch/version": "2.5.0.dev20240820", **packages(torchvision="0.20.0.dev20240820")},
        "EL222",
    ),
    "flash-attn for this torch": (
        {
            **torch("2.4.0+cu121", "12.1", cxx11_abi=False),
            **packages(flash_attn="2.6.3+cu123torch2.4cxx11abiFALSE"),
        },
        "EL223",
    ),
    "the right ABI": (
        {
            **torch("2.4.0+cu121", "12.1", cxx11_abi=False),
            **packages(flash_attn="2.6.3+cu123torch2.4cxx11abiFALSE"),
        },
        "EL224",
    ),
    "the pinned triton": ({**torch("2.4.0+cu121", "12.1"), **packages(triton="3.0.0")}, "EL225"),
    "a triton within the compatible range": (
        {**torch("2.14.0+cu130", "13.0"), **packages(triton="3.8.1")},
        "EL225",
    ),
    "the triton of an unlisted torch": (
        {"torch/version": "2.99.0", **packages(triton="9.0")},
        "EL225",
    ),
    "one channel": (
        {"conda": {"pytorch": {"channel": "pytorch"}, "torchvision": {"channel": "pytorch"}}},
        "EL227",
    ),
    "flashinfer of one version, one with a local tag": (
        packages(flashinfer_python="0.6.14", flashinfer_jit_cache="0.6.14+cu129"),
        "EL228",
    ),
    "numpy 2 with torch 2.3": (
        {**torch("2.3.0+cu121", "12.1"), **packages(numpy="2.0.1")},
        "EL130",
    ),
    "numpy 1 with an old torch": ({"torch/version": "1.13.1", **packages(numpy="1.26.4")}, "EL130"),
}


@pytest.mark.parametrize("name", TRIPS)
def test_trips(name: str) -> None:
    facts, code = TRIPS[name]
    judged = one(facts)
    assert lead(judged).code == code
    assert lead(judged).severity is Severity.ERROR
    assert lead(judged).hint


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    facts, code = NEAR_MISSES[name]
    assert code not in codes(one(facts))


def test_a_mixed_torchvision_is_the_fault_even_if_the_older_mix_seemed_to_work() -> None:
    left = {**LINUX, **torch("2.2.0+cpu"), **packages(torchvision="0.17.0")}
    right = {**LINUX, **torch("2.3.0+cpu"), **packages(torchvision="0.18.0")}
    assert lead(pair(left, right)).code == "EL221"


DIFFERENCES: dict[str, tuple[Facts, Facts, str, Severity]] = {
    "cuda against cpu": (torch("2.5.1+cu124", "12.4"), torch("2.5.1+cpu"), "EL202", Severity.ERROR),
    "cpu against cuda": (torch("2.5.1+cpu"), torch("2.5.1+cu124", "12.4"), "EL202", Severity.ERROR),
    "another cuda minor": (
        torch("2.6.0+cu124", "12.4"),
        torch("2.6.0+cu126", "12.6"),
        "EL201",
        Severity.ERROR,
    ),
    "another release": (
        torch("2.3.0+cu121", "12.1"),
        torch("2.4.0+cu121", "12.1"),
        "EL203",
        Severity.ERROR,
    ),
    "a patch release without a known change": (
        torch("2.3.0+cu121", "12.1"),
        torch("2.3.1+cu121", "12.1"),
        "EL203",
        Severity.WARNING,
    ),
    "a nightly that no table knows": (
        {"torch/version": "2.0.0"},
        {"torch/version": "2.1.0.dev20230601+cu118"},
        "EL203",
        Severity.INFO,
    ),
    "another commit under one version": (
        torch("2.3.0+cu121", "12.1", git="a" * 40),
        torch("2.3.0+cu121", "12.1", git="b" * 40),
        "EL204",
        Severity.ERROR,
    ),
    "no torch here": (
        torch("2.3.0+cu121", "12.1"),
        {"torch": {"absent": True}},
        "EL205",
        Severity.ERROR,
    ),
    "another rocm": (
        {"torch/version": "2.3.0+rocm6.0", "torch/hip": "6.0.32830"},
        {"torch/version": "2.3.0+rocm5.7", "torch/hip": "5.7.31921"},
        "EL206",
        Severity.ERROR,
    ),
    "another triton": (packages(triton="3.0.0"), packages(triton="3.1.0"), "EL226", Severity.ERROR),
    "another patch of triton": (
        packages(triton="3.8.0"),
        packages(triton="3.8.1"),
        "EL226",
        Severity.WARNING,
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences(name: str) -> None:
    left, right, code, severity = DIFFERENCES[name]
    finding = check_lead(pair(left, right), code, severity)
    assert {e.side.value for e in finding.evidence} == {"left", "right"}


def test_the_build_is_known_from_the_local_tag_alone() -> None:
    left, right = {"torch/version": "2.3.0+cu121"}, {"packages": {"torch": package("2.3.0+cu118")}}
    assert lead(pair(left, right)).code == "EL201"


def test_the_cuda_build_of_a_nightly_counts_too() -> None:
    left = torch("2.0.0.dev20230227+cu118", "11.8")
    right = torch("2.0.0.dev20230227+cu121", "12.1")
    finding = lead(pair(left, right))
    assert finding.code == "EL201"
    assert finding.hint == "install torch 2.0.0.dev20230227+cu118, as the reference has it"


def test_the_remedy_names_the_python_that_has_a_wheel() -> None:
    left = {**torch("2.3.0+cu121", "12.1"), "python/version": "3.11.2", "python/abi": "cp311"}
    right = {**torch("2.3.0+cu118", "11.8"), "python/version": "3.13.0", "python/abi": "cp313"}
    hint = lead(pair(left, right)).hint
    assert "Python 3.11.2" in hint
    assert "no wheel for cp313" in hint


def test_companions_are_installed_in_the_same_command() -> None:
    left = {**torch("2.3.0+cu121", "12.1"), **packages(torchvision="0.18.0")}
    finding = lead(pair(left, torch("2.3.0+cu118", "11.8")))
    assert "torch==2.3.0+cu121 torchvision==0.18.0 " in finding.hint


def test_the_same_build_is_silent() -> None:
    facts = torch("2.3.0+cu121", "12.1", git="a" * 40)
    assert loud(pair(facts, facts)) == []
