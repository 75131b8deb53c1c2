"""Findings that the judge makes itself: plain differences by family, unknowns, broken rules."""

from __future__ import annotations

from envlock.findings import Severity
from envlock.rules.base import Rule, page

_PLAIN = """
    {0} differs, without a known effect.

    Recorded so that nothing is hidden: when every explained finding has been dealt with and the
    two environments still behave differently, look here.

    To do: nothing, unless you have reason to suspect it.
"""


def _plain(code: str, what: str) -> Rule:
    return page(code, Severity.INFO, _PLAIN.format(what))


PYTHON = _plain("EL190", "A property of Python or of an installed distribution")
TORCH = _plain("EL290", "A property of the torch build")
CUDA = _plain("EL390", "A property of a CUDA library or of the toolkit")
DRIVER = _plain("EL490", "A property of the driver")
GPU = _plain("EL590", "A property of a GPU")
SYSTEM = _plain("EL690", "A property of the operating system or of its limits")
VARIABLE = _plain("EL790", "An environment variable")
OTHER = _plain("EL990", "A property of the environment")

BY_SECTION = {
    "python": PYTHON,
    "packages": PYTHON,
    "conda": PYTHON,
    "torch": TORCH,
    "cudnn": CUDA,
    "nccl": CUDA,
    "cublas": CUDA,
    "toolkit": CUDA,
    "libraries": CUDA,
    "driver": DRIVER,
    "gpus": GPU,
    "system": SYSTEM,
    "limits": SYSTEM,
    "sonames": SYSTEM,
    "env": VARIABLE,
    "indexes": OTHER,
}
"""Every compared part of an observation."""

CHANGE = page(
    "EL280",
    Severity.INFO,
    """
    A known behaviour change lies between the two versions.

    The catalogue of changes says from which version on unchanged code behaves differently: other
    memory use, other numbers, other defaults. Each change in the crossed range is listed under
    the version difference that brings it, with how one notices it.

    To do: the remedy in the hint restores the former behaviour, where there is one.
    """,
)

UNKNOWN = page(
    "EL901",
    Severity.INFO,
    """
    Facts are known on one side only and were not compared.

    A pasted report or a package list says less than a capture. What it does not say is unknown,
    not equal, and is counted in the report.

    To do: run `envlock capture` there, and compare the two locks.
    """,
)

UNDECIDED = page(
    "EL902",
    Severity.WARNING,
    """
    A check whose finding would be an error could not be decided, because a fact is unknown.

    To do: run `envlock capture` on the side that does not say, and compare again.
    """,
)

CRASHED = page(
    "EL991",
    Severity.WARNING,
    """
    A rule of envlock failed; the others ran.

    This is a bug in envlock and says nothing about the environment. What the rule would have
    checked is unchecked.

    To do: report it with both observations, after reading them through.
    """,
)

PAGES = (
    PYTHON,
    CHANGE,
    TORCH,
    CUDA,
    DRIVER,
    GPU,
    SYSTEM,
    VARIABLE,
    UNKNOWN,
    UNDECIDED,
    OTHER,
    CRASHED,
)
