"""On which machines a lock can run, decided without one."""

from __future__ import annotations

import pytest

from envlock.diff.requires import Machine, on_machine, requirements
from envlock.findings import Finding, Severity
from tests.unit.envs import env, torch
from tests.unit.healthy import CPU_TORCH, CUDA_TORCH, NEW_TORCH

LOCK = env(CUDA_TORCH)
NEW = env(NEW_TORCH)


def text(found: tuple[Finding, ...], code: str) -> str:
    return next(f.message for f in found if f.code == code)


def test_what_a_cuda_lock_needs() -> None:
    found = requirements(LOCK)
    assert "525.60.13 or newer" in text(found, "EL941")
    assert "530.30.02" in text(found, "EL941")
    assert "sm_50, sm_60" in text(found, "EL942")
    assert "no PTX" in text(found, "EL942")
    assert "glibc 2.17" in text(found, "EL943")
    assert "Python 3.11" in text(found, "EL944")
    assert all(f.severity is Severity.INFO for f in found)


def test_a_cpu_lock_needs_no_driver() -> None:
    assert {f.code for f in requirements(env(CPU_TORCH))} == {"EL943", "EL944"}


def test_a_package_with_two_reasons_is_named_once() -> None:
    """torch: its wheel's tag, and what is known of the release."""
    tags = ["cp311-cp311-manylinux_2_28_x86_64"]
    found = requirements(env({**NEW_TORCH, "packages/torch/tags": tags}))
    assert text(found, "EL943") == "Needs glibc 2.28 or newer, for torch."


def test_ptx_is_named() -> None:
    facts = {**torch("2.9.0+cu128", "12.8"), "torch/arch_list": ["sm_90", "compute_90"]}
    assert "PTX (compute_90)" in text(requirements(env(facts)), "EL942")


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (Machine(gpu="12.0"), "EL501"),
        (Machine(gpu="NVIDIA GeForce RTX 5090"), "EL501"),
        (Machine(driver="470.182.03"), "EL401"),
        (Machine(glibc="2.12"), "EL601"),
    ],
)
def test_a_machine_that_cannot_run_it(machine: Machine, code: str) -> None:
    lead = on_machine(LOCK, machine).findings[0]
    assert (lead.code, lead.severity) == (code, Severity.ERROR)


@pytest.mark.parametrize(
    "machine",
    [
        Machine(),
        Machine(gpu="8.6"),
        Machine(gpu="NVIDIA A100-SXM4-80GB", driver="525.60.13", glibc="2.17"),
        Machine(driver="580"),
    ],
)
def test_a_machine_that_can(machine: Machine) -> None:
    judged = on_machine(LOCK, machine)
    assert all(f.severity is Severity.INFO for f in judged.findings)
    assert judged.checked >= 4


def test_the_same_gpu_and_another_lock() -> None:
    assert on_machine(NEW, Machine(gpu="6.1")).findings[0].code == "EL501"
    assert on_machine(LOCK, Machine(gpu="6.1")).findings[0].severity is Severity.INFO


def test_a_gpu_that_no_table_knows_is_not_decided() -> None:
    judged = on_machine(LOCK, Machine(gpu="Radeon 9700"))
    assert any("compute_capability" in why for why in judged.unknown)
    assert all(f.severity is Severity.INFO for f in judged.findings)


def test_a_branch_of_the_driver_is_not_decided() -> None:
    judged = on_machine(LOCK, Machine(driver="525"))
    assert any("may be older or newer than 525.60.13" in why for why in judged.unknown)
    assert all(f.severity is Severity.INFO for f in judged.findings)


def test_the_machine_it_was_captured_on_does_not_count() -> None:
    broken = env({**CUDA_TORCH, "driver/version": "390.1", "driver/kernel_module": "390.2"})
    assert all(f.severity is Severity.INFO for f in on_machine(broken, Machine()).findings)
