"""Reports for the tests of all formats: the headline case, the plain ones, and hostile ones."""

from __future__ import annotations

from typing import Any

from envlock.findings import Evidence, Finding, JsonValue, Report, Severity, Side

ABSENT: JsonValue = {"absent": True}

HOSTILE = {
    "osc8": "\x1b]8;;https://attacker.invalid\x1b\\NVIDIA A100\x1b]8;;\x1b\\",
    "rewrite": "A100\x1b[1A\x1b[2K\x1b[32mOK: environments match\x1b[0m",
    "c1": "A100\x9b31m",
    "rich-link": "NVIDIA [link=https://attacker.invalid/login]A100[/link]",
    "rich-crash": "NVIDIA A100 [/]",
    "rich-hidden": "[black on black]tampered[/]",
    "not-available": "[N/A]",
    "comma": "NVIDIA A100, 80GB",
    "xml": "A100\x1b[31m \x00 \ufffe ]]><evil/>",
    "bidi": "A100\u202egnihton\u2066",
    "surrogate": "A100 \ud800",
    "newline": "A100\nRUN touch /pwned",
    "separators": "A100\u2028## passed\u2029x\x85y\x0bz",
    "actions": "Debian\n::stop-commands::x\n::error file=a.py::forged",
    "actions-start": "::error file=a.py::forged",
    "delimiter": "1\nEOF\nPATH=/evil\nx<<EOF",
    "other-runner": "Debian\n##vso[task.setvariable variable=PATH]/evil\n##[error]forged",
    "html": "</td></tr></table><h1>verified</h1><!--",
    "script": "</script><script>alert(1)</script>",
    "attribute": '" onmouseover="alert(1)',
    "markdown": "x ![ok](https://attacker.invalid/b.png) <details open><summary>ok</summary>",
    "markdown-link": "[passed](https://attacker.invalid) **all** `code` | cell |",
    "backticks": "``` ` `` <b>",
    "heading": "# verified",
    "autolink": "https://attacker.invalid/ www.attacker.invalid <https://attacker.invalid>",
    "mention": "@octocat #1 user/repo#2",
    "uri": "javascript:alert(1)",
    "jinja": "{{ 7 * 7 }}{% for x in y %}",
    "entity": "&lt;b&gt; &amp; &#x3c;",
    "long": "A" * 1_000_000,
}
"""Values as strangers write them into locks, machines and images."""


def finding(code: str, severity: str, subject: str, message: str, **more: Any) -> Finding:
    return Finding(code=code, severity=Severity(severity), subject=subject, message=message, **more)


def report(*findings: Finding, **changes: Any) -> Report:
    values: dict[str, Any] = {
        "command": "diff",
        "left": "colleague.lock",
        "right": "env",
        "findings": findings,
        "checked": 214,
        "unknown": ("gpus.0.ecc", "limits.shm_bytes"),
    }
    return Report(**{**values, **changes})


_WHEELS = {
    "cublas": ("12.1.3.1", "11.11.3.6"),
    "cudnn": ("8.9.2.26", "9.1.0.70"),
    "cufft": ("11.0.2.54", "10.9.0.58"),
    "curand": ("10.3.2.106", "10.3.0.86"),
    "nccl": ("2.20.5", "2.20.5"),
}

FOLDED = (
    *(
        finding("EL110", "info", f"packages.nvidia-{name}-cu12", "Gone.", left=left, right=ABSENT)
        for name, (left, _) in _WHEELS.items()
    ),
    *(
        finding("EL110", "info", f"packages.nvidia-{name}-cu11", "New.", left=ABSENT, right=right)
        for name, (_, right) in _WHEELS.items()
    ),
    finding("EL110", "info", "packages.triton", "Another version.", left="2.3.0", right="3.0.0"),
)

LEAD = finding(
    "EL201",
    "error",
    "torch.version",
    "The two environments run another torch, built for another CUDA: 2.3.0+cu121 there,"
    " 2.4.0+cu118 here. The caching allocator of 2.4 rounds large blocks differently, so the same"
    " training code needs more memory.",
    hint="uv pip install 'torch==2.3.0+cu121' --index-url https://wheels.example/cu121/simple/long",
    left="2.3.0+cu121",
    right="2.4.0+cu118",
    evidence=(
        Evidence(
            side=Side.LEFT,
            path="torch.version",
            value="2.3.0+cu121",
            read_from="torch/version.py",
        ),
        Evidence(side=Side.RIGHT, path="torch.version", value="2.4.0+cu118"),
    ),
    sources=("https://notes.example/torch-2.4", "torch 2.4 release notes"),
    folded=FOLDED,
)

ALLOCATOR = finding(
    "EL701",
    "error",
    "env.PYTORCH_CUDA_ALLOC_CONF",
    "expandable_segments is on there and not here.",
    hint="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    left="expandable_segments:True",
    right=ABSENT,
)
MEMORY = finding(
    "EL503",
    "warning",
    "gpus.0.memory_bytes",
    "The card has less memory.",
    hint="Lower the batch size, or ask `envlock memory` what the run needs.",
    left=25757220864,
    right=17066295296,
)
KERNEL = finding(
    "EL601",
    "info",
    "system.kernel",
    "Another kernel, no known effect.",
    left="5.15.0-101-generic",
    right="6.8.0-40-generic",
)
DRIVER_UNKNOWN = finding(
    "EL901",
    "info",
    "driver.version",
    "Not known on one side.",
    left="535.183.01",
    right={"unknown": "NVML not loaded"},
)

HEADLINE = report(LEAD, ALLOCATOR, MEMORY, KERNEL, DRIVER_UNKNOWN)
SAME = report()
ONLY_NOTES = report(KERNEL)
ONLY_WARNING = report(MEMORY, KERNEL)
NOTHING = report(checked=0)
ONE_SIDE = report(
    finding(
        "EL401",
        "error",
        "driver.version",
        "The driver is too old for CUDA 12.1.",
        left="470.57.02",
    ),
    command="doctor",
    left="env",
    right="",
)


def hostile_report(value: str) -> Report:
    """A report with one hostile value in every place that text from outside can reach."""
    inner = finding("EL110", "info", f"packages.{value}", value, left=value, right=value)
    outer = {
        "hint": value,
        "left": value,
        "right": {"unknown": value},
        "evidence": (Evidence(side=Side.LEFT, path=value, value=[value], read_from=value),),
        "sources": (value,),
        "folded": (inner,),
    }
    return report(
        finding("EL502", "error", value, value, **outer),
        finding("EL502", "error", "gpus.0.name", f"The card is {value}.", **outer),
        finding("EL503", "warning", value, value, **outer),
        finding("EL504", "info", value, value, left={value: value}),
        left=value,
        right=value,
        unknown=(value,),
    )


PLAIN = {
    "headline": HEADLINE,
    "same": SAME,
    "only-notes": ONLY_NOTES,
    "only-warning": ONLY_WARNING,
    "nothing": NOTHING,
    "one-side": ONE_SIDE,
}
ALL = PLAIN | {f"hostile-{name}": hostile_report(value) for name, value in HOSTILE.items()}
