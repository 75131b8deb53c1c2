"""An environment of a case file as an observation, and which key became which fact.

A key that is left out stays unknown, null becomes absent. Keys under ``extra`` for which an
observation has no field are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from envlock.lock.observation import Observation

ABSENT = {"absent": True}
_GB = 10**9
_MIB = 2**20
Json = dict[str, Any]


class Translation:
    """The tree of an observation, and the case's key behind each of its facts."""

    def __init__(self, tree: Json) -> None:
        self.tree = tree
        self.keys: dict[str, str] = {}
        """Dotted path in the observation -> dotted key in the case, without ``a.``."""

    def put(self, key: str, path: tuple[str, ...], value: Any) -> None:
        """Record a fact; None is absent."""
        node = self.tree
        for part in path[:-1]:
            below = node.get(part)
            if not isinstance(below, dict) or below.keys() & {"absent", "unknown"}:
                below = node[part] = {}
            node = below
        node[path[-1]] = dict(ABSENT) if value is None else value
        self.keys[".".join(path)] = key

    def gpu(self, key: str, index: int, field: str, value: Any) -> None:
        gpus = self.tree.get("gpus")
        if not isinstance(gpus, list):
            gpus = self.tree["gpus"] = []
        while len(gpus) <= index:
            gpus.append({})
        gpus[index][field] = value
        self.keys[f"gpus.{index}.{field}"] = key

    def append(self, key: str, path: str, value: Any) -> None:
        table = self.tree.setdefault(path, [])
        table.append(value)
        self.keys[f"{path}.{len(table) - 1}"] = key

    def key_of(self, path: str) -> str | None:
        """The case's key for a path of a finding's evidence, wider or narrower ones included."""
        if path in self.keys:
            return self.keys[path]
        for known, key in sorted(self.keys.items(), key=lambda item: -len(item[0])):
            if known.startswith(f"{path}.") or path.startswith(f"{known}."):
                return key
        return None

    def observation(self) -> Observation:
        return Observation.model_validate(self.tree)


def _is_version(text: str) -> bool:
    return bool(re.match(r"\d", text))


def _version(text: Any) -> Any:
    """A version, or unknown where the thread only says that it is there."""
    return text if isinstance(text, str) and _is_version(text) else {"unknown": str(text)[:200]}


def _torch(t: Translation, env: Json) -> None:
    if "torch" in env:
        version = env["torch"]
        t.put("torch", ("torch", "version"), version)
        if version is not None and _is_version(version):
            release, _, local = version.partition("+")
            t.put("torch", ("torch", "release"), release)
            if local:
                t.put("torch", ("torch", "local"), local)
    for key, field in (("torch_cuda", "cuda"), ("torch_hip", "hip")):
        if key in env:
            t.put(key, ("torch", field), env[key])


def _libraries(t: Translation, env: Json) -> None:
    for name in ("cudnn", "nccl"):
        value = env.get(name)
        if isinstance(value, dict):
            for part, text in value.items():
                t.put(f"{name}.{part}", (name, part), text)
        elif name in env:
            t.put(name, (name, "loaded"), value)


def _driver(t: Translation, env: Json) -> None:
    driver = env.get("driver")
    if isinstance(driver, dict):
        fields = {"kernel_module": "kernel_module", "userspace": "version"}
        for part, text in driver.items():
            if part in fields:
                t.put(f"driver.{part}", ("driver", fields[part]), text)
    elif "driver" in env:
        t.put("driver", ("driver", "version"), driver)
    if "driver_cuda" in env:
        t.put("driver_cuda", ("driver", "cuda"), env["driver_cuda"])


def _gpus(t: Translation, env: Json) -> None:
    if "gpus" not in env:
        return
    t.tree["gpus"] = []
    t.tree["exhaustive"] = [*t.tree.get("exhaustive", []), "gpus"]
    t.keys["gpus"] = "gpus"
    for index, gpu in enumerate(env["gpus"] or []):
        fields = {"name": gpu.get("name"), "compute_capability": gpu.get("cc")}
        names = {"name": "name", "compute_capability": "cc"}
        t.tree["gpus"].append({})
        for field, value in fields.items():
            if value is not None:
                t.gpu(f"gpus.{index}.{names[field]}", index, field, value)
        if gpu.get("memory_mib") is not None:
            t.gpu(f"gpus.{index}.memory_mib", index, "memory_bytes", gpu["memory_mib"] * _MIB)


def _system(t: Translation, env: Json) -> None:
    text = env.get("os")
    if text:
        t.put("os", ("system", "distribution"), text)
        low = text.lower()
        kinds = {"windows": "windows", "macos": "darwin", "mac os": "darwin"}
        found = {kind for word, kind in kinds.items() if word in low}
        if "linux" in low or not found:
            found.add("linux")
        if len(found) == 1:  # "Windows or Linux" says neither
            t.put("os", ("system", "os"), found.pop())
        if "wsl" in low:
            t.put("os", ("system", "wsl"), True)
        if "container" in low:
            t.put("os", ("system", "container"), "container")
    if env.get("arch"):
        arch = re.match(r"\w+", env["arch"])
        t.put("arch", ("python", "arch"), arch.group(0) if arch else env["arch"])
        machine = "arm64" if "apple silicon" in env["arch"].lower() else None
        t.put("arch", ("system", "arch"), machine or (arch.group(0) if arch else env["arch"]))
    if "glibc" in env:
        t.put("glibc", ("system", "glibc"), env["glibc"])


def _packages(t: Translation, env: Json) -> None:
    for name, text in (env.get("packages") or {}).items():
        key, package = f"packages.{name}", canonicalize_name(name)
        if text is None:
            continue
        if "file:" in str(text):
            t.put(key, ("packages", package, "version"), {"unknown": "only its file is known"})
            t.put(key, ("packages", package, "source"), {"kind": "archive", "url": dict(ABSENT)})
        else:
            t.put(key, ("packages", package, "version"), _version(text))


def translate(env: Json, imported: Observation | None) -> Translation:
    """One environment of a case; ``imported`` is what its pasted report says."""
    tree = imported.model_dump(mode="json", exclude_unset=True) if imported else {}
    t = Translation(tree)
    if "python" in env:
        t.put("python", ("python", "version"), env["python"])
    _torch(t, env)
    _libraries(t, env)
    _driver(t, env)
    _gpus(t, env)
    _system(t, env)
    _packages(t, env)
    if "nvcc" in env:
        t.put("nvcc", ("toolkit", "nvcc"), env["nvcc"])
    for name, value in (env.get("env") or {}).items():
        t.put(f"env.{name}", ("env", name), value)
    for name, value in (env.get("extra") or {}).items():
        if name in EXTRA:
            EXTRA[name](t, f"extra.{name}", value)
    return t


# What stands under ``extra``.
Reader = Callable[[Translation, str, Any], None]


def _plain(*path: str) -> Reader:
    return lambda t, key, value: t.put(key, path, value)


def _container(t: Translation, key: str, value: Any) -> None:
    t.put(key, ("system", "container"), "container" if value else None)


def _bytes(unit: int, *path: str) -> Reader:
    return lambda t, key, value: t.put(key, path, int(float(value) * unit))


def _conda(t: Translation, key: str, value: Mapping[str, str]) -> None:
    t.put(key, ("python", "environment"), "conda")
    for name, text in value.items():
        version, _, build = str(text).partition("=")
        entry: Json = {"version": version} if _is_version(version) else {}
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


def _device_mode(t: Translation, key: str, value: str) -> None:
    mode = value.split(maxsplit=1)[0]
    open_to_others = len(mode) == 10 and "rw" in (mode[4:6], mode[7:9])
    t.put(key, ("limits", "devices"), {"kfd": "rw" if open_to_others else "denied"})


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


def _found_library(t: Translation, key: str, value: str) -> None:
    where = "cuda-home" if "/cuda" in value else "system"
    t.put(key, ("libraries", Path(value).name), {"path_class": where})


EXTRA: dict[str, Reader] = {
    "c_compiler": _plain("toolkit", "c_compiler"),
    "cgroup_limit_gb": _bytes(_GB, "limits", "cgroup_memory_bytes"),
    "conda_lib_has": _conda_lib,
    "conda_packages": _conda,
    "conda_packages_with_direct_url": _conda_urls,
    "cuda_available": _plain("torch", "cuda_available"),
    "cxx11_abi": _plain("torch", "cxx11_abi"),
    "deterministic_algorithms": _plain("torch", "switches", "deterministic_algorithms"),
    "dev_kfd": _device_mode,
    "direct_url_json": _no_direct_url,
    "ecc_uncorrected_volatile": _ecc,
    "extension_built_for": _built_for,
    "has_cuda_base": _base_image,
    "image_cuda": _plain("toolkit", "system_cuda"),
    "image_requires": _plain("env", "NVIDIA_REQUIRE_CUDA"),
    "import_torch": _imports,
    "in_container": _container,
    "installed_build": _plain("torch", "build"),
    "libcudart_found": _found_library,
    "library_minimum_cudnn": _minimum_cudnn,
    "loaded_libstdcxx": _libstdcxx,
    "metadata_version": _no_metadata,
    "mig": _mig,
    "nvidia_container_toolkit": _plain("system", "container_toolkit"),
    "nvidia_dir": _site_folder,
    "nvidia_fabricmanager": lambda t, k, v: t.put(k, ("driver", "fabric_manager"), bool(v)),
    "nvml_error": _plain("driver", "nvml_error"),
    "other_nccl": _plain("nccl", "loaded"),
    "platform_processor": _plain("python", "arch"),
    "psutil_available_gb": _bytes(_GB, "system", "memory_bytes"),
    "python_bits": _plain("python", "bits"),
    "requested": _requested,
    "required_by_torch": _required_by_torch,
    "required_nccl": _plain("nccl", "compiled"),
    "requirements_options": _plain("indexes", "options"),
    "shm_mib": _bytes(_MIB, "limits", "shm_bytes"),
    "site_packages_has": _broken_folder,
    "system_cuda": _plain("toolkit", "system_cuda"),
    "system_cuda_dirs": _toolkit_folders,
    "system_packages": _system_packages,
    "torch_arch_list": _plain("torch", "arch_list"),
    "torch_build": _plain("torch", "build"),
    "torch_dir": _torch_folder,
    "torchvision_has_cuda": _vision_cuda,
    "triton": lambda t, k, v: t.put(k, ("packages", "triton", "version"), _version(v)),
    "wheel_tag": _wheel_tag,
    "wsl": lambda t, k, v: _flag(t, k, v, "system", "wsl"),
    "wsl_driver_dir": lambda t, k, v: _flag(t, k, v, "system", "wsl"),
}
"""Key under ``extra`` -> how it becomes a fact; any other key has no field in an observation."""
