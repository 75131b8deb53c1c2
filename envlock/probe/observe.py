"""Observe an environment from inside: everything that needs neither ``import torch`` nor a GPU.

Fed on standard input together with its siblings ``observe_*.py``, on Python 3.8 or newer, with the
standard library alone and without ``-I``: PYTHONPATH and the user site are part of what is seen. It
writes nothing, opens no connection, and makes no CUDA context. By hand: ``python observe.py TOKEN``.

``observed`` in the answer has the shape of ``envlock.lock.observation.Observation``; beside it stand
``requires`` and ``markers``, which the host uses and does not keep. Which fact is read where is
written in docs/observed.md.
"""

from __future__ import annotations

import os
import sys

import observe_common
import observe_elf
import observe_extensions
import observe_files
import observe_frame
import observe_libraries
import observe_machine
import observe_nvidia
import observe_packages
import observe_settings

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown
guarded = observe_common.guarded

NOT_ELF = "read on Linux only"

# Flags that are 0 unless somebody set them. Not dont_write_bytecode, since envlock itself passes
# -B, and not utf8_mode, which the C locale switches on.
_FLAGS = (
    "debug",
    "inspect",
    "interactive",
    "optimize",
    "no_user_site",
    "no_site",
    "ignore_environment",
    "bytes_warning",
    "isolated",
    "dev_mode",
    "safe_path",
)


def work(arguments: list[str]) -> dict[str, object]:
    """The answer to these arguments: ``--check-files``, ``--gpu-state``."""
    # Started first, read last: they run beside the rest.
    driver = observe_common.start_function(
        lambda: observe_nvidia.ask_driver(state="--gpu-state" in arguments)
    )
    compiler = observe_machine.start_compiler()

    folders = site_folders()
    packages = observe_packages.scan(folders)
    observed = {
        "python": guarded(python_facts, folders, packages),
        "env": guarded(observe_settings.env_facts),
        "indexes": guarded(observe_settings.index_facts),
        "limits": guarded(observe_machine.limit_facts),
        "packages": {name: dist.fact() for name, dist in packages.dists.items()},
        "conda": guarded(observe_packages.conda_packages),
        "contested": packages.contested,
        "duplicates": packages.duplicates,
        "broken": packages.broken,
        "exhaustive": ["packages", "contested", "conda"],
    }
    machine = guarded(make_machine, packages)
    machine = machine if isinstance(machine, observe_libraries.Machine) else None
    torch = observe_libraries.find_torch(packages)
    loaded = guarded(observe_libraries.load_torch, torch[0], machine) if torch and machine else None
    add_torch(observed, torch, loaded, machine)
    add_sonames(observed, machine)
    libstdcxx = guarded(find_libstdcxx, loaded, machine) if machine else None
    observed["system"] = guarded(observe_machine.system_facts, libstdcxx)
    if "--check-files" in arguments:
        observed["files"] = guarded(observe_files.check_files, packages)
    observed["toolkit"] = guarded(observe_machine.toolkit_facts, compiler)
    asked = observe_common.function_result(driver)
    observed["driver"] = guarded(observe_nvidia.driver_facts, asked, machine)
    observed["gpus"], complete = observe_nvidia.gpu_facts(asked, observed["driver"])
    if complete:
        observed["exhaustive"].append("gpus")
    observed["read_from"] = read_from(observed)
    return {
        "observed": observed,
        "requires": {name: dist.requires for name, dist in packages.dists.items()},
        "markers": markers(),
        "notes": observe_common.notes[:8],
    }


# --- python -----------------------------------------------------------------------------------


def site_folders() -> list[tuple[str, str]]:
    """(real folder, path class) of every folder on sys.path, each once, in order."""
    prefixes = [os.path.realpath(p) for p in (sys.prefix, sys.base_prefix)]
    user = os.path.realpath(user_site() or os.devnull)
    python_path = {os.path.realpath(p) for p in _python_path() if p}
    found = {}
    for entry in sys.path:
        if not entry or not os.path.isdir(entry):
            continue
        folder = os.path.realpath(entry)
        if folder in python_path:
            kind = "pythonpath"
        elif folder == user:
            kind = "user-site"
        elif folder.endswith("dist-packages") and not folder.startswith("/usr/local/"):
            kind = "system"  # where Debian's own packages lie
        elif folder.startswith((prefixes[0] + os.sep, "/usr/local/lib/python")):
            kind = "wheel"
        elif folder.startswith(prefixes[1] + os.sep):
            kind = "system"  # a venv that sees the site folder of its base
        else:
            kind = "source"
        found.setdefault(folder, kind)
    return list(found.items())


def user_site() -> str | None:
    """The user's site folder, if this process searches it."""
    site = sys.modules.get("site")
    if site is None or not getattr(site, "ENABLE_USER_SITE", False):
        return None
    folder = site.getusersitepackages()
    return folder if folder in sys.path else None


def _python_path() -> list[str]:
    if sys.flags.ignore_environment:
        return []
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


def python_facts(
    folders: list[tuple[str, str]], packages: observe_packages.Packages
) -> dict[str, object]:
    version = sys.version_info
    name = sys.implementation.name
    abi = "cp%d%d%s" % (version[0], version[1], getattr(sys, "abiflags", ""))
    system, _, machine = observe_machine.names_of_system()
    python_path = [observe_common.show_path(p) for p in _python_path()]
    used = {site.folder for site in packages.sites}
    return {
        "version": "%d.%d.%d" % version[:3] + _pre_release(version),
        "implementation": name,
        "abi": abi if name == "cpython" else sys.implementation.cache_tag or name,
        "bits": 64 if sys.maxsize > 1 << 32 else 32,
        "arch": machine.lower() if system == "windows" else machine,
        "environment": _environment(),
        "flags": _flags(),
        "pythonpath": python_path or ABSENT,
        "user_site": user_site() is not None,
        "site_folders": [
            shown for shown in (_below_prefix(f) for f, _ in folders if f in used) if shown
        ],
    }


def _pre_release(version: sys._version_info) -> str:
    short = {"alpha": "a", "beta": "b", "candidate": "rc", "final": ""}[version[3]]
    return "%s%d" % (short, version[4]) if short else ""


def _environment() -> str:
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        return "conda"
    return "venv" if sys.prefix != sys.base_prefix else "system"


def _flags() -> dict[str, int]:
    found = {name: int(getattr(sys.flags, name, 0)) for name in _FLAGS}
    found = {name: value for name, value in found.items() if value}
    if not sys.flags.hash_randomization:
        found["hash_randomization"] = 0
    return found


def _below_prefix(folder: str) -> str | None:
    prefix = os.path.realpath(sys.prefix)
    if not folder.startswith(prefix + os.sep):
        return None
    return folder[len(prefix) + 1 :].replace(os.sep, "/")


def markers() -> dict[str, str]:
    """The environment of PEP 508 markers, for the host to evaluate requirements with."""
    system, release, machine = observe_machine.names_of_system()
    version = sys.version_info
    full = "%d.%d.%d" % version[:3] + _pre_release(version)
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": full,
        "os_name": os.name,
        "platform_machine": machine,
        "platform_python_implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(
            sys.implementation.name, sys.implementation.name
        ),
        "platform_release": release,
        "platform_system": {"linux": "Linux", "darwin": "Darwin", "windows": "Windows"}.get(
            system, system
        ),
        "python_full_version": full,
        "python_version": "%d.%d" % version[:2],
        "sys_platform": sys.platform,
    }


# --- torch and libraries ----------------------------------------------------------------------


def make_machine(packages: observe_packages.Packages) -> observe_libraries.Machine | None:
    """ld.so's search for this process; None where there is no ELF."""
    elf = observe_elf.read_elf(os.path.realpath(sys.executable or "/proc/self/exe"))
    if elf is None:
        return None
    return observe_libraries.Machine(packages, observe_elf.Search(elf.kind, os.environ))


def add_torch(
    observed: dict[str, object],
    torch: tuple[str, str] | None,
    loaded: object,
    machine: observe_libraries.Machine | None,
) -> None:
    """torch, the CUDA libraries it would map (``loaded``), and the components among them."""
    parts = ("libraries", "cudnn", "nccl", "cublas")
    if torch is None:
        observed.update(dict.fromkeys(("torch", *parts), ABSENT))
        return
    observed["torch"] = guarded(observe_libraries.torch_facts, *torch)
    table = unknown(NOT_ELF)
    if machine is not None:
        table = guarded(loaded_libraries, loaded, machine)
    if not observe_common.is_value(table):
        observed.update(dict.fromkeys(parts, table))
        return
    observed["libraries"] = table
    observed["exhaustive"].append("libraries")
    observed["cudnn"] = observe_libraries.component(table, r"libcudnn\.so", 3)
    observed["nccl"] = observe_libraries.component(table, r"libnccl\.so")
    observed["cublas"] = observe_libraries.component(table, r"libcublas\.so")


def loaded_libraries(loaded: object, machine: observe_libraries.Machine) -> dict[str, object]:
    if not isinstance(loaded, observe_elf.Loaded):
        return loaded  # why they could not be worked out
    table, to_call = observe_libraries.cuda_libraries(loaded, machine)
    if to_call:
        child = observe_common.start_function(lambda: observe_libraries.call_versions(to_call))
        answers = observe_common.function_result(child)
        for soname in to_call:
            table[soname]["version"] = answers.get(soname, answers)
    return table


def find_libstdcxx(loaded: object, machine: observe_libraries.Machine) -> tuple[str, str] | None:
    """(path, path class) of the C++ library that torch, else this interpreter, would map."""
    found = None
    if isinstance(loaded, observe_elf.Loaded):
        found = loaded.by_name.get("libstdc++.so.6")
    found = found or machine.find("libstdc++.so.6")
    return (found[0], machine.path_class(*found)) if found else None


def add_sonames(observed: dict[str, object], machine: observe_libraries.Machine | None) -> None:
    if machine is None:
        observed["sonames"] = unknown(NOT_ELF)
        return
    extensions = observe_extensions.Extensions(machine)
    observed["sonames"] = guarded(observe_extensions.system_sonames, extensions)
    guarded(observe_extensions.add_built_for, observed, extensions)
    if all(dist.files for dist in machine.packages.dists.values()):
        observed["exhaustive"].append("sonames")


def read_from(observed: dict[str, object]) -> dict[str, str]:
    """Where the facts that findings quote were read, as kinds of files."""
    found = {
        "python": "the interpreter itself",
        "packages": "METADATA and RECORD of each distribution",
        "env": "the environment of the process",
        "system": "os-release, /proc and the C library",
        "limits": "/sys/fs/cgroup, getrlimit, /dev",
    }
    if observed["torch"] != ABSENT:
        found["torch"] = "torch/version.py"
        found["libraries"] = "ELF headers of torch and the search order of ld.so"
    if observed["driver"] != ABSENT:
        found["driver"] = "NVML, libcuda, /proc/driver/nvidia"
    return found


if __name__ == "__main__":
    observe_frame.answer("observe", work)
