"""The Python interpreter: which one, for which machine, and what it puts before the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import changes_between, torch_build, versions
from envlock.findings import Severity
from envlock.rules import reading
from envlock.rules.base import (
    HERE,
    REFERENCE,
    DoesNotApplyError,
    Env,
    Fault,
    Pair,
    check,
    difference,
)
from envlock.rules.wording import some

_SAME_ARCH = {"amd64": "x86_64", "x64": "x86_64", "aarch64": "arm64", "i686": "x86", "i386": "x86"}


def _arch(name: str) -> str:
    return _SAME_ARCH.get(name.lower(), name.lower())


@difference("EL101", Severity.WARNING, strict=Severity.ERROR)
def minor_version(pair: Pair) -> Iterator[Fault]:
    """Python X.Y differs.

    Compiled wheels are made for one X.Y, so every compiled distribution is another file even where
    its version is equal, and a lock for one X.Y cannot be installed on another.

    To do: use the reference's Python.
    """
    left, right = pair.left.peek("python.version"), pair.right.peek("python.version")
    one = versions.minor_of(left) if left else None
    other = versions.minor_of(right) if right else None
    if left is None or right is None or one is None or other is None:
        raise DoesNotApplyError("python.version")
    if one == other:
        if left != right:
            yield Fault(
                subject="python.version",
                severity=Severity.INFO,
                message=f"Python is {left} in {REFERENCE} and {right} in {HERE}: the same X.Y, so "
                "the same wheels.",
            )
        return
    yield Fault(
        subject="python.version",
        message=(
            f"Python is {left} in {REFERENCE} and {right} in {HERE}: other wheels of every compiled "
            "distribution, and a lock for the one cannot be installed on the other."
        ),
        hint=f"uv venv --python {one[0]}.{one[1]}",
        explains=("python.abi", "python.flags"),
        changes=changes_between("python", left, right, pair.right.peek("system.os")),
    )


@difference("EL102", Severity.WARNING, strict=Severity.ERROR)
def kind_of_python(pair: Pair) -> Iterator[Fault]:
    """The interpreter is of another kind: implementation, ABI, word size or processor.

    To do: use the interpreter that the reference has.
    """
    minor = [versions.minor_of(env.peek("python.version") or "") for env in (pair.left, pair.right)]
    texts = {
        "implementation": "implementation",
        "bits": "word size",
        "arch": "processor",
        "abi": "ABI (free-threaded or not)",
    }
    for name, text in texts.items():
        left, right = pair.left.peek(f"python.{name}"), pair.right.peek(f"python.{name}")
        if left is None or right is None or left == right:
            continue
        if (name == "abi" and minor[0] != minor[1]) or (
            name == "arch" and _arch(left) == _arch(right)
        ):
            continue
        yield Fault(
            subject=f"python.{name}",
            message=f"Python's {text} is {left} in {REFERENCE} and {right} in {HERE}: other wheels, "
            "other kernels on the CPU.",
            hint="use the interpreter that the reference has",
        )


@check("EL103", Severity.ERROR)
def too_few_bits(env: Env) -> Iterator[Fault]:
    """Python is a 32-bit build.

    torch has no wheels for it: pip offers 0.1.2, a placeholder, or nothing.

    To do: install a 64-bit Python.
    """
    if env.need("python.bits") < 64:
        yield Fault(
            subject="python.bits",
            message="Python is a 32-bit build; torch has wheels for 64-bit Python only.",
            hint="install a 64-bit Python and make the environment anew",
            evidence=("python.version", "system.os"),
        )


@check("EL104", Severity.WARNING)
def emulated(env: Env) -> Iterator[Fault]:
    """Python was built for another processor than the machine's and runs emulated.

    An Intel conda on Apple Silicon, for instance: the GPU (MPS) is not found, and everything is
    slow.

    To do: install Python (or conda) for the machine's own processor, and the environment anew.
    """
    python, machine = _arch(env.need("python.arch")), _arch(env.need("system.arch"))
    if python != machine and {python, machine} != {"x86", "x86_64"}:
        yield Fault(
            subject="python.arch",
            message=f"Python is built for {python} and runs emulated on {machine}: slow, and "
            "without the machine's accelerator.",
            hint=f"install Python for {machine} and make the environment anew",
            evidence=("system.arch",),
        )


@check("EL105", Severity.ERROR)
def torch_from_elsewhere(env: Env) -> Iterator[Fault]:
    """torch is imported from outside the environment: ~/.local or PYTHONPATH.

    The copy in the user's site-packages or on PYTHONPATH comes before the environment's own, so
    reinstalling torch changes nothing, and a lock or image of the environment has another torch.

    To do: uninstall the copy in ~/.local as that user, or set PYTHONNOUSERSITE=1; unset PYTHONPATH.
    """
    where = env.need("torch.path_class")
    if where not in {"user-site", "pythonpath"}:
        return
    version = reading.torch_version(env)
    user = where == "user-site"
    yield Fault(
        subject="torch.path_class",
        message=(
            f"torch{f' {version.value}' if version else ''} is imported from "
            + ("~/.local (the user's site-packages)" if user else "a folder on PYTHONPATH")
            + ", not from the environment: reinstalling it there changes nothing."
        ),
        hint="python -m pip uninstall torch as that user, or export PYTHONNOUSERSITE=1"
        if user
        else "unset PYTHONPATH",
        evidence=(
            "torch.version",
            "env.PYTHONNOUSERSITE" if user else "env.PYTHONPATH",
            "python.user_site",
        ),
        explains=("torch", "torch.*", "packages.torch", "packages.torch.*", "duplicates.torch"),
    )


@check("EL106", Severity.WARNING)
def others_from_elsewhere(env: Env) -> Iterator[Fault]:
    """Distributions are imported from ~/.local or PYTHONPATH and hide the environment's own.

    They are no part of the environment: a colleague or an image does not have them.

    To do: set PYTHONNOUSERSITE=1 and unset PYTHONPATH, then install what is missing.
    """
    found: dict[str, list[str]] = {}
    for name, package in env.table("packages").items():
        if package.path_class in ("user-site", "pythonpath") and name != "torch":
            found.setdefault(package.path_class, []).append(name)
    if env.peek("python.environment") == "system" and "user-site" in found:
        del found["user-site"]  # pip's own choice for a system Python
    for where, names in sorted(found.items()):
        user = where == "user-site"
        yield Fault(
            subject="python.user_site" if user else "python.pythonpath",
            message=f"{some(sorted(names))} come from {'~/.local' if user else 'PYTHONPATH'}, "
            "before the environment's own.",
            hint="export PYTHONNOUSERSITE=1" if user else "unset PYTHONPATH",
            evidence=("env.PYTHONNOUSERSITE" if user else "env.PYTHONPATH",),
        )


@check("EL107", Severity.ERROR)
def no_wheel_for_python(env: Env) -> Iterator[Fault]:
    """The wanted torch release has no wheel for this Python.

    pip lists only what fits the interpreter, so it names other versions and does not mention
    Python. The release exists, but not for this X.Y.

    To do: use a Python that the release has wheels for, or a release that supports this Python.
    """
    version = versions.minor_of(env.need("python.version"))
    for index, unmet in enumerate(env.need("unmet")):
        wanted = re.fullmatch(r"torch==(\d[\w.]*)(?:\+\w+)?", unmet.requirement.replace(" ", ""))
        build = torch_build(wanted.group(1)) if wanted else None
        if build is None or version is None:
            continue
        platform = "win_amd64" if env.peek("system.os") == "windows" else "linux"
        tags = build.windows_tags if platform == "win_amd64" else build.python_tags
        if tags and f"cp{version[0]}{version[1]}" not in tags:
            supported = sorted(tags, key=lambda t: (len(t), t))
            yield Fault(
                subject=f"unmet.{index}",
                message=f"torch {build.release} has no {platform} wheel for Python "
                f"{version[0]}.{version[1]}, only for {some(supported)}.",
                hint=f"use one of {', '.join(supported)}, or a release with wheels for this Python",
                evidence=("python.version", "system.os"),
                sources=build.source,
            )
