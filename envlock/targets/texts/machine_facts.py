"""Operating system, interpreter and compiler, from the lines of a report in any language."""

from __future__ import annotations

import re

from envlock.targets.texts.report import Report
from envlock.targets.texts.tree import ABSENT, Tree, free_text, unknown

NOT_COLLECTED = frozenset({"could not collect", "n/a", "no cuda", "none", "not available", "-", ""})
"""What reports print for everything from "not there" to "the program failed"; each field knows."""

# Names as lsb_release and PRETTY_NAME print them -> ID of os-release.
_DISTRIBUTIONS = (
    (r"Ubuntu ([0-9]{2}\.[0-9]{2})", "ubuntu"),
    (r"Debian GNU/Linux ([0-9]{1,2})", "debian"),
    (r"CentOS (?:Linux|Stream)?(?: release)? ?([0-9]{1,2})", "centos"),
    (r"Rocky Linux(?: release)? ([0-9]{1,2}(?:\.[0-9]{1,2})?)", "rocky"),
    (r"AlmaLinux(?: release)? ([0-9]{1,2}(?:\.[0-9]{1,2})?)", "almalinux"),
    (r"Red Hat Enterprise Linux[A-Za-z ]*([0-9]{1,2}\.[0-9]{1,2})", "rhel"),
    (r"Amazon Linux(?: release)? ([0-9]{1,4})", "amzn"),
    (r"Fedora(?: Linux)?(?: release)? ([0-9]{2})", "fedora"),
    (r"openSUSE Leap ([0-9]{2}\.[0-9])", "opensuse-leap"),
    (r"SUSE Linux Enterprise Server ([0-9]{2})", "sles"),
    (r"Linux Mint ([0-9]{2}(?:\.[0-9])?)", "linuxmint"),
    (r"Pop!_OS ([0-9]{2}\.[0-9]{2})", "pop"),
    (r"(?:CBL-)?(?:Microsoft Azure Linux|Mariner)[A-Za-z/ ]*([0-9]\.[0-9])", "azurelinux"),
    (r"Arch Linux()", "arch"),
    (r"Manjaro Linux()", "manjaro"),
)
_MACHINE = re.compile(r"\((?P<arch>x86_64|aarch64|arm64|ppc64le|i[36]86|AMD64)\) *$")
_WINDOWS_VERSION = re.compile(r"\b10\.0\.[0-9]{5}\b")
_LINUX_PLATFORM = re.compile(
    r"Linux-(?P<kernel>[0-9][^ ]{0,100}?)-(?P<arch>x86_64|aarch64|ppc64le)"
    r"(?:-[0-9A-Za-z]+)*-with-"
)
_PYTHON = re.compile(
    r"(?P<version>[0-9]+\.[0-9]+(?P<patch>\.[0-9]+(?:a|b|rc)?[0-9]*)?)\+?(?:[ (|]|$)"
)
_GCC = re.compile(r"(?P<version>[0-9]+\.[0-9]+\.[0-9]+)(?: [0-9]{8}.*)?$")
_GCC_PACKAGED = re.compile(r"^\([^)]*\) (?P<version>[0-9]+\.[0-9]+\.[0-9]+)\b")
_CPU_NAME = re.compile(
    r" *(?:Model name|BIOS Model name|Nom de mod[^ :]*le|Modellname|Nombre del modelo"
    r"|Nome do modelo|Nome modello|모델명|모델 이름|型号名称|型號名稱|モデル名|Имя модели)"
    r" *[::] *(?P<name>.+)$"
)
_WINDOWS_CPU = re.compile(r"Name *[=:] *(?P<name>.+)$")


def is_missing(value: str | None) -> bool:
    return value is None or value.strip().lower() in NOT_COLLECTED


def python_facts(report: Report) -> Tree:
    text = report.get("Python version")
    if text is None or is_missing(text):
        return {}
    found = _PYTHON.match(text)
    if found is None:
        return {"version": unknown("the report's Python version is not readable")}
    parts = found["version"].split(".")
    facts: Tree = {"implementation": "pypy" if "PyPy" in text else "cpython"}
    if found["patch"]:
        facts["version"] = found["version"]
    else:
        facts["version"] = unknown(f"the report says {found['version']} without the patch release")
    if facts["implementation"] == "cpython":
        # The ABI flags: m until 3.7, t for builds without the interpreter lock.
        old = "m" if (int(parts[0]), int(parts[1])) < (3, 8) else ""
        flags = "t" if "free-threading" in text else old
        facts["abi"] = f"cp{parts[0]}{parts[1]}{flags}"
    bits = re.search(r"\((32|64)-bit runtime\)", text)
    if bits:
        facts["bits"] = int(bits[1])
    return facts


def system_facts(report: Report) -> Tree:
    facts = _from_os(report.get("OS")) | _from_platform(report.get("Python platform"))
    glibc = _glibc(report, str(facts.get("os", "")))
    if glibc:
        facts["glibc"] = glibc
    name = _cpu(report, str(facts.get("os", "")))
    if name:
        facts["cpu"] = free_text(name)
    capability = _cpu_capability(report)
    if capability:
        facts["cpu_capability"] = capability
    return facts


def c_compiler(report: Report) -> str | None:
    """gcc as extension builds and triton would call it. That gcc did not answer proves nothing:
    there may be a cc or a clang."""
    text = report.get("GCC version")
    if text is None or is_missing(text):
        return None
    found = _GCC_PACKAGED.match(text) or _GCC.search(text)
    return f"gcc {found['version']}" if found else None


def _glibc(report: Report, system: str) -> str | Tree | None:
    """Only from its own line, and only from Python 3.8 on: before that, and in "Python platform",
    Python guesses from symbols in its own file, which are older than the library."""
    libc = report.get("Libc version")
    if libc is None:
        return None
    if system in {"darwin", "windows"}:
        return dict(ABSENT)
    found = re.fullmatch(r"glibc-([0-9]+\.[0-9]+)", libc, re.ASCII)
    python = _PYTHON.match(report.get("Python version") or "")
    if not found or not python:
        return None
    major, minor = python["version"].split(".")[:2]
    if (int(major), int(minor)) < (3, 8):
        return unknown("Python before 3.8 does not tell it reliably")
    return found[1]


def _from_os(text: str | None) -> Tree:
    if text is None or is_missing(text):
        return {}
    machine = _MACHINE.search(text)
    arch: Tree = {"arch": machine["arch"]} if machine else {}
    mac = re.match(r"(?:macOS|Mac OSX?) ([0-9]+(?:\.[0-9]+){0,2})", text)
    if mac:
        return {"os": "darwin", "distribution": f"macos {mac[1]}", **arch}
    if "Windows" in text:
        version = _WINDOWS_VERSION.search(text)
        return {"os": "windows"} | ({"distribution": f"Windows {version[0]}"} if version else {})
    for pattern, name in _DISTRIBUTIONS:
        found = re.match(pattern, text)
        if found:
            return {"os": "linux", "distribution": f"{name} {found[1]}".strip(), **arch}
    reason = unknown("the report names a distribution that envlock does not know")
    return {"distribution": reason, **arch}


def _from_platform(text: str | None) -> Tree:
    if text is None:
        return {}
    linux = _LINUX_PLATFORM.match(text)
    if linux:
        facts: Tree = {"os": "linux", "kernel": linux["kernel"], "arch": linux["arch"]}
        facts["wsl"] = "microsoft" in linux["kernel"].lower()
        return facts
    windows = re.match(r"Windows-[0-9.]+-(10\.0\.[0-9]{5})", text)
    if windows:
        return {"os": "windows", "distribution": f"Windows {windows[1]}"}
    mac = re.match(r"macOS-([0-9.]+)-(arm64|x86_64)-", text)
    return {"os": "darwin", "arch": mac[2]} if mac else {}


def _cpu(report: Report, system: str) -> str | None:
    lines = report.blocks.get("CPU", []) + report.blocks.get("CPU Info", [])
    for line in lines:
        found = _CPU_NAME.match(line) or (_WINDOWS_CPU.match(line) if system == "windows" else None)
        if found and not is_missing(found["name"]):
            return found["name"]
    return lines[0] if lines and system == "darwin" else None


def _cpu_capability(report: Report) -> str | None:
    """The kernel set that torch would choose; the line of flags is known by what is in it, since
    lscpu writes its title in the user's language."""
    for line in report.blocks.get("CPU", []) + report.blocks.get("CPU Info", []):
        flags = set(line.split())
        if {"fpu", "sse2"} <= flags:
            if {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"} <= flags:
                return "AVX512"
            return "AVX2" if {"avx2", "fma"} <= flags else "default"
        if {"fp", "asimd"} <= flags:
            return "NEON"
    return None
