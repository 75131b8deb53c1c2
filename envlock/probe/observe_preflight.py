"""What a long run needs of its machine: room for checkpoints, and where compiled kernels are kept.

Asked by ``doctor`` alone: counting a cache takes longer than a whole capture. It writes nothing, so
whether a folder may be written to is what the system says of it. Paths are shown as kinds only.
"""

from __future__ import annotations

import os
import re
import shutil
import time

import observe_common
import observe_frame

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown
guarded = observe_common.guarded

COUNT_LIMIT_S = 2.0
"""A cache on a slow network disk has no end: what was counted by then is told as such."""
_MIB = 1 << 20
# CUDA C++ programming guide, "CUDA Environment Variables": 1 GiB by default, at most 4 GiB.
_CUDA_CACHE_DEFAULT, _CUDA_CACHE_MOST = 1024 * _MIB, 4096 * _MIB


def work(_: list[str]) -> dict[str, object]:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~") + "/.cache"
    return {
        "preflight": {
            "places": {
                "working": guarded(place, working_folder()),
                "temporary": guarded(place, temporary_folder()),
                "cache": guarded(place, cache),
            },
            "caches": compile_caches(),
        }
    }


# --- places -----------------------------------------------------------------------------------


def working_folder() -> str:
    """Where the person stands; the probe itself may have been started in an empty folder."""
    named = os.environ.get("PWD", "")
    return named if os.path.isabs(named) and os.path.isdir(named) else os.getcwd()


def temporary_folder() -> str:
    """As the module tempfile chooses, which would write a file to try each."""
    named = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    for folder in [*named, "/tmp", "/var/tmp", "/usr/tmp"]:  # noqa: S108 - looked at only
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return os.path.abspath(folder)
    return os.getcwd()


def place(path: str) -> dict[str, object]:
    there = _nearest(path)
    return {
        "path": observe_common.show_path(os.path.abspath(path)),
        "filesystem": guarded(filesystem, there),
        "free_bytes": guarded(lambda: shutil.disk_usage(there).free),
        "total_bytes": guarded(lambda: shutil.disk_usage(there).total),
        "free_files": guarded(_free_files, there),
        "writable": os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK),
    }


def _nearest(path: str) -> str:
    """The folder itself, or the one in which it would be made."""
    path = os.path.abspath(path)
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return os.path.realpath(path)


def _free_files(path: str) -> object:
    info = os.statvfs(path)
    return info.f_favail if info.f_files else ABSENT


def filesystem(path: str, mounts: str | None = None) -> object:
    """Type of the file system that holds a real path, from /proc/self/mountinfo."""
    if mounts is None:
        mounts = observe_common.read_text("/proc/self/mountinfo", 4 << 20)
    best, kind = "", unknown("/proc/self/mountinfo does not say")
    for line in (mounts or "").splitlines():
        mount, _, rest = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 6 or not rest:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two on one point, the later hides the other
            best, kind = point, rest.split(" ")[0][:64]
    return kind


# --- compile caches ---------------------------------------------------------------------------


def compile_caches() -> dict[str, object]:
    temporary, home = temporary_folder(), os.path.expanduser("~")
    return {
        "inductor": guarded(inductor_cache, temporary),
        "triton": guarded(triton_cache, home),
        "cuda": guarded(cuda_cache, home),
    }


def inductor_cache(temporary: str) -> dict[str, object]:
    """torch/_inductor/runtime/cache_dir_utils.py: a folder of the user in the temporary folder."""
    found = _cache("TORCHINDUCTOR_CACHE_DIR", os.path.join(temporary, "torchinductor_" + _user()))
    if found["named_by"] == ABSENT:  # the default's name holds the user's
        found["path"] = observe_common.show_path(temporary) + "/torchinductor_*"
    return found


def _user() -> str:
    """As getpass.getuser, with the characters replaced that torch replaces."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if os.environ.get(name):
            return re.sub(r'[\\/:*?"<>|]', "_", os.environ[name])
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return "unknown"


def triton_cache(home: str) -> dict[str, object]:
    base = os.environ.get("TRITON_HOME") or home
    return _cache("TRITON_CACHE_DIR", os.path.join(base, ".triton", "cache"))


def cuda_cache(home: str) -> dict[str, object]:
    """Machine code that the driver compiled from PTX."""
    if os.environ.get("CUDA_CACHE_DISABLE") == "1":
        return ABSENT
    found = _cache("CUDA_CACHE_PATH", os.path.join(home, ".nv", "ComputeCache"))
    wanted = os.environ.get("CUDA_CACHE_MAXSIZE", "")
    found["limit_bytes"] = (
        min(int(wanted), _CUDA_CACHE_MOST) if wanted.isdigit() else _CUDA_CACHE_DEFAULT
    )
    return found


def _cache(variable: str, default: str) -> dict[str, object]:
    named = os.environ.get(variable)
    path = named or default
    used, complete = folder_size(path)
    return dict(
        place(path),
        named_by=variable if named else ABSENT,
        used_bytes=used if os.path.isdir(path) else ABSENT,
        counted_all=complete,
    )


def folder_size(path: str, limit_s: float = COUNT_LIMIT_S) -> tuple[int, bool]:
    """(bytes of the files below, whether all of them were counted); links are not followed."""
    deadline = time.monotonic() + limit_s
    total, complete, folders = 0, True, [path]
    while folders:
        if time.monotonic() > deadline:
            return total, False
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            continue  # another process tidied up
        except OSError:
            complete = False
    return total, complete


if __name__ == "__main__":
    observe_frame.answer("observe_preflight", work)
