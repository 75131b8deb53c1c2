"""A pasted ``torch.utils.collect_env`` report -> facts.

"N/A" and its like mean different things in different lines; each function says what.
"""

from __future__ import annotations

import re

from envlock.errors import InputError
from envlock.facts import variables
from envlock.lock.strict import shown
from envlock.redact import redact
from envlock.targets.texts import torch_facts
from envlock.targets.texts.clean import MAX_REPORT, lines_of
from envlock.targets.texts.conda import read_columns
from envlock.targets.texts.machine_facts import c_compiler, is_missing, python_facts, system_facts
from envlock.targets.texts.report import Report, read_report
from envlock.targets.texts.tree import ABSENT, Packages, Tree, free_text, is_version, unknown

WHAT = "collect_env report"

_RELEASE = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9]{1,3})?", re.ASCII)
_HIP = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}[0-9A-Za-z.-]{0,60}", re.ASCII)
_DRIVER = re.compile(r"[0-9]{2,4}(?:\.[0-9]{1,4}){1,2}", re.ASCII)
_GPU = re.compile(r"[> |]{0,8}GPU (?P<index>[0-9]{1,3}): ?(?P<name>.*)$")
_GFX = re.compile(r"(?P<name>.*?) ?\((?P<gfx>gfx[0-9a-f]{3,5})[^)]*\)$")
_NO_NAME = frozenset({"[n/a]", "[not supported]", "err!", "[gpu is lost]", ""})
_PIP_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:==(?P<version>.+)| \((?P<old>[^()]+)\)) *$")

_OLD_DRIVER = re.compile(
    r"driver on your system is too old \(found version (?P<number>[0-9]{4,5})\)"
)
_ARCHES = re.compile(
    r"install supports CUDA capabilities (?P<arches>(?:(?:sm|compute)_[0-9a-f]+ ?)+)"
)
_INCOMPATIBLE = re.compile(
    r"(?P<name>[^\n]{1,100}) with CUDA capability sm_(?P<number>[0-9]{2,3})[a-f]? is not compatible"
)

_SET_BY_PROGRAM = frozenset(
    # torch and vLLM set these while they start; the report does not tell that from the user's.
    {"CUDA_MODULE_LOADING", "NCCL_CUMEM_ENABLE", "PYTORCH_NVML_BASED_CUDA_CHECK"}
    | {"TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS"}
)
_MORE_VARIABLES = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_PATH", "PYTHONPATH"})
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def parse_report(text: str) -> Tree:
    """Raises InputError for what cannot be one report: contradictions, two reports, no grammar."""
    if len(text) > MAX_REPORT:
        raise InputError(f"{WHAT}: the text is too long (at most {MAX_REPORT} characters)")
    report = read_report(lines_of(text, WHAT))
    packages = _packages(report)
    conda = read_columns(report.conda, WHAT).tree
    tree: Tree = {
        "python": python_facts(report),
        "system": system_facts(report),
        "torch": _torch(report, packages) or conda.get("torch", {}),
        "conda": conda["conda"],
        "packages": packages.tree(),
        "env": _env(report),
        "driver": _driver(report, text),
        "exhaustive": [],
    }
    compiler, nvcc = c_compiler(report), report.get("CUDA runtime version")
    toolkit: Tree = {"c_compiler": compiler} if compiler else {}
    if nvcc and _RELEASE.fullmatch(nvcc):
        # collect_env asks the nvcc on the PATH; that it did not answer does not say that CUDA_HOME
        # leads to none.
        toolkit |= {"nvcc": nvcc, "nvcc_from": "PATH"}
    tree["toolkit"] = toolkit
    _add_gpus(tree, report)
    _add_warnings(tree, text)
    return {key: value for key, value in tree.items() if value or value == []}


def _torch(report: Report, packages: Packages) -> Tree:
    version = report.get("PyTorch version")
    listed = packages.get("torch")
    if version is None or is_missing(version):
        facts = torch_facts.from_version(listed) if listed else {}
        if version is not None and listed:
            # The report imports torch first of all, and pip lists it: the import failed.
            facts["importable"] = False
        return facts
    if not is_version(version):
        raise InputError(f"{WHAT}: PyTorch version: {shown(version)} is not a version of torch")
    release, _, local = version.partition("+")
    facts = {"version": version, "release": release, "local": local or dict(ABSENT)}
    facts |= torch_facts.build_of_tag(local) | _compiled_for(report)
    debug = _yes_no(report.get("Is debug build"))
    available = _yes_no(report.get("Is CUDA available"))
    facts |= {"debug": debug} if debug is not None else {}
    facts |= {"cuda_available": available} if available is not None else {}
    return facts | {"importable": True}


def _compiled_for(report: Report) -> Tree:
    """torch.version.cuda and .hip, once torch could be imported.

    "None", and "Could not collect" where a driver answered, stand for a build without CUDA; so does
    "N/A" beside a HIP version.
    """
    facts: Tree = {}
    cuda, hip = report.get("CUDA used to build PyTorch"), report.get("ROCM used to build PyTorch")
    if hip is not None:
        facts["hip"] = (
            dict(ABSENT) if is_missing(hip) else _grammar(_HIP, hip, "ROCM used to build")
        )
    if cuda is None:
        return facts
    if not is_missing(cuda):
        release = _grammar(_RELEASE, cuda, "CUDA used to build PyTorch")
        return facts | {"cuda": release, "build": "cuda"}
    facts["cuda"] = dict(ABSENT)
    if hip is not None and not is_missing(hip):
        facts["build"] = "rocm"
    elif not is_missing(report.get("XPU used to build PyTorch")):
        facts["build"] = "xpu"
    elif hip is not None:
        system = report.get("OS") or ""
        facts["build"] = "mps" if system.startswith("macOS") and "arm64" in system else "cpu"
    return facts


def _grammar(pattern: re.Pattern[str], value: str, key: str) -> str:
    if not pattern.fullmatch(value):
        raise InputError(f"{WHAT}: {key}: {shown(value)} is not a release such as 12.1")
    return value


def _yes_no(value: str | None) -> bool | None:
    return {"true": True, "yes": True, "false": False, "no": False}.get((value or "").lower())


def _driver(report: Report, text: str) -> Tree:
    """nvidia-smi's answer. That it gave none ("No CUDA") has many reasons; a missing driver is one."""
    facts: Tree = {}
    version = report.get("Nvidia driver version")
    if version and _DRIVER.fullmatch(version):
        facts["version"] = version
    elif version is not None:
        facts["version"] = unknown("nvidia-smi gave no driver version when the report was made")
    old = _OLD_DRIVER.search(text)
    if old:
        number = int(old["number"])  # 11040 is CUDA 11.4
        facts["cuda"] = f"{number // 1000}.{number % 1000 // 10}"
    return facts


def _add_gpus(tree: Tree, report: Report) -> None:
    """``nvidia-smi -L``, which lists all GPUs; in ROCm builds the name of the current one."""
    value = report.get("GPU models and configuration")
    if value is None:
        return
    gpus: list[Tree] = []
    lines = [value, *report.blocks.get("GPU models and configuration", [])]
    for line in lines:
        found = _GPU.match(line)
        if found:
            gpus.append(_gpu(found["name"].strip()))
        elif gpus and line.strip().startswith("MIG "):
            gpus[-1]["mig"] = True
    if gpus:
        tree["gpus"] = gpus
        if report.get("Nvidia driver version") is not None:  # the next line: the list was not cut
            tree["exhaustive"] = ["gpus"]
    elif not is_missing(value):
        tree["gpus"] = [_gpu(value)]
    else:
        tree["gpus"] = unknown("nvidia-smi listed no GPUs when the report was made")


def _gpu(name: str) -> Tree:
    name = re.sub(r" *\(UUID:.*", "", name)
    gfx = _GFX.match(name)
    capability = {"compute_capability": gfx["gfx"]} if gfx else {}
    name = gfx["name"] if gfx else name
    if name.lower() in _NO_NAME:
        return {"name": unknown(f"the driver says {name or 'nothing'}"), **capability}
    return {"name": free_text(name), **capability}


def _add_warnings(tree: Tree, text: str) -> None:
    """What torch itself said about the GPU before the report."""
    arches = _ARCHES.search(text)
    if arches and tree.get("torch"):
        tree["torch"]["arch_list"] = arches["arches"].split()
    found = _INCOMPATIBLE.search(text)
    gpus = tree.get("gpus")
    if found and isinstance(gpus, list):
        number = found["number"]
        for gpu in gpus:
            if isinstance(gpu["name"], str) and found["name"].strip().endswith(gpu["name"]):
                gpu["compute_capability"] = f"{number[:-1]}.{number[-1]}"


def _packages(report: Report) -> Packages:
    """pip's list, filtered by the report to what it finds relevant: never complete."""
    packages = Packages(WHAT)
    for line in report.pip:
        if is_missing(line) or line.strip() == "No relevant packages":
            continue
        found = _PIP_LINE.match(line)
        if found:
            packages.add(found["name"], (found["version"] or found["old"]).strip())
    for line in report.conda:
        parts = line.split()
        if len(parts) == 4 and parts[3] == "pypi" and parts[0] not in packages:
            packages.add(parts[0], parts[1])
    vllm = (report.get("vLLM Version") or "").split(" ")[0]
    if is_version(vllm) and "vllm" not in packages:
        packages.add("vllm", vllm)
    return packages


def _env(report: Report) -> Tree:
    """Variables that vLLM's report prints, and the allocator's, which torch's new report prints."""
    known = variables().keys() | _MORE_VARIABLES
    env: Tree = {}
    for name, value in report.variables:
        if name not in known or name in _SET_BY_PROGRAM:
            continue
        fact = unknown("holds a URL, which is not recorded") if "://" in value else redact(value)
        if env.setdefault(name, fact) != fact:
            raise InputError(f"{WHAT}: the variable {name} is listed twice with two values")
    allocator = report.get("Caching allocator config")
    if allocator is not None:
        for name in _ALLOCATOR:
            found = re.search(rf"'{name}': '([^']*)'", allocator)
            env.setdefault(name, found[1] if found else dict(ABSENT))
    return env
