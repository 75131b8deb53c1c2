"""Silence where silence is due: pairs that differ, and differ only harmlessly."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from envlock.diff.judge import judge_pair
from envlock.findings import Severity
from tests.unit.envs import Facts, env, loud, one
from tests.unit.healthy import ALL, CUDA_TORCH, GIB, record

PAIRS = 300


def _set(**facts: Any) -> Callable[[Facts], None]:
    return lambda tree: tree.update({k.replace("__", "/"): v for k, v in facts.items()})


def _release(name: str, version: str) -> Callable[[Facts], None]:
    def change(tree: Facts) -> None:
        tree["packages"][name]["version"] = version
        tree["packages"][name]["record"] = record(f"{name} {version}")

    return change


def _installer(tree: Facts) -> None:
    for package in tree["packages"].values():
        package["installer"] = "uv"


def _other_order(tree: Facts) -> None:
    tree["packages"] = dict(reversed(tree["packages"].items()))


def _more_packages(tree: Facts) -> None:
    tree["packages"]["ipython"] = {"version": "8.24.0", "record": record("ipython")}


def _variables(**values: str) -> Callable[[Facts], None]:
    return lambda tree: tree["env"].update(values)


def _newer_driver(tree: Facts) -> None:
    if "driver/version" in tree:
        old = tree["driver/version"].partition(".")[0] == "535"
        version, cuda = ("550.54.15", "12.4") if old else ("580.95.05", "13.0")
        tree |= {"driver/version": version, "driver/kernel_module": version, "driver/cuda": cuda}


def _more_memory(tree: Facts) -> None:
    for card in tree["gpus"]:
        card["memory_bytes"] += 16 * GIB  # towards the right only


def _gpu_in_use(tree: Facts) -> None:
    for card in tree["gpus"]:
        card["used_bytes"] = 300 * 2**20


HARMLESS: dict[str, Callable[[Facts], None]] = {
    "installer": _installer,
    "order": _other_order,
    "another user": _set(python__user_site=True),
    "python patch": _set(python__version="3.11.2"),
    "requests patch": _release("requests", "2.32.3"),
    "tqdm patch": _release("tqdm", "4.66.5"),
    "jinja2 patch": _release("jinja2", "3.1.5"),
    "transformers patch": _release("transformers", "4.41.2"),
    "pip seed": _set(seeds={"pip": "25.1", "setuptools": "70.0.0"}),
    "kernel": _set(system__kernel="6.8.0"),
    "distribution": _set(system__distribution="debian 12", system__glibc="2.36"),
    "cores": _set(system__cores=32, system__cpu="Intel Xeon Platinum 8480+"),
    "host memory": _set(system__memory_bytes=256 * GIB),
    "shared memory": _set(limits__shm_bytes=64 * GIB),
    "newer driver": _newer_driver,
    "toolkit minor": _set(toolkit__nvcc="12.4.131", toolkit__system_cuda="12.4"),
    "compiler": _set(toolkit__c_compiler="gcc 13.2.0"),
    "a package more": _more_packages,
    "threads": _variables(OMP_NUM_THREADS="8"),
    "log level": _variables(NCCL_DEBUG="INFO", TORCH_CPP_LOG_LEVEL="INFO"),
    "caches": _variables(TRITON_CACHE_DIR="~/.cache/triton", TORCHINDUCTOR_CACHE_DIR="~/.cache/t"),
    "its only gpu": _variables(CUDA_VISIBLE_DEVICES="0"),
    "where it was read": _set(read_from={"driver.version": "NVML"}),
    "gpu memory in use": _gpu_in_use,
    "index": _set(indexes={"hosts": ["mirror.example"], "find_links": False}),
    "environment": _set(python__environment="system"),
    "container": _set(system__container="docker"),
    "a system folder first": _variables(LD_LIBRARY_PATH="~/lib:/usr/lib/x86_64-linux-gnu"),
}


def changed(base: Facts, names: list[str]) -> Facts:
    tree = copy.deepcopy(base)
    for name in names:
        HARMLESS[name](tree)
    return tree


def pairs() -> list[tuple[str, list[str], list[str]]]:
    """Base, and the changes of the left and of the right side; each change alone comes first."""
    nothing: list[str] = []
    found = [(base, nothing, [name]) for base in ALL for name in HARMLESS]
    chance = random.Random(0)
    names = list(HARMLESS)
    while len(found) < PAIRS:
        left, right = (chance.sample(names, chance.randint(1, 8)) for _ in range(2))
        found.append((chance.choice(list(ALL)), left, right))
    return found


@pytest.mark.parametrize("base", ALL)
def test_a_healthy_environment_has_no_fault(base: str) -> None:
    judged = one(ALL[base])
    assert [(f.code, f.message) for f in loud(judged)] == []
    assert judged.checked >= 30


def test_harmless_pairs_are_silent_in_both_directions() -> None:
    noisy = []
    for base, left, right in pairs():
        sides = env(changed(ALL[base], left)), env(changed(ALL[base], right))
        for one_side, other in (sides, sides[::-1]):
            judged = judge_pair(one_side, other)
            noisy += [(base, left, right, f.code, f.message) for f in loud(judged)]
            assert judged.checked > 40
    assert noisy == []


def test_there_are_enough_pairs() -> None:
    assert len(pairs()) >= PAIRS


def test_the_generator_could_find_noise() -> None:
    """A change that matters, in the same harness, is not silent."""
    other = copy.deepcopy(CUDA_TORCH)
    other["env"]["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    found = judge_pair(env(CUDA_TORCH), env(other)).findings
    assert any(f.severity is not Severity.INFO for f in found)


def test_more_gpu_memory_is_harmless_and_less_is_not() -> None:
    bigger = copy.deepcopy(CUDA_TORCH)
    _more_memory(bigger)
    assert loud(judge_pair(env(CUDA_TORCH), env(bigger))) == []
    assert [f.code for f in loud(judge_pair(env(bigger), env(CUDA_TORCH)))] == ["EL505"]
