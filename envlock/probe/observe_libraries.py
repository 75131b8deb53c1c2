"""torch without importing it, the CUDA libraries it would map, and what comes from the system.

Versions are taken from the distribution that owns the file, else from the file's name, else by
calling the library in a child process: loading cuBLAS costs half a second, reading a RECORD none.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import observe_common
import observe_elf
import observe_packages

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown

_CUDA = re.compile(
    r"^(lib(?:cudart|cublas|cublasLt|cudnn\w*|nccl|nvJitLink|cusparse|cusparseLt|cusolver|cusolverMg"
    r"|cufft|cufftw|curand|nvrtc|cupti|nvToolsExt|cufile|nvshmem\w*))(?:-[0-9a-f]{8})?"
    r"(\.so(?:\.\d+)*)$"
)
"""Names of CUDA libraries; torch's own copies carry a hash that repairing the wheel put in."""

_ASKABLE = re.compile(r"lib(cudnn|nccl|cudart|cublasLt|cublas|cusparse|cusolver|cufft|curand)\.so")
"""Libraries with a call that tells their version."""

# Opened at run time: when a kernel is compiled, when a matrix is solved.
_LAZY = ("libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so")

_VERSION_LINE = re.compile(
    r"^(\w+)(?:[ \t]*:[^=\n]*)?[ \t]*=[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(None|True|False))[ \t]*$",
    re.MULTILINE,
)


# --- torch ------------------------------------------------------------------------------------


def find_torch(packages: observe_packages.Packages) -> tuple[str, str] | None:
    """(folder, path class) of the torch that import would take, or None."""
    for folder in sys.path:
        found = os.path.join(folder, "torch")
        if folder and os.path.isfile(os.path.join(found, "__init__.py")):
            real = os.path.realpath(found)
            classes = {site.folder: site.path_class for site in packages.sites}
            return real, classes.get(os.path.dirname(real), "source")
    return None


def torch_facts(folder: str, path_class: str) -> dict[str, object]:
    """The build of a torch package, from its ``version.py`` read as text."""
    text = observe_common.read_text(os.path.join(folder, "version.py"))
    if text is None:
        why = unknown("torch/version.py is not there")
        return {"version": why, "path_class": path_class}
    values = {}
    for name, single, double, word in _VERSION_LINE.findall(text):
        values[name] = {"None": None, "True": True, "False": False}.get(word, single or double)
    missing = unknown("torch/version.py does not say")

    def fact(name: str) -> object:
        if name not in values:
            return missing
        return ABSENT if values[name] is None else values[name]

    version = fact("__version__")
    release, _, local = version.partition("+") if isinstance(version, str) else ("", "", "")
    return {
        "version": version,
        "release": release or missing,
        "local": (local or ABSENT) if release else missing,
        "build": _build(values, local),
        "cuda": fact("cuda"),
        "hip": fact("hip"),
        "git": fact("git_version"),
        "debug": fact("debug"),
        "cxx11_abi": observe_common.guarded(_cxx11_abi, folder),
        "path_class": path_class,
    }


def _build(values: dict[str, object], local: str) -> object:
    if values.get("cuda"):
        return "cuda"
    if values.get("hip"):
        return "rocm"
    if values.get("xpu") or local.startswith("xpu"):
        return "xpu"
    if "cuda" not in values:
        return unknown("torch/version.py does not say")
    return "mps" if sys.platform == "darwin" and os.uname().machine == "arm64" else "cpu"


def _cxx11_abi(folder: str) -> object:
    """From the CMake file that extensions are built with, else from the names in libc10."""
    config = os.path.join(folder, "share", "cmake", "Torch", "TorchConfig.cmake")
    found = re.search(r"_GLIBCXX_USE_CXX11_ABI=([01])", observe_common.read_text(config) or "")
    if found:
        return found.group(1) == "1"
    if not observe_common.LINUX:
        return ABSENT
    elf = observe_elf.read_elf(os.path.join(folder, "lib", "libc10.so"))
    if elf is None:
        return unknown("neither TorchConfig.cmake nor libc10.so says")
    return b"NSt7__cxx1112basic_string" in observe_elf.string_table(elf)


# --- the libraries as they would be loaded ----------------------------------------------------


class Machine:
    """What the classification of a path needs to know."""

    def __init__(self, packages: observe_packages.Packages, search: observe_elf.Search) -> None:
        self.packages, self.search = packages, search
        # $ORIGIN of a program is where its file lies, not the link in a virtual environment.
        self.program = os.path.realpath(sys.executable or "/proc/self/exe")
        self.cuda_home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or ""

    def find(self, name: str) -> tuple[str, str] | None:
        """What this program would map for a name: conda's has an RPATH that all it loads inherit."""
        return self.search.first(name, self.chain())

    def chain(self) -> tuple[observe_elf.Elf, ...]:
        elf = self.search.elf(self.program)
        return () if elf is None else (elf,)

    def path_class(self, path: str, how: str) -> str:
        """By place first: an LD_LIBRARY_PATH that leads back into the environment is harmless."""
        for site in self.packages.sites:
            if path.startswith(site.folder + os.sep):
                return site.path_class
        if how in ("ld-preload", "ld-library-path"):
            return how
        if path.startswith("/usr/lib/wsl/"):
            return "wsl"
        if path.startswith((sys.prefix + os.sep, sys.base_prefix + os.sep)):
            for prefix in (sys.prefix, sys.base_prefix):
                if os.path.isdir(os.path.join(prefix, "conda-meta")):
                    return "conda"
        if path.startswith("/usr/local/cuda") or (
            self.cuda_home and path.startswith(self.cuda_home.rstrip("/") + "/")
        ):
            return "cuda-home"
        return "system" if how == "system" or path.startswith(("/usr/", "/lib")) else "other"


def load_torch(folder: str, machine: Machine) -> observe_elf.Loaded:
    """The libraries of a process after ``import torch``, in ld.so's order, without starting it."""
    search = machine.search
    loaded = observe_elf.Loaded(search)
    for name in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        found = search.first(name, ()) if name else None
        if found is not None:
            loaded.load(found[0], "ld-preload")
    loaded.load(machine.program, "program")
    lib = os.path.join(folder, "lib")
    roots = [os.path.join(lib, "libtorch_global_deps.so")]
    roots += [
        os.path.join(folder, name)
        for name in sorted(os.listdir(folder))
        if name.startswith("_C.") and ".so" in name
    ]
    roots += [os.path.join(lib, name) for name in _LAZY]
    for root in roots:
        loaded.load(root, "rpath", machine.chain())
    _preload_as_torch(loaded)
    _open_cudnn_parts(loaded)
    return loaded


def _preload_as_torch(loaded: observe_elf.Loaded) -> None:
    """What the loader does not find, torch looks for as ``nvidia/*/lib`` on sys.path."""
    for name in [name for name in loaded.missing if _CUDA.match(name)]:
        for path in _nvidia_copies(name):
            loaded.by_name[name] = (path, "torch")
            loaded.load(path, "torch", loaded.needed_as[name])
            break


def _nvidia_copies(name: str) -> Iterator[str]:
    for folder in sys.path:
        nvidia = os.path.join(folder, "nvidia")
        if folder and os.path.isdir(nvidia):
            for part in sorted(os.listdir(nvidia)):
                path = os.path.join(nvidia, part, "lib", name)
                if os.path.isfile(path):
                    yield path


def _open_cudnn_parts(loaded: observe_elf.Loaded) -> None:
    """libcudnn opens its parts by name; they must come from one release, and may not."""
    for name, (path, _) in sorted(loaded.by_name.items()):
        found = re.match(r"^libcudnn(\.so\.\d+)$", name)
        if not found:
            continue
        for part in sorted(os.listdir(os.path.dirname(path))):
            if not (part.startswith("libcudnn_") and part.endswith(found.group(1))):
                continue
            first = loaded.search.first(part, loaded.chains.get(path, ()))
            if first is not None and part not in loaded.by_name:
                loaded.by_name[part] = first
                loaded.needed_as[part] = loaded.chains.get(path, ())
                loaded.load(first[0], first[1], loaded.chains.get(path, ()))


def cuda_libraries(
    loaded: observe_elf.Loaded, machine: Machine
) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
    """Soname -> Library, and the paths whose version only a call can tell."""
    table, to_call = {}, {}
    for name in sorted(set(loaded.needed_as) | set(loaded.by_name)):
        found = _CUDA.match(name)
        soname = found.group(1) + found.group(2) if found else None
        if soname is None or name not in loaded.needed_as:
            continue
        if name not in loaded.by_name:
            table[soname] = {"path_class": ABSENT, "owner": ABSENT, "version": ABSENT}
            continue
        path, how = loaded.by_name[name]
        table[soname] = describe_library(path, how, machine)
        if not observe_common.is_value(table[soname]["version"]) and _ASKABLE.match(soname):
            to_call[soname] = path
        table[soname]["shadowed"] = _shadowed(name, path, loaded, machine)
    return table, to_call


def describe_library(path: str, how: str, machine: Machine) -> dict[str, object]:
    # uv may install links into its cache: then only the link lies where RECORD says.
    real = os.path.realpath(path)
    claim = machine.packages.claim_of(os.path.normpath(path)) or machine.packages.claim_of(real)
    owner, size = claim or (None, None)
    if owner and owner.startswith("nvidia-") and str(os.stat(real).st_size) == size:
        version = machine.packages.dists[owner].version
    else:
        version = _version_in_name(real, machine)
    return {
        "path_class": machine.path_class(path, how),
        "owner": owner or unknown("no distribution claims it"),
        "version": version or unknown("neither its owner nor its name tells"),
    }


def _version_in_name(real: str, machine: Machine) -> str | None:
    """``libcublas.so.12.4.5.8``; but libcudart.so.11.0 is a soname, the same for all of 11.x."""
    named = re.search(r"\.so\.(\d+(?:\.\d+){1,3})$", real)
    elf = machine.search.elf(real)
    if named is None or elf is None or elf.soname == os.path.basename(real):
        return None
    return named.group(1)


def _shadowed(
    name: str, winner: str, loaded: observe_elf.Loaded, machine: Machine
) -> list[dict[str, object]]:
    """Further copies: those the search would come to next, then those of other distributions."""
    others, seen = [], {os.path.realpath(winner)}
    candidates = list(loaded.search.matches(name, loaded.needed_as[name]))
    candidates += [(path, "torch") for path in _nvidia_copies(name)]
    for path, how in candidates:
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            others.append(describe_library(path, how, machine))
    return others


# --- asking a library for its version, in a child ---------------------------------------------


def call_versions(paths: dict[str, str]) -> dict[str, object]:
    """Soname -> version, by calling the libraries: only ever in a child process."""
    import ctypes

    answers = {}
    for soname, path in paths.items():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            answers[soname] = unknown("it cannot be loaded")
            continue
        answers[soname] = observe_common.guarded(_called, soname, library, ctypes)
    return answers


def _called(soname: str, library: object, ctypes: ModuleType) -> object:
    number = ctypes.c_int()
    if soname.startswith("libcudnn.so"):
        library.cudnnGetVersion.restype = ctypes.c_size_t
        return packed_version(library.cudnnGetVersion())
    if soname.startswith("libnccl.so"):
        library.ncclGetVersion(ctypes.byref(number))
        return packed_version(number.value)
    if soname.startswith("libcudart.so"):
        library.cudaRuntimeGetVersion(ctypes.byref(number))
        return "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
    parts, prefix = [], _ASKABLE.match(soname).group(1)
    for property_type in (0, 1, 2):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        getattr(library, prefix + "GetProperty")(property_type, ctypes.byref(number))
        parts.append(str(number.value))
    return ".".join(parts)


def packed_version(number: int) -> str:
    """cuDNN up to 8 and NCCL up to 2.8 pack 8902 for 8.9.2; later ones 90100 for 9.1.0."""
    major = 1000 if number < 10000 else 10000
    return "%d.%d.%d" % (number // major, number % major // 100, number % 100)


def component(
    table: dict[str, dict[str, object]], pattern: str, parts: int | None = None
) -> object:
    """cuDNN, NCCL or cuBLAS as one fact, from the table of libraries."""
    for soname in sorted(table):
        if re.match(pattern, soname):
            version = table[soname]["version"]
            if parts and isinstance(version, str):
                version = ".".join(version.split(".")[:parts])
            return {"loaded": version, "path_class": table[soname]["path_class"]}
    return ABSENT
