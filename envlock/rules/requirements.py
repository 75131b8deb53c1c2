"""Manual pages of what ``envlock requires`` says."""

from __future__ import annotations

from envlock.findings import Severity
from envlock.rules.base import page

DRIVER = page(
    "EL941",
    Severity.INFO,
    """
    The oldest driver that runs this lock.

    It is the floor of minor-version compatibility: since CUDA 11 any driver of the CUDA major runs
    every minor release. Compiling PTX at run time needs the driver that belongs to the release.

    To do: EL401 says what to do about an older one.
    """,
)

KERNELS = page(
    "EL942",
    Severity.INFO,
    """
    The GPUs that this lock's torch has kernels for.

    Machine code runs on GPUs of the same major compute capability with an equal or higher minor
    one; PTX also on newer majors, compiled at the first start.

    To do: EL501 says what to do about another GPU.
    """,
)

GLIBC = page(
    "EL943",
    Severity.INFO,
    """
    The oldest C library that loads this lock's wheels.

    To do: EL601 says what to do about an older one.
    """,
)

PYTHON = page(
    "EL944",
    Severity.INFO,
    """
    The interpreter that this lock's wheels are for.

    To do: EL101 says what another one means.
    """,
)

PAGES = (DRIVER, KERNELS, GLIBC, PYTHON)
