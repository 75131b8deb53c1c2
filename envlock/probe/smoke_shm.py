"""Shared memory as data loader workers use it, and the limits of this control group.

A worker that ran out of /dev/shm and one that the memory limit killed say the same on some
releases ("worker exited unexpectedly"). The control group's count of kills tells them apart.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any, Dict, Optional

import observe_common
import observe_machine
import smoke_host
import smoke_lines

MIB = 1 << 20
LADDER = (16 * MIB, 48 * MIB, 96 * MIB)
BATCHES, BATCH_ITEMS, ITEM_ELEMENTS, WORKERS = 8, 4, 3 * MIB // 4, 2
"""Eight batches of 12 MiB by two workers: what an image pipeline has in flight."""
LOADER_TIMEOUT_S = 30


def oom_kills() -> Optional[int]:
    """Processes that this control group's memory limit has killed so far."""
    for folder in observe_machine.cgroup_folders("/sys/fs/cgroup", "memory"):
        for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
            text = observe_common.read_text(os.path.join(folder, name), 1024) or ""
            found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
            if found:
                return int(found.group(1))
    return None


def blocks() -> Dict[str, Any]:
    """What can be reserved. ``posix_fallocate`` fails cleanly where writing would end in SIGBUS."""
    stat = os.statvfs(smoke_host.SHM)
    found = {"free": stat.f_bavail * stat.f_frsize, "largest_block": 0}
    for size in LADDER:
        if not _reserve(size):
            break
        found["largest_block"] = size
    total = stat.f_blocks * stat.f_frsize
    if total and not _reserve(total + MIB):  # the control: at once, without touching a page
        found["refused_block"] = total + MIB
    return found


def _reserve(size: int) -> bool:
    with tempfile.TemporaryFile(dir=smoke_host.SHM) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            return False
    return True


def load_batches(
    torch: Any, *, item_elements: int = ITEM_ELEMENTS, batches: int = BATCHES
) -> Dict[str, Any]:
    """Let two workers pass batches through /dev/shm; a failure is data."""

    class Items(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return BATCH_ITEMS * batches

        def __getitem__(self, index: int) -> Any:
            return torch.full((item_elements,), float(index))

    before = oom_kills()
    found = {
        "batches": 0,
        "batches_wanted": batches,
        "batch_bytes": 4 * item_elements * BATCH_ITEMS,
    }
    loader = torch.utils.data.DataLoader(
        Items(),
        batch_size=BATCH_ITEMS,
        num_workers=WORKERS,
        timeout=LOADER_TIMEOUT_S,
        multiprocessing_context="fork",  # the classes of this program cannot be imported by name
    )
    try:
        for _ in loader:
            found["batches"] += 1
    except RuntimeError as error:
        # A worker's error is quoted with its traceback; its last line says what happened.
        found["failure"] = smoke_lines.scrub((str(error).strip() or "no text").splitlines()[-1])
    after = oom_kills()
    if before is not None and after is not None:
        found["oom_kills"] = after - before
    return found


def limits(resident: Any) -> Dict[str, Any]:
    """What this process may use, next to what the machine seems to have.

    Inside a container physical memory and the number of CPUs are the machine's: both mislead.
    """
    found: Dict[str, Any] = {
        "memory_limit": observe_machine.cgroup_memory(),
        "import_resident": resident,
        "cpu_quota": observe_machine.cgroup_cpus(),
        "cpus": os.cpu_count() or {"unknown": "the system does not say"},
    }
    try:
        found["physical_memory"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        found["physical_memory"] = {"unknown": "the system does not say"}
    return found


def resident_bytes() -> Any:
    """Of this process now, from the kernel."""
    fields = (observe_common.read_text("/proc/self/statm") or "").split()
    if len(fields) < 2:
        return {"unknown": "no /proc/self/statm"}
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
