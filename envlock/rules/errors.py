"""Which findings are the cause of which error message."""

from __future__ import annotations

from envlock.findings import Severity
from envlock.rules.base import page

CAUSES: dict[str, tuple[str, ...]] = {
    "capability-warning": ("EL501", "EL502", "EL503"),
    "compile-python": ("EL101",),
    "container-require-cuda": ("EL408", "EL402"),
    "cublas-alloc-failed": ("EL513", "EL505"),
    "cublas-not-initialized": ("EL513", "EL308", "EL309", "EL401", "EL113"),
    "cublaslt-mixed": ("EL308", "EL309", "EL305"),
    "cuda-home": ("EL322",),
    "cuda-oom": ("EL513", "EL505", "EL701", "EL201", "EL203", "EL302", "EL707", "EL512"),
    "cuda-oom-fraction": ("EL701", "EL703"),
    "cudnn-not-supported": ("EL301", "EL302", "EL308", "EL513"),
    "cudnn-version-incompat": ("EL301", "EL308"),
    "cudnn8-lib-missing": ("EL301", "EL302", "EL223", "EL203"),
    "detected-cuda-mismatch": ("EL321",),
    "device-assert": (),
    "devices-busy": ("EL512", "EL513"),
    "docker-gpu-driver": ("EL409",),
    "driver-insufficient": ("EL401", "EL402", "EL421"),
    "driver-shutting-down": (),
    "driver-too-old": ("EL401", "EL402", "EL421"),
    "error-803": ("EL404", "EL403"),
    "fork-cuda": (),
    "forward-compat": ("EL403",),
    "glibc-missing": ("EL601", "EL602"),
    "glibcxx-missing": ("EL605", "EL601"),
    "illegal-access": ("EL223", "EL224"),
    "invalid-ordinal": ("EL722",),
    "libcudart-soname": ("EL223", "EL201"),
    "nccl-cuda-error": ("EL304", "EL307", "EL401"),
    "nccl-invalid-usage": ("EL304",),
    "nccl-remote-exited": ("EL304",),
    "nccl-system-error": ("EL611", "EL304"),
    "nccl-watchdog-timeout": ("EL304", "EL203"),
    "no-device": ("EL722", "EL613", "EL409", "EL405"),
    "no-kernel-image": ("EL501", "EL503"),
    "no-matching-wheel": ("EL107", "EL921", "EL922", "EL103", "EL101"),
    "no-nvidia-driver": ("EL410", "EL409", "EL404", "EL405"),
    "not-compiled-with-cuda": ("EL211", "EL202"),
    "numpy-abi": ("EL130", "EL131"),
    "nvml-mismatch": ("EL404", "EL405"),
    "nvrtc-arch": ("EL501", "EL503"),
    "ptx-jit-missing": ("EL502",),
    "ptx-unsupported-toolchain": ("EL502", "EL401", "EL321"),
    "shm-bus-error": ("EL611",),
    "system-not-ready": ("EL407",),
    "triton-gpu-too-old": ("EL501",),
    "triton-missing": ("EL225", "EL226", "EL111"),
    "undefined-symbol-c10": ("EL224", "EL223", "EL227", "EL203"),
    "weights-only": ("EL203",),
}
"""Row of facts/errors -> codes of findings that would cause it, the likeliest first."""

KNOWN_ERROR = page(
    "EL931",
    Severity.INFO,
    """
    The given error message is a known one, and no finding explains it.

    The catalogue knows what usually causes the message and which facts would prove it; in this
    environment those facts are unremarkable or unknown.

    To do: go through the causes and remedies that it lists.
    """,
)

UNKNOWN_ERROR = page(
    "EL932",
    Severity.INFO,
    """
    The given text holds no error message that the catalogue knows.

    To do: give the whole traceback, above all its last lines.
    """,
)

PAGES = (KNOWN_ERROR, UNKNOWN_ERROR)
