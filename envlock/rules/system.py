"""The operating system, what it lacks, and the limits it sets."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from envlock.facts import extension_floors, torch_build, versions
from envlock.findings import Severity
from envlock.lock.observation import Absent, Soname, Unknown
from envlock.rules import reading
from envlock.rules.base import (
    HERE,
    REFERENCE,
    DoesNotApplyError,
    Env,
    Fault,
    Pair,
    UndecidedError,
    check,
    difference,
)
from envlock.rules.wording import agree, some

_MIB = 2**20
_GIB = 2**30
_DEFAULT_SHM = 64 * _MIB
"""What container engines give to /dev/shm unless told otherwise."""
_GLIBC_TAG = re.compile(r"manylinux_2_(\d+)_|manylinux(1|2010|2014)_")
_OLD_TAGS = {"1": 5, "2010": 12, "2014": 17}


@functools.lru_cache(maxsize=1024)
def _tag_glibc(tag: str) -> int | None:
    """The minor of the glibc that a wheel tag demands; of several, the oldest that will do."""
    found = [
        int(new) if new else _OLD_TAGS[old] for new, old in _GLIBC_TAG.findall(f"{tag.lower()}_")
    ]
    return min(found, default=None)


def _glibc_needs(env: Env) -> dict[int, dict[str, str]]:
    """Minor of glibc -> distributions that need at least it, each with the path of a fact that says so."""
    needs: dict[int, dict[str, str]] = {}
    for name, package in env.peek_table("packages").items():
        tags = package.tags if isinstance(package.tags, list) else []
        minors = [m for tag in tags if (m := _tag_glibc(tag)) is not None]
        if minors:
            needs.setdefault(min(minors), {})[name] = f"packages.{name}.tags"
        for floor in extension_floors(name, env.package(name)):
            minor = versions.minor_of(floor.minimum) if floor.needs == "glibc" else None
            if minor is not None:
                needs.setdefault(minor[1], {}).setdefault(name, f"packages.{name}")
    version = reading.torch_version(env)
    build = torch_build(version.value) if version else None
    minor = versions.minor_of(build.min_glibc) if build else None
    if version and minor and "pytorch" not in env.peek_table("conda"):
        needs.setdefault(minor[1], {}).setdefault("torch", version.path)
    return needs


def newest_glibc_needed(env: Env) -> tuple[int, list[str]] | None:
    """Minor of the newest glibc that an installed wheel needs, and which ones need it."""
    needs = _glibc_needs(env)
    newest = max(needs, default=None)
    return None if newest is None else (newest, sorted(needs[newest]))


@check("EL601", Severity.ERROR)
def glibc_too_old(env: Env) -> Iterator[Fault]:
    """The system's C library is older than an installed wheel needs.

    Importing it stops with "version `GLIBC_2.28' not found". The wheel's tag names the glibc it
    needs (manylinux_2_28); torch from 2.7 on needs 2.28. glibc cannot be replaced in place.

    To do: run in a container with a newer base, or take releases built for the older glibc.
    """
    have = versions.minor_of(env.need("system.glibc"))
    needs = _glibc_needs(env)
    if have is None or not needs:
        raise UndecidedError("packages", "no distribution says which glibc it needs")
    newest = max(needs)
    if (have[0], have[1]) < (2, newest):
        names = sorted(needs[newest].items())
        yield Fault(
            subject="system.glibc",
            message=f"glibc is 2.{have[1]}, and "
            f"{agree((name for name, _ in names), 'needs', 'need')} 2.{newest} to be loaded.",
            hint="run in a container whose base has a newer glibc, or take an older release",
            evidence=("system.distribution", *(path for _, path in names[:3])),
            explains=("torch.importable", "system.glibcxx"),
        )


@difference("EL602", Severity.ERROR)
def reference_needs_newer_glibc(pair: Pair) -> Iterator[Fault]:
    """The reference's wheels need a newer C library than this system has.

    To do: run the reference's environment in a container; its base has a newer glibc.
    """
    have = versions.minor_of(pair.right.peek("system.glibc") or "")
    needs = _glibc_needs(pair.left)
    own = _glibc_needs(pair.right)
    if have is None or not needs or (own and max(own) >= max(needs)):
        raise DoesNotApplyError("system.glibc")
    newest = max(needs)
    if have < (2, newest):
        yield Fault(
            subject="system.glibc",
            message=f"glibc is 2.{have[1]} in {HERE}, and in {REFERENCE} "
            f"{agree(sorted(needs[newest]), 'needs', 'need')} 2.{newest}: not installable here.",
            hint="envlock build makes an image with a newer base",
            evidence=("system.distribution",),
        )


@difference("EL603", Severity.INFO)
def glibc_differs(pair: Pair) -> Iterator[Fault]:
    """The C library or the distribution differs.

    Wheels for an older glibc run on every newer one. Compilers and libm differ in details.

    To do: nothing.
    """
    for path, what in (("system.glibc", "glibc"), ("system.distribution", "The system")):
        left, right = pair.left.peek(path), pair.right.peek(path)
        if left and right and left != right:
            yield Fault(
                subject=path,
                message=f"{what} is {left} in {REFERENCE} and {right} in {HERE}: harmless while "
                "no library is missing.",
                explains=("system.kernel", "system.glibcxx"),
            )


@difference("EL604", Severity.WARNING, strict=Severity.ERROR)
def other_machine_kind(pair: Pair) -> Iterator[Fault]:
    """The operating system or the processor architecture differs.

    Wheels, kernels and even the set of published builds are others.

    To do: compare with a machine of the same kind.
    """
    for path, what in (("system.os", "operating system"), ("system.arch", "processor")):
        left, right = pair.left.peek(path), pair.right.peek(path)
        alias = {"amd64": "x86_64", "aarch64": "arm64"}
        if left and right and alias.get(left, left) != alias.get(right, right):
            yield Fault(
                subject=path,
                message=f"The {what} is {left} in {REFERENCE} and {right} in {HERE}: other wheels.",
            )


@check("EL605", Severity.ERROR)
def libstdcxx_outside(env: Env) -> Iterator[Fault]:
    """A conda environment loads the system's libstdc++ instead of its own newer one.

    The link libstdc++.so.6 is missing in the environment, or LD_LIBRARY_PATH comes first. Libraries
    that were built against conda's newer one stop with "version `GLIBCXX_3.4.30' not found".

    To do: reinstall libstdcxx-ng in the environment; take system folders out of LD_LIBRARY_PATH.
    """
    conda = env.peek_table("conda")
    if env.peek("python.environment") != "conda" and not conda:
        raise DoesNotApplyError("no conda environment")
    own = next((name for name in ("libstdcxx-ng", "libstdcxx") if name in conda), None)
    where = env.need("system.libstdcxx")
    if own is None:
        raise DoesNotApplyError("the environment has no libstdc++ of its own")
    if where in {"system", "ld-library-path", "cuda-home", "other"}:
        newest = env.peek("system.glibcxx")
        yield Fault(
            subject="system.libstdcxx",
            message=f"The system's libstdc++{f' ({newest})' if newest else ''} is loaded although "
            "the conda environment has its own: libraries built for the newer one do not load.",
            hint=f"conda install --force-reinstall {own}",
            evidence=(f"conda.{own}", "system.glibcxx", "env.LD_LIBRARY_PATH"),
            explains=("torch.importable", "system.glibcxx"),
        )


_OS_PACKAGES = {
    "libGL.so": "libgl1",
    "libEGL.so": "libegl1",
    "libglib-2.0.so": "libglib2.0-0",
    "libgthread-2.0.so": "libglib2.0-0",
    "libgomp.so": "libgomp1",
    "libsndfile.so": "libsndfile1",
    "libSM.so": "libsm6",
    "libXext.so": "libxext6",
    "libXrender.so": "libxrender1",
    "libX11.so": "libx11-6",
    "libaio.so": "libaio1",
    "libibverbs.so": "libibverbs1",
    "librdmacm.so": "librdmacm1",
    "libnuma.so": "libnuma1",
    "libmpi.so": "libopenmpi3",
    "libsox.so": "libsox3",
    "libavcodec.so": "ffmpeg",
    "libavformat.so": "ffmpeg",
    "libopenblas.so": "libopenblas0",
    "libstdc++.so": "libstdc++6",
}
"""Debian's package for a library, where the other side does not say."""


_DRIVERS_OWN = re.compile(r"libcuda\.so|libnvidia-|libnvcuvid|libnvoptix")
"""Libraries of the driver: they come with it, or from the container runtime; EL4xx speaks of it."""


def _os_package(soname: str) -> str:
    return _OS_PACKAGES.get(re.sub(r"\.so.*", ".so", soname), "")


@check("EL606", Severity.ERROR)
def soname_missing(env: Env) -> Iterator[Fault]:
    """A system library that an extension module needs is not there.

    Importing the module stops with "cannot open shared object file". Python packages do not say
    which system libraries they need; the extension modules themselves do (DT_NEEDED).

    To do: install the operating system's package that owns it. The hint names it where known.
    """
    for soname, fact in _missing_sonames(env).items():
        if not fact.on_demand:
            package = _os_package(soname)
            yield Fault(
                subject=f"sonames.{soname}",
                message=f"{soname} is not there, and {agree(fact.needed_by, 'needs', 'need')} it.",
                hint=f"apt-get install {package}" if package else f"install what owns {soname}",
                explains=(f"sonames.{soname}.*", "torch.importable"),
            )


@check("EL609", Severity.INFO)
def plug_in_soname_missing(env: Env) -> Iterator[Fault]:
    """System libraries that only plug-ins need are not there.

    Plug-ins are loaded on demand: NVSHMEM's and cuFile's for InfiniBand and MPI, torchaudio's for
    each release of FFmpeg. Without the library that one way stays unusable, and nothing fails at
    import.

    To do: nothing, unless the plug-in is wanted; then install the package that owns the library.
    """
    missing = {name: fact for name, fact in _missing_sonames(env).items() if fact.on_demand}
    if missing:
        users = sorted({user for fact in missing.values() for user in fact.needed_by})
        yield Fault(
            subject="sonames",
            message=f"{agree(missing, 'is', 'are')} not there, which only plug-ins of {some(users)} need.",
            hint="nothing, unless they are wanted; then install what owns the library",
            evidence=tuple(f"sonames.{soname}" for soname in missing),
        )


def _missing_sonames(env: Env) -> dict[str, Soname]:
    return {
        soname: fact
        for soname, fact in sorted(env.table("sonames").items())
        if isinstance(fact.path_class, Absent) and not _DRIVERS_OWN.match(soname)
    }


@difference("EL607", Severity.ERROR, strict=Severity.ERROR)
def soname_other(pair: Pair) -> Iterator[Fault]:
    """A system library that the reference's extension modules need is missing here.

    To do: install the package that owns it on the reference's system.
    """
    if isinstance(pair.right.find("sonames"), Unknown):
        raise DoesNotApplyError("sonames")
    theirs, ours = pair.left.peek_table("sonames"), pair.right.peek_table("sonames")
    for soname, fact in sorted(theirs.items()):
        here = ours.get(soname)
        there = isinstance(fact.path_class, str)
        if here is None or here.on_demand or not isinstance(here.path_class, Absent):
            continue
        if there and not _DRIVERS_OWN.match(soname):
            owner = fact.os_package if isinstance(fact.os_package, str) else _os_package(soname)
            yield Fault(
                subject=f"sonames.{soname}.path_class",
                message=f"{soname}, which {agree(fact.needed_by, 'needs', 'need')}, is in {REFERENCE}"
                f"{f' (from {owner})' if owner else ''} and missing in {HERE}.",
                hint=f"apt-get install {owner}" if owner else f"install what owns {soname}",
                evidence=(f"sonames.{soname}.os_package",),
                explains=(f"sonames.{soname}", f"sonames.{soname}.*"),
            )


@difference("EL608", Severity.INFO)
def soname_needs(pair: Pair) -> Iterator[Fault]:
    """The extension modules of the two sides need other system libraries.

    It follows from the installed distributions. A library that is needed and not there is an error
    of its own (EL606).

    To do: nothing.
    """
    if not all("sonames" in env.observation.exhaustive for env in (pair.left, pair.right)):
        raise DoesNotApplyError("sonames")
    left, right = pair.left.peek_table("sonames"), pair.right.peek_table("sonames")
    only = sorted(left.keys() ^ right.keys())
    if only:
        yield Fault(
            subject="sonames",
            message=f"{some(only)} is needed on one side only, as the installed distributions differ.",
            evidence=tuple(f"sonames.{name}" for name in only),
        )


@check("EL611", Severity.WARNING)
def small_shm(env: Env) -> Iterator[Fault]:
    """The container's /dev/shm is small.

    DataLoader workers pass batches through it and die with a bus error; NCCL allocates its
    shared-memory segments there ("unhandled system error"). Container engines give 64 MB. With two
    or more GPUs in one container NCCL needs it, which makes it an error.

    To do: start the container with `--shm-size=8g` or `--ipc=host`; without either, num_workers=0.
    """
    size = env.need("limits.shm_bytes")
    if not env.known("system.container") and size > _DEFAULT_SHM:
        raise DoesNotApplyError("not in a container")
    if size < _GIB:
        many = len(env.peek("gpus") or []) > 1
        yield Fault(
            subject="limits.shm_bytes",
            severity=Severity.ERROR if many and size <= _DEFAULT_SHM else None,
            message=f"Shared memory (/dev/shm) has {size / _MIB:.0f} MiB: DataLoader workers die with a bus error"
            + (" and NCCL cannot allocate its segments for several GPUs." if many else "."),
            hint="docker run --shm-size=8g (or --ipc=host)",
            evidence=("system.container",),
        )


@check("EL612", Severity.WARNING)
def cgroup_memory(env: Env) -> Iterator[Fault]:
    """The container may use less memory than the machine seems to have.

    psutil, free and /proc/meminfo show the host's memory. Programs that size buffers, caches or
    worker counts by it are killed without a Python traceback when they cross the cgroup's limit.

    To do: read memory.max of the cgroup, or raise the container's limit.
    """
    limit, total = env.need("limits.cgroup_memory_bytes"), env.need("system.memory_bytes")
    if limit < 0.5 * total:
        yield Fault(
            subject="limits.cgroup_memory_bytes",
            message=f"The cgroup allows {limit / _GIB:.1f} GiB, tools report {total / _GIB:.1f} GiB: "
            "what is sized by the machine's memory will be killed.",
            hint="size by the cgroup's memory.max, or raise the container's --memory",
            evidence=("system.memory_bytes", "system.container"),
        )


@check("EL613", Severity.ERROR)
def device_denied(env: Env) -> Iterator[Fault]:
    """This user may not open a GPU device node.

    The GPU works for root and is invisible to everyone else: the udev rule that gives the node to
    the video or render group is missing, or the user is not in the group.

    To do: put the user into the node's group (`usermod -aG render,video USER`), or add the rule.
    """
    for name, access in sorted(env.table("limits.devices").items()):
        if access == "denied":
            yield Fault(
                subject=f"limits.devices.{name}",
                message=f"/dev/{name} may not be opened by this user: no GPU for this process.",
                hint="usermod -aG render,video USER, or a udev rule with MODE=0660 for the node",
                evidence=("limits.devices",),
                explains=("torch.cuda_available", "gpus"),
            )


@check("EL614", Severity.WARNING)
def few_open_files(env: Env) -> Iterator[Fault]:
    """The limit on open files is low.

    Each DataLoader worker and each shared tensor takes file descriptors: "Too many open files".

    To do: `ulimit -n 65536`, or torch.multiprocessing.set_sharing_strategy("file_system").
    """
    limit = env.need("limits.open_files")
    if limit < 1024:
        yield Fault(
            subject="limits.open_files",
            message=f"Only {limit} files may be open at once: data loading stops with 'Too many "
            "open files'.",
            hint="ulimit -n 65536",
        )
