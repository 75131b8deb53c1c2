"""Whether what is installed is whole: edited, missing and contested files, metadata, requirements."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.findings import Severity
from envlock.lock.observation import Absent, Unknown
from envlock.rules.base import Env, Fault, check
from envlock.rules.wording import agree, some


def _by_owner(paths: dict[str, str]) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for path, owner in sorted(paths.items()):
        owners.setdefault(owner, []).append(path)
    return owners


@check("EL116", Severity.ERROR)
def files_altered(env: Env) -> Iterator[Fault]:
    """Installed files are not those that were installed: someone edited them.

    Each file of a distribution is hashed against its RECORD. An edit in site-packages is in no
    list of versions, and is lost or missed everywhere else: the classic hidden cause.

    To do: reinstall the distribution, and keep the change as a patch or a fork.
    """
    checked = env.need("files")
    for owner, paths in _by_owner(checked.altered).items():
        yield Fault(
            subject=f"packages.{owner}",
            message=f"{some(paths)} of {owner} was changed after installation.",
            hint=f"pip install --force-reinstall --no-deps {_pin(env, owner)}",
            evidence=("files.altered",),
            explains=(f"packages.{owner}", f"packages.{owner}.*"),
        )


@check("EL117", Severity.ERROR)
def files_missing(env: Env) -> Iterator[Fault]:
    """Installed files are gone.

    An interrupted upgrade, a second distribution with the same paths that was uninstalled, or a
    hand that tidied up.

    To do: reinstall the distribution.
    """
    checked = env.need("files")
    for owner, paths in _by_owner(checked.missing).items():
        yield Fault(
            subject=f"packages.{owner}",
            message=f"{some(paths)} of {owner} is gone.",
            hint=f"pip install --force-reinstall --no-deps {_pin(env, owner)}",
            evidence=("files.missing",),
        )


_LOADED = re.compile(r"\.(?:py|pyd|pth|dll|so(?:\.\d+)*)$")
"""Names of files that Python or the loader takes as code."""


@check("EL122", Severity.WARNING)
def files_added(env: Env) -> Iterator[Fault]:
    """Files lie in a distribution's package that no distribution has installed.

    Someone put them there: a module copied in by hand, a library dropped beside the real one, a
    file that an interrupted upgrade left. Import finds them, no list of versions shows them, and
    reinstalling leaves them in place. Code (Python modules, shared libraries) is a warning, other
    files are information: some programs download data into their own folder.

    To do: look at them; delete them, or delete the folder and reinstall the distribution.
    """
    for owner, paths in _by_owner(env.need("files.unowned")).items():
        code = [path for path in paths if _LOADED.search(path)]
        yield Fault(
            subject=f"packages.{owner}",
            severity=None if code else Severity.INFO,
            message=f"{agree(code or paths, 'lies', 'lie')} in {owner}, and no distribution "
            "has installed it.",
            hint="look at it, and delete it unless somebody knows what it is for",
            evidence=("files.unowned",),
        )


def _pin(env: Env, name: str) -> str:
    version = env.package(name)
    return f"{name}=={version}" if version else name


_SHARED_BY_HABIT = re.compile(
    r"(?:tests?|docs?|examples?|benchmarks?|scripts|tools)/|licen[cs]e|readme|changelog|"
    r"__init__\.pyi?$|py\.typed$",
    re.IGNORECASE,
)
CUDA_LIBRARY = re.compile(
    r"(?:^|/)lib(?:nccl|cudnn\w*|cublas\w*|cudart|cufft\w*|cusparse\w*|cusolver\w*|curand|"
    r"nvJitLink|nvrtc[\w-]*|nvshmem\w*|cupti|nvToolsExt|c10_cuda|torch_cuda\w*)[\w.-]*\.so"
)


@check("EL118", Severity.WARNING)
def contested_files(env: Env) -> Iterator[Fault]:
    """Two distributions claim the same file.

    The one installed last has won, and uninstalling either breaks the other. Order of installation
    decides what the environment does. Shared CUDA libraries are a finding of their own (EL305).

    To do: keep one of the two, and reinstall it.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for path, owners in env.table("contested").items():
        if not CUDA_LIBRARY.search(path) and not _SHARED_BY_HABIT.search(path):
            groups.setdefault(tuple(sorted(owners)), []).append(path)
    for owners, paths in sorted(groups.items()):
        yield Fault(
            subject=f"contested.{min(paths)}",
            message=f"{' and '.join(owners)} both claim {some(sorted(paths))}: the one installed "
            "last has won.",
            hint=f"uninstall all but one of {', '.join(owners)}, then reinstall that one",
            evidence=tuple(f"packages.{owner}" for owner in owners),
        )


@check("EL119", Severity.WARNING)
def duplicates(env: Env) -> Iterator[Fault]:
    """One distribution has several metadata folders on the path.

    Which version is imported and which one pip shows is decided by the order of the path.

    To do: uninstall it until pip says that it is not installed, then install it once.
    """
    for name, found in sorted(env.table("duplicates").items()):
        yield Fault(
            subject=f"duplicates.{name}",
            message=f"{name} is installed {len(found)} times: {', '.join(found)}.",
            hint=f"pip uninstall {name} until it is gone, then install it once",
            evidence=(f"packages.{name}",),
        )


@check("EL120", Severity.WARNING)
def broken_metadata(env: Env) -> Iterator[Fault]:
    """A metadata folder names no usable distribution.

    An interrupted upgrade or sync leaves such folders. The package may still import; tools that
    list distributions see no version or crash.

    To do: delete the folder and reinstall the package.
    """
    for index, broken in enumerate(env.need("broken")):
        yield Fault(
            subject=f"broken.{index}",
            message=f"{broken.folder}: {broken.reason}.",
            hint="delete the folder and reinstall the package",
        )


@check("EL121", Severity.WARNING)
def unmet(env: Env) -> Iterator[Fault]:
    """A requirement of an installed distribution is not met.

    To do: `pip check` shows the same; install the required version.
    """
    for index, entry in enumerate(env.need("unmet")):
        if _pairing(entry.distribution, entry.requirement):
            continue  # EL222, EL225, EL303 and EL312 say what it means
        have = None if isinstance(entry.installed, Absent | Unknown) else entry.installed
        yield Fault(
            subject=f"unmet.{index}",
            message=f"{entry.distribution} requires {entry.requirement}; "
            f"{f'{have} is installed' if have else 'it is not installed'}.",
            hint=f'pip install "{entry.requirement.partition(";")[0].strip()}"',
        )


def _pairing(distribution: str, requirement: str) -> bool:
    """Requirements that rules about torch and its companions speak of."""
    name = re.match(r"[\w-]*", requirement)
    wanted = name.group(0) if name else ""
    of_torch = distribution == "torch" and (wanted == "triton" or wanted.startswith("nvidia-"))
    return wanted in {"torch", "cudnn"} or of_torch
