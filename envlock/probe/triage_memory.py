"""Where memory goes on a live machine, without disturbing the job: reads /proc and NVML only.

``TOKEN PID SECONDS``: PID 0 is no job. A job is watched for SECONDS, and nothing is sent to it: no
signal, no debugger. GPU memory of its own cache only the job itself could tell.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List

import observe_common
import observe_frame
import observe_machine
import observe_preflight
import triage_nvml

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown
guarded = observe_common.guarded

SHM = "/dev/shm"  # noqa: S108 - looked at, never written
SAMPLES = 5
VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_MODULE_LOADING",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)
STATUS = ("RssAnon", "RssShmem", "VmLck", "VmPin", "VmRSS", "VmSwap")
MOST_FILES = 100_000


def work(arguments: List[str]) -> Dict[str, Any]:
    pid, seconds = int(arguments[0]), float(arguments[1])
    if pid and not os.path.isdir("/proc/%d" % pid):
        raise observe_frame.KnownError(
            "no-process", "there is no process %d" % pid, "take the number from nvidia-smi or ps"
        )
    groups = observe_common.read_text("/proc/%d/cgroup" % pid, 1 << 14) if pid else None
    return {
        "pid": pid,
        "gpus": gpus(),
        "process": guarded(process, pid) if pid else ABSENT,
        "variables": guarded(variables, pid) if pid else ABSENT,
        "shm": guarded(shm),
        "limit": {
            "bytes": guarded(observe_machine.cgroup_memory, "/sys/fs/cgroup", groups),
            "used": guarded(cgroup_used, groups),
        },
        "caches": observe_preflight.compile_caches(),
        "growth": guarded(watch, pid, seconds) if pid else ABSENT,
    }


def gpus() -> Any:
    child = observe_common.start_function(triage_nvml.ask)
    return observe_common.function_result(child)


def process(pid: int) -> Dict[str, int]:
    """Bytes by the names that the kernel has for them."""
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as file:
        found = re.findall(r"^(\w+):\s+(\d+) kB$", file.read(1 << 16), re.MULTILINE)
    return {name: int(number) << 10 for name, number in found if name in STATUS}


def variables(pid: int) -> Dict[str, Any]:
    """Of the job, and only these: a process's environment may hold secrets."""
    with open("/proc/%d/environ" % pid, "rb") as file:
        pairs = [entry.partition(b"=")[::2] for entry in file.read(1 << 20).split(b"\0")]
    given = {name.decode("ascii", "replace"): value for name, value in pairs}
    return {
        name: observe_common.show_text(given[name].decode("utf-8", "replace"))
        for name in VARIABLES
        if name in given
    }


def shm() -> Any:
    if not os.path.isdir(SHM):
        return ABSENT
    info = os.statvfs(SHM)
    left, files = 0, 0
    with os.scandir(SHM) as entries:
        for number, entry in enumerate(entries):
            if number > MOST_FILES:
                break
            # torch/csrc/.../MapAllocator: torch_<pid of the maker>_<random>_<count>
            made = re.match(r"torch_(\d+)_\d+", entry.name)
            if made and not os.path.isdir("/proc/%s" % made.group(1)):
                left += entry.stat(follow_symlinks=False).st_blocks * 512
                files += 1
    return {
        "size": info.f_blocks * info.f_frsize,
        "free": info.f_bavail * info.f_frsize,
        "left_bytes": left,
        "left_files": files,
    }


def cgroup_used(groups: Any) -> Any:
    for folder in observe_machine.cgroup_folders("/sys/fs/cgroup", "memory", groups):
        current = number(folder, ("memory.current", "memory.usage_in_bytes"))
        if current is None:
            continue
        text = observe_common.read_text(os.path.join(folder, "memory.stat"), 1 << 16) or ""
        # what the kernel would drop before it kills anything does not count
        files = re.search(r"^(?:total_)?inactive_file (\d+)$", text, re.MULTILINE)
        return max(0, current - int(files.group(1))) if files else current
    return unknown("the control group's use of memory cannot be read")


def number(folder: str, names: Any) -> Any:
    for name in names:
        text = (observe_common.read_text(os.path.join(folder, name), 64) or "").strip()
        if text.isdigit():
            return int(text)
    return None


def watch(pid: int, seconds: float) -> Any:
    """Memory of the job, a few times: its own pages, and what it has on all GPUs."""
    samples = []
    for turn in range(SAMPLES):
        if turn:
            time.sleep(seconds / (SAMPLES - 1))
        cards = gpus()
        held = None
        if isinstance(cards, list):
            of_job = [used for card in cards for one, used in card["processes"] if one == pid]
            held = None if None in of_job else sum(of_job)
        samples.append([process(pid).get("RssAnon"), held])
    return samples


if __name__ == "__main__":
    observe_frame.answer("triage_memory", work)
