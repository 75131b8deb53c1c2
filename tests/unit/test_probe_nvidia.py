"""Driver and GPU facts from what the kernel shows; calls of libraries are in another tier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.probes import probe_module

common = probe_module("observe_common")
nvidia = probe_module("observe_nvidia")
ABSENT = common.ABSENT


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files of /proc and /sys by path; what is not in it is not there."""
    files: dict[str, str] = {}
    monkeypatch.setattr(common, "read_text", lambda path, *_: files.get(path))
    monkeypatch.setattr(nvidia.glob, "glob", lambda _: sorted(files))
    monkeypatch.setattr(nvidia.glob, "iglob", lambda _: iter(files))
    monkeypatch.setattr(nvidia.os.path, "exists", lambda path: path in files)
    return files


@pytest.mark.parametrize(
    ("line", "version", "is_open"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:42:19",
            "535.129.03",
            False,
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build",
            "560.35.03",
            True,
        ),
    ],
)
def test_kernel_module(kernel: dict[str, str], line: str, version: str, *, is_open: bool) -> None:
    kernel["/proc/driver/nvidia/version"] = line + "\nGCC version: gcc version 12.2.0\n"
    assert nvidia.kernel_module() == (version, is_open)


def test_kernel_module_from_sys_alone(kernel: dict[str, str]) -> None:
    kernel["/sys/module/nvidia/version"] = "470.82.01\n"
    version, is_open = nvidia.kernel_module()
    assert version == "470.82.01"
    assert "unknown" in is_open


def test_no_driver_is_absent(kernel: dict[str, str]) -> None:
    asked = {"cuda": ABSENT, "nvml_error": "the NVML library is not there"}
    assert nvidia.driver_facts(asked, None) == ABSENT
    assert nvidia.gpu_facts(asked, ABSENT) == ([], True)


def test_a_module_without_libraries_is_a_driver(kernel: dict[str, str]) -> None:
    """A container that was started without GPUs on a machine that has them."""
    kernel["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  1.2  x"
    asked = {"cuda": ABSENT, "nvml_error": "the NVML library is not there"}
    found = nvidia.driver_facts(asked, None)
    assert (found["version"], found["kernel_module"]) == ("1.2", "1.2")
    assert found["cuda"] == ABSENT


def test_gpus_without_nvml_have_a_name(kernel: dict[str, str]) -> None:
    kernel["/proc/driver/nvidia/gpus/0/information"] = (
        "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ: 1\nGPU UUID: \t GPU-0000\nBus Location: 0000:3b\n"
    )
    driver = {"version": "550"}
    gpus, complete = nvidia.gpu_facts({"cuda": ABSENT}, driver)
    assert gpus == [{"name": "NVIDIA A100-SXM4-40GB"}]
    assert not complete


def test_a_driver_that_cannot_be_asked(kernel: dict[str, str]) -> None:
    crashed = common.unknown("the child process crashed with signal 11")
    assert nvidia.gpu_facts(crashed, {"version": "550"}) == (crashed, False)


@pytest.mark.parametrize(
    ("process", "expected"), [("nv-fabricmanage\n", True), ("nv-hostengine\n", False)]
)
def test_fabric_manager(kernel: dict[str, str], process: str, *, expected: bool) -> None:
    kernel["/proc/7/comm"] = process
    assert nvidia.fabric_manager() is expected


def test_a_container_does_not_see_the_fabric_manager(kernel: dict[str, str]) -> None:
    kernel["/.dockerenv"] = ""
    assert "unknown" in nvidia.fabric_manager()


def amd_node(root: Path, name: str, target: int, memory: int = 0) -> None:
    node = root / name
    (node / "mem_banks" / "0").mkdir(parents=True)
    (node / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {target}\n")
    (node / "mem_banks" / "0" / "properties").write_text(f"size_in_bytes {memory}\n")


@pytest.mark.parametrize(
    ("target", "gfx"), [(90010, "gfx90a"), (90402, "gfx942"), (100300, "gfx1030"), (0, None)]
)
def test_amd_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: int, gfx: str | None
) -> None:
    amd_node(tmp_path, "1", target, 1 << 36)
    real = nvidia.glob.glob
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    monkeypatch.setattr(nvidia.glob, "glob", lambda p: real(p.replace(nodes, str(tmp_path))))
    gpus: list[dict[str, Any]] = nvidia._amd_gpus()
    assert [gpu["compute_capability"] for gpu in gpus] == ([gfx] if gfx else [])
    assert all(gpu["memory_bytes"] == 1 << 36 for gpu in gpus)


def test_nvidia_comes_before_the_graphics_of_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvidia, "_amd_gpus", lambda: [{"compute_capability": "gfx1036"}])
    asked = {"cuda": "12.4", "gpus": [{"name": "NVIDIA GeForce RTX 4090"}]}
    assert nvidia.gpu_facts(asked, {})[0] == asked["gpus"]
    assert nvidia.gpu_facts({"cuda": ABSENT}, ABSENT)[0] == [{"compute_capability": "gfx1036"}]


def test_reasons_for_a_lower_clock() -> None:
    """The bits of nvml.h; idle is none."""
    assert nvidia.slowed_by(0x1) == []
    assert nvidia.slowed_by(0x44) == ["sw-power-cap", "hw-thermal"]
    assert nvidia.slowed_by(0x1FF)[-1] == "display-clocks"
