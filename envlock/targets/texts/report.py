"""The lines of a ``torch.utils.collect_env`` report as fields, whatever stands around them.

Known layouts: torch's own since 1.0, vLLM's old one (further sections at the end) and its new one
(aligned, with titles between lines of ``=``), each whole, cut anywhere, quoted, or joined to one line
as a web page gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from envlock.errors import InputError
from envlock.lock.strict import shown

KEYS = (
    *("PyTorch version", "Is debug build", "CUDA used to build PyTorch"),
    *("ROCM used to build PyTorch", "XPU used to build PyTorch", "OS", "GCC version"),
    *("Clang version", "CMake version", "Libc version", "Python version", "Python platform"),
    *("Is CUDA available", "CUDA runtime version", "CUDA_MODULE_LOADING set to"),
    *("GPU models and configuration", "Nvidia driver version", "NCCL version", "cuDNN version"),
    *("Is XPU available", "Intel GPU driver version", "Intel GPU models onboard"),
    *("Intel GPU models detected", "HIP runtime version", "MIOpen runtime version"),
    *("Is XNNPACK available", "Caching allocator config", "ROCM Version", "Neuron SDK Version"),
    *("vLLM Version", "vLLM Build Flags", "GPU Topology", "GPU topology"),
)
_SECTIONS = (
    *("CPU", "Versions of relevant libraries", "System Info", "PyTorch Info", "CPU Info"),
    *("Python Environment", "CUDA / GPU Info", "vLLM Info", "Environment Variables"),
)
_START = "Collecting environment information"

_KEY = "|".join(re.escape(key) for key in KEYS)
_QUOTE = r"[> \t|]{0,16}"
_FIELD = re.compile(rf"{_QUOTE}(?P<key>{_KEY}) {{0,40}}: *(?P<value>.*)$")
_SECTION = re.compile(rf" {{0,16}}(?P<name>{'|'.join(map(re.escape, _SECTIONS))}) {{0,4}}:? *$")
_LISTED = re.compile(rf"{_QUOTE}\[(?P<tool>pip3?|conda)\] (?P<rest>.*)$")
_VARIABLE = re.compile(r"(?P<name>[A-Z][A-Z0-9_]{1,63})=(?P<value>.*)$", re.ASCII)
_JOINED = re.compile(
    rf" (?=(?:{_KEY}) {{0,40}}:)| (?=\[(?:pip3?|conda)\] )| (?=GPU [0-9]{{1,2}}: )"
    r"| (?=Versions of relevant libraries:)"
)


@dataclass(slots=True)
class Report:
    fields: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    """Lines below a field or a section's title, up to an empty line (sections: to the next)."""
    pip: list[str] = field(default_factory=list)
    conda: list[str] = field(default_factory=list)
    variables: list[tuple[str, str]] = field(default_factory=list)

    def get(self, key: str) -> str | None:
        """The value; None where the report does not have the field or was cut before it."""
        return self.fields.get(key)


def is_report(lines: Iterable[str]) -> bool:
    keys = {match["key"] for line in lines if (match := _FIELD.match(line))}
    return "PyTorch version" in keys or len(keys) >= 2


def is_started(text: str) -> bool:
    """A report that broke off at once, or of which only the list of packages was kept."""
    return _START in text or any(_LISTED.match(line) for line in text.split("\n"))


def read_report(lines: Iterable[str]) -> Report:
    """Raises InputError for two reports in one text, or one field with two values."""
    report = Report()
    current: str | None = None
    for line in _split(lines):
        found = _FIELD.match(line)
        listed = _LISTED.match(line)
        section = _SECTION.match(line)
        if found:
            current = found["key"]
            _set(report, current, found["value"].strip())
        elif listed:
            (report.conda if listed["tool"] == "conda" else report.pip).append(listed["rest"])
            current = None
        elif section:
            current = section["name"]
        else:
            current = _other(report, current, line)
    return report


def _split(lines: Iterable[str]) -> Iterable[str]:
    """Lines that a page joined are parted again before each known key."""
    for line in lines:
        if len(_JOINED.findall(line)) >= 2:
            yield from _JOINED.split(line)
        else:
            yield line


def _other(report: Report, current: str | None, line: str) -> str | None:
    """A line that is neither field nor title: part of a block, or a variable of vLLM's list."""
    variable = _VARIABLE.match(line)
    if variable and (current == "Environment Variables" or "vLLM Version" in report.fields):
        report.variables.append((variable["name"], variable["value"].strip()))
        return current
    if not line.strip():
        return current if current in _SECTIONS else None
    if current is not None and not line.startswith("==="):
        report.blocks.setdefault(current, []).append(line)
    return current


def _set(report: Report, key: str, value: str) -> None:
    if key not in report.fields:
        report.fields[key] = value
    elif key == "PyTorch version":
        raise InputError(
            "the text holds two reports of collect_env, one after the other",
            hint="give each one in a file of its own",
        )
    elif report.fields[key] != value:
        raise InputError(
            f"the report says {key!r} twice: {shown(report.fields[key])} and {shown(value)}",
            hint="give one report as it was printed",
        )
