"""What a case says under ``extra``, key by key, where an observation has a field for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from benchmarks.case_tree import ABSENT, MIB, Json, Translation, is_version, version_or_unknown

_GB = 10**9

Reader = Callable[[Translation, str, Any], None]


def _text(*path: str) -> Reader:
    """A text field; null is absent, numbers are written out."""

    def read(t: Translation, key: str, value: Any) -> None:
        if value is None or isinstance(value, str):
            t.put(key, path, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            t.put(key, path, str(value))

    return read


def _yes_no(*path: str) -> Reader:
    """A flag; words about it say more than yes or no and are ignored."""

    def read(t: Translation, key: str, value: Any) -> None:
        if isinstance(value, bool):
            t.put(key, path, value)

    return read


def _texts(*path: str) -> Reader:
    def read(t: Translation, key: str, value: Any) -> None:
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            t.put(key, path, value)

    return read


def _count(*path: str) -> Reader:
    def read(t: Translation, key: str, value: Any) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            t.put(key, path, value)

    return read


def _container(t: Translation, key: str, value: Any) -> None:
    t.put(key, ("system", "container"), "container" if value else None)


def _bytes(unit: int, *path: str) -> Reader:
    def read(t: Translation, key: str, value: Any) -> None:
        if isinstance(value, int | float) and value >= 0:
            t.put(key, path, int(value * unit))

    return read


def _conda(t: Translation, key: str, value: Mapping[str, str]) -> None:
    t.put(key, ("python", "environment"), "conda")
    for name, text in value.items():
        version, _, build = str(text).partition("=")
        entry: Json = {"version": version} if is_version(version) else {}
        if build:
            entry["build"] = build
        found = re.search(r"build (\S+)", str(text))
        if found:
            entry["build"] = found.group(1)
        channel = re.search(r"(not )?from the (\S+) channel", str(text))
        if channel:
            entry["channel"] = f"{'not ' if channel.group(1) else ''}{channel.group(2)}"
        t.put(f"{key}.{name}", ("conda", name), entry)


def _built_for(t: Translation, key: str, value: Mapping[str, Mapping[str, str]]) -> None:
    for name, built in value.items():
        known = {k: v for k, v in built.items() if k in {"torch", "cuda"}}
        t.put(f"{key}.{name}", ("packages", canonicalize_name(name), "built_for"), known)


def _wheel_tag(t: Translation, key: str, value: str) -> None:
    name, version, *_ = value.split("-")
    t.put(key, ("packages", canonicalize_name(name), "version"), version)


def _vision_cuda(t: Translation, key: str, value: bool) -> None:  # noqa: FBT001
    if value is False:
        t.put(key, ("packages", "torchvision", "built_for"), {"cuda": dict(ABSENT)})


def _required_by_torch(t: Translation, key: str, value: str) -> None:
    name, _, version = value.partition(" ")
    installed = t.tree.get("packages", {}).get(name, {}).get("version", dict(ABSENT))
    entry = {"distribution": "torch", "requirement": f"{name}=={version}", "installed": installed}
    t.append(key, "unmet", entry)


def _requested(t: Translation, key: str, value: str) -> None:
    entry = {"distribution": "the request", "requirement": value, "installed": dict(ABSENT)}
    t.append(key, "unmet", entry)


def _minimum_cudnn(t: Translation, key: str, value: str) -> None:
    entry = {
        "distribution": "a library",
        "requirement": f"cudnn>={value}",
        "installed": dict(ABSENT),
    }
    t.append(key, "unmet", entry)


def _system_packages(t: Translation, key: str, value: Mapping[str, str]) -> None:
    for name, version in value.items():
        if name in {"libnccl", "libnccl2"}:
            entry = {"path_class": "system", "owner": name, "version": version}
            t.put(f"{key}.{name}", ("libraries", "libnccl.so.2"), entry)


def _toolkit_folders(t: Translation, key: str, value: list[str]) -> None:
    for folder in value:
        found = re.search(r"cuda-(\d+\.\d+)", folder)
        if found:
            t.put(key, ("toolkit", "system_cuda"), found.group(1))


def _base_image(t: Translation, key: str, value: Any) -> None:
    if value:
        t.put(key, ("toolkit", "system_cuda"), "that of the base image")


def _flag(t: Translation, key: str, value: Any, *path: str) -> None:
    if value:
        t.put(key, path, True)


def _mig(t: Translation, key: str, value: Any) -> None:
    if value:
        t.gpu(key, 0, "mig", True)


def _ecc(t: Translation, key: str, value: Any) -> None:
    found = re.search(r"\d+", str(value))
    count = int(found.group(0)) if found else 0
    t.gpu(key, 0, "ecc_uncorrected", count + 1 if "greater" in str(value) else count)


def _torch_folder(t: Translation, key: str, value: str) -> None:
    if value.startswith("~/.local"):
        t.put(key, ("torch", "path_class"), "user-site")
    else:
        _site_folder(t, key, value)


def _site_folder(t: Translation, key: str, value: str) -> None:
    folders = t.tree.get("python", {}).get("site_folders", [])
    t.put(key, ("python", "site_folders"), [*folders, value])


def _device_mode(t: Translation, key: str, value: str | None) -> None:
    name = key.rpartition(".dev_")[2]
    mode = value.split(maxsplit=1)[0] if value else ""
    open_to_others = len(mode) == 10 and "rw" in (mode[4:6], mode[7:9])
    access = "missing" if value is None else "rw" if open_to_others else "denied"
    t.put(key, ("limits", "devices", name), access)


def _libstdcxx(t: Translation, key: str, value: str) -> None:
    outside = value.startswith(("/lib", "/usr/lib"))
    t.put(key, ("system", "libstdcxx"), "system" if outside else "conda")


def _conda_lib(t: Translation, key: str, value: list[str]) -> None:
    t.put(key, ("python", "environment"), "conda")
    if any(name.startswith("libstdc++") for name in value):
        t.put(key, ("conda", "libstdcxx-ng"), {})


def _no_direct_url(t: Translation, key: str, value: Any) -> None:
    if value is False:
        for package in t.tree.get("packages", {}).values():
            package["source"] = dict(ABSENT)
        t.keys["packages"] = key


def _conda_urls(t: Translation, key: str, value: list[str]) -> None:
    for name in value:
        source = {"kind": "conda", "url": dict(ABSENT)}
        t.put(key, ("packages", canonicalize_name(name), "source"), source)


def _broken_folder(t: Translation, key: str, value: str) -> None:
    t.append(key, "broken", {"folder": "a metadata folder", "reason": str(value)})


def _no_metadata(t: Translation, key: str, value: Mapping[str, str | None]) -> None:
    for name, version in value.items():
        if version is None:
            t.append(f"{key}.{name}", "broken", {"folder": name, "reason": "no METADATA"})


def _imports(t: Translation, key: str, value: Any) -> None:
    if value in {"fails", "works"}:
        t.put(key, ("torch", "importable"), value == "works")


def _build(t: Translation, key: str, value: Any) -> None:
    if value in {"cuda", "cpu", "rocm", "xpu", "mps"}:
        t.put(key, ("torch", "build"), value)


def _libcuda(t: Translation, key: str, value: Any) -> None:
    if value is None:
        t.put(key, ("driver", "libcuda"), None)


def _found_library(t: Translation, key: str, value: str) -> None:
    where = "cuda-home" if "/cuda" in value else "system"
    t.put(key, ("libraries", Path(value).name), {"path_class": where})


EXTRA: dict[str, Reader] = {
    "c_compiler": _text("toolkit", "c_compiler"),
    "cc": _text("toolkit", "c_compiler"),
    "cgroup_limit_gb": _bytes(_GB, "limits", "cgroup_memory_bytes"),
    "conda_lib_has": _conda_lib,
    "conda_packages": _conda,
    "conda_packages_with_direct_url": _conda_urls,
    "cuda_available": _yes_no("torch", "cuda_available"),
    "cxx11_abi": _yes_no("torch", "cxx11_abi"),
    "deterministic_algorithms": _yes_no("torch", "switches", "deterministic_algorithms"),
    "direct_url_json": _no_direct_url,
    "ecc_uncorrected": _ecc,
    "ecc_uncorrected_volatile": _ecc,
    "extension_built_for": _built_for,
    "gcc": _text("toolkit", "c_compiler"),
    "has_cuda_base": _base_image,
    "image_cuda": _text("toolkit", "system_cuda"),
    "image_requires": _text("env", "NVIDIA_REQUIRE_CUDA"),
    "import_torch": _imports,
    "in_container": _container,
    "installed_build": _build,
    "kernel_module": _text("driver", "kernel_module"),
    "libcuda": _libcuda,
    "libcudart_found": _found_library,
    "library_minimum_cudnn": _minimum_cudnn,
    "loaded_libstdcxx": _libstdcxx,
    "metadata_version": _no_metadata,
    "mig": _mig,
    "nvidia_container_toolkit": _text("system", "container_toolkit"),
    "nvidia_dir": _site_folder,
    "nvidia_fabricmanager": lambda t, k, v: t.put(k, ("driver", "fabric_manager"), bool(v)),
    "nvml_error": _text("driver", "nvml_error"),
    "other_nccl": _text("nccl", "loaded"),
    "platform_processor": _text("python", "arch"),
    "psutil_available_gb": _bytes(_GB, "system", "memory_bytes"),
    "python_bits": _count("python", "bits"),
    "requested": _requested,
    "required_by_torch": _required_by_torch,
    "required_nccl": _text("nccl", "compiled"),
    "requirements_options": _texts("indexes", "options"),
    "shm_gb": _bytes(_GB, "limits", "shm_bytes"),
    "shm_mib": _bytes(MIB, "limits", "shm_bytes"),
    "site_packages_has": _broken_folder,
    "system_cuda": _text("toolkit", "system_cuda"),
    "system_cuda_dirs": _toolkit_folders,
    "system_packages": _system_packages,
    "torch_arch_list": _texts("torch", "arch_list"),
    "torch_build": _build,
    "torch_dir": _torch_folder,
    "torchvision_has_cuda": _vision_cuda,
    "triton": lambda t, k, v: t.put(k, ("packages", "triton", "version"), version_or_unknown(v)),
    "wheel_tag": _wheel_tag,
    "wsl": lambda t, k, v: _flag(t, k, v, "system", "wsl"),
    "wsl_driver_dir": lambda t, k, v: _flag(t, k, v, "system", "wsl"),
}
"""Key under ``extra`` -> how it becomes a fact; any other key has no field in an observation."""

TABLES: dict[str, type] = {
    "conda_lib_has": list,
    "conda_packages": dict,
    "conda_packages_with_direct_url": list,
    "extension_built_for": dict,
    "libcudart_found": str,
    "loaded_libstdcxx": str,
    "metadata_version": dict,
    "nvidia_dir": str,
    "requested": str,
    "required_by_torch": str,
    "requirements_options": list,
    "system_cuda_dirs": list,
    "system_packages": dict,
    "torch_arch_list": list,
    "torch_dir": str,
    "wheel_tag": str,
}
"""Kinds of value that a reader expects; anything else under that key is ignored."""


def read_extra(t: Translation, name: str, value: Any) -> None:
    """Record the fact behind one key; a key or value that no field can hold is ignored."""
    reader = _device_mode if name.startswith("dev_") else EXTRA.get(name)
    wanted = TABLES.get(name)
    if reader is not None and (wanted is None or isinstance(value, wanted)):
        reader(t, f"extra.{name}", value)
