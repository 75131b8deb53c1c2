"""Before a long run: room for checkpoints, and the caches of compiled kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.findings import Severity
from envlock.rules import reading
from envlock.rules.base import Env, Fault, UndecidedError, check

_MIB, _GIB = 2**20, 2**30

_PLACES = {
    "working": "The working directory",
    "temporary": "The folder for temporary files",
    "cache": "The folder for caches",
}
_CACHES = {
    "inductor": ("torch.compile's cache", "TORCHINDUCTOR_CACHE_DIR"),
    "triton": ("Triton's cache", "TRITON_CACHE_DIR"),
    "cuda": ("the CUDA driver's cache", "CUDA_CACHE_PATH"),
}
_ROOM = {"working": 10 * _GIB, "temporary": _GIB, "cache": _GIB}
"""Below it a warning: a checkpoint of a model with 1 billion parameters in float32 and Adam's two
moments takes 12 GB; torch.compile and data loading write hundreds of megabytes to the others."""
_NO_ROOM = 128 * _MIB
_FEW_FILES = 1000
"""Inodes: a data set unpacked into small files, or one compile cache, takes more."""
_NETWORK = re.compile(
    r"9p|afs|beegfs|ceph|cifs|fuse\.(?:ceph|glusterfs|s3fs|sshfs)|gpfs|lustre|nfs4?|panfs|pvfs2|"
    r"smb3|smbfs|wekafs"
)
_HUGE = 20 * _GIB


def _known(env: Env, table: str, fact: str) -> Iterator[str]:
    """Paths of the folders of which a fact is known."""
    env.need("preflight")
    names = _PLACES if table == "places" else _CACHES
    return reading.where_known(env, (f"preflight.{table}.{name}" for name in names), fact)


def _shown(env: Env, path: str) -> str:
    found = env.peek(f"{path}.path")
    return f" ({found})" if found else ""


def _cache_name(env: Env, path: str) -> tuple[str, str]:
    """How a sentence begins with the cache of this path, and the variable that names its folder."""
    name, variable = _CACHES[path.rpartition(".")[2]]
    return f"{name[0].upper()}{name[1:]}{_shown(env, path)}", variable


@check("EL621", Severity.WARNING, in_rebuild=False)
def disk_nearly_full(env: Env) -> Iterator[Fault]:
    """A disk to which a run writes is nearly full.

    Saving a checkpoint stops with "No space left on device", hours after the start, and torch.save
    leaves half a file behind. Looked at are the working directory (warning below 10 GiB: 1 billion
    parameters in float32 with Adam's moments take 12 GB), the folder for temporary files and the
    home cache (below 1 GiB each), and the number of files that may still be made. Below 128 MiB it
    is an error. A quota does not show here.

    To do: free room, or write checkpoints elsewhere.
    """
    for path in _known(env, "places", "free_bytes"):
        name = path.rpartition(".")[2]
        free, files = env.peek(f"{path}.free_bytes"), env.peek(f"{path}.free_files")
        if free is not None and free < _ROOM[name]:
            yield Fault(
                subject=f"{path}.free_bytes",
                severity=Severity.ERROR if free < _NO_ROOM else None,
                message=f"{_PLACES[name]}{_shown(env, path)} has {free / _GIB:.1f} GiB left: "
                "writing stops with 'No space left on device'.",
                hint="free room there (df -h), or write to another disk",
                evidence=(f"{path}.total_bytes", f"{path}.filesystem"),
                explains=("preflight.caches.*.free_bytes",),
            )
        elif files is not None and files < _FEW_FILES:
            yield Fault(
                subject=f"{path}.free_files",
                message=f"On the disk of {_PLACES[name].lower()}{_shown(env, path)} only {files} "
                "more files can be made, however small.",
                hint="delete small files there (df -i), or write to another disk",
                evidence=(f"{path}.filesystem",),
            )


@check("EL622", Severity.WARNING, in_rebuild=False)
def not_writable(env: Env) -> Iterator[Fault]:
    """A folder to which a run writes cannot be written to by this user.

    Without a folder for temporary files, multiprocessing and torch.compile fail: an error. A
    working directory is where logs and checkpoints go unless told otherwise. Containers with a
    read-only root file system or another user id have this often.

    To do: mount a volume there, or name another folder (TMPDIR, XDG_CACHE_HOME).
    """
    variables = {"temporary": "TMPDIR", "cache": "XDG_CACHE_HOME"}
    for path in _known(env, "places", "writable"):
        name = path.rpartition(".")[2]
        if env.peek(f"{path}.writable") is False:
            variable = variables.get(name)
            yield Fault(
                subject=f"{path}.writable",
                severity=Severity.ERROR if name == "temporary" else None,
                message=f"{_PLACES[name]}{_shown(env, path)} is not writable for this user.",
                hint=f"export {variable}=FOLDER" if variable else "start in a folder of your own",
                evidence=(f"{path}.filesystem",),
                explains=("preflight.caches.*.writable",) if variable else (),
            )


@check("EL623", Severity.WARNING, in_rebuild=False)
def cache_badly_placed(env: Env) -> Iterator[Fault]:
    """A cache of compiled kernels lies on a network file system, or where there is no room.

    Thousands of small files are read at each start and locked while they are made: on a network
    disk starts are slow, and ranks of several nodes wait for each other or end with "Stale file
    handle". Where less than 1 GiB is free, kernels are compiled anew at each start, or compiling
    fails.

    To do: name a folder on a local disk, for example below /tmp.
    """
    for path in _known(env, "caches", "filesystem"):
        name, variable = _cache_name(env, path)
        kind, free = env.peek(f"{path}.filesystem"), env.peek(f"{path}.free_bytes")
        remote = kind is not None and _NETWORK.fullmatch(kind) is not None
        if remote:
            fault = f"is on a network file system ({kind}): starts are slow, and ranks wait"
        elif free is not None and free < _GIB:
            fault = f"has {free / _GIB:.1f} GiB left: compiled kernels cannot be kept"
        else:
            continue
        yield Fault(
            subject=f"{path}.filesystem" if remote else f"{path}.free_bytes",
            message=f"{name} {fault}.",
            hint=f"export {variable}=FOLDER on a local disk",
            evidence=(f"{path}.path", f"{path}.total_bytes"),
        )


@check("EL624", Severity.WARNING, in_rebuild=False)
def cache_not_writable(env: Env) -> Iterator[Fault]:
    """A cache of compiled kernels cannot be written to by this user.

    torch.compile and Triton stop with "Permission denied" or "Read-only file system" at the first
    kernel; the CUDA driver says nothing and compiles PTX again at each start. Usual in containers
    that run under a user id without a home folder.

    To do: name a folder that this user may write to.
    """
    for path in _known(env, "caches", "writable"):
        name, variable = _cache_name(env, path)
        if env.peek(f"{path}.writable") is False:
            yield Fault(
                subject=f"{path}.writable",
                message=f"{name} is not writable for this user.",
                hint=f"export {variable}=FOLDER",
                evidence=(f"{path}.path", f"{path}.filesystem"),
            )


@check("EL625", Severity.INFO, in_rebuild=False)
def cache_full(env: Env) -> Iterator[Fault]:
    """A cache of compiled kernels is huge, or at its limit.

    Nothing removes old entries of torch.compile's and Triton's caches (named from 20 GiB on). The
    CUDA driver drops the oldest entries at CUDA_CACHE_MAXSIZE, 1 GiB unless set: from 90% of it on
    kernels that were compiled once may be compiled again, which is a warning.

    To do: delete the folder, or raise CUDA_CACHE_MAXSIZE (at most 4294967296).
    """
    open_ends: list[str] = []
    for path in _known(env, "caches", "counted_all"):
        name, variable = _cache_name(env, path)
        used, limit = env.peek(f"{path}.used_bytes"), env.peek(f"{path}.limit_bytes")
        if used is None:
            continue
        if limit is not None and used >= 0.9 * limit:
            yield Fault(
                subject=f"{path}.used_bytes",
                severity=Severity.WARNING,
                message=f"The CUDA driver's cache holds {used / _GIB:.1f} of {limit / _GIB:.1f} GiB "
                "that it may: kernels compiled from PTX are compiled again.",
                hint=f"export CUDA_CACHE_MAXSIZE={4 * _GIB}",
                evidence=(f"{path}.limit_bytes", "env.CUDA_CACHE_MAXSIZE"),
            )
        elif used >= _HUGE:
            yield Fault(
                subject=f"{path}.used_bytes",
                message=f"{name} holds {used / _GIB:.0f} GiB, and nothing removes old entries.",
                hint=f"delete the folder; it is filled again. {variable} names it",
                evidence=(f"{path}.path",),
            )
        elif env.peek(f"{path}.counted_all") is False:
            open_ends.append(path)
    if open_ends:
        raise UndecidedError(f"{open_ends[0]}.used_bytes", "too large to be counted in 2 seconds")
