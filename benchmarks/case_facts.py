"""An environment of a case file as an observation.

A key that is left out stays unknown, null becomes absent. Keys under ``extra`` for which an
observation has no field are ignored.
"""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from benchmarks.case_extras import read_extra
from benchmarks.case_tree import ABSENT, MIB, Json, Translation, is_version, version_or_unknown
from envlock.lock.observation import Observation


def _torch(t: Translation, env: Json) -> None:
    if "torch" in env:
        version = env["torch"]
        t.put("torch", ("torch", "version"), version)
        if version is not None and is_version(version):
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
        fields = dict.fromkeys(("kernel_module", "kernel", "module", "host"), "kernel_module")
        fields |= dict.fromkeys(("userspace", "user", "nvml", "libcuda", "container"), "version")
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
            t.gpu(f"gpus.{index}.memory_mib", index, "memory_bytes", gpu["memory_mib"] * MIB)


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
            t.put(key, ("packages", package, "version"), version_or_unknown(text))


def translate(env: Json, imported: Observation | None) -> Translation:
    """One environment of a case; ``imported`` is what its pasted report says."""
    tree = imported.plain() if imported else {}
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
        read_extra(t, name, value)
    return t
