"""Where memory went on a live machine, in the order in which causes are usually found.

Reads the answer of the probe ``triage_memory``. Every step ends as passed, failed or not checkable,
with a reason; a fault is also a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from envlock.findings import Finding, Severity
from envlock.rules.base import Rule, page
from envlock.rules.recorded_memory import size

GIB: Final = 1 << 30
MIB: Final = 1 << 20
_DRIVER: Final = GIB
"""What a driver, error correction and a display may hold for themselves."""
_LEAST_SHM: Final = 64 * MIB
_LEAST_SHARE: Final = 20
"""Shared memory with less than a twentieth free is nearly full."""
_CACHE_IN_MEMORY: Final = 256 * MIB
_GROWTH: Final = MIB
"""Less than this in a few seconds is what any interpreter does."""

NEIGHBOURS = page(
    "EL850",
    Severity.WARNING,
    """
    Other processes hold memory on the GPU.

    An allocation fails when the card is full, whoever filled it: a notebook that was left open, a
    colleague's job, a display. It is the first thing to look at, before any version.

    To do: `nvidia-smi` names them; end what is yours, or take another card with
    CUDA_VISIBLE_DEVICES.
    """,
)
UNEXPLAINED = page(
    "EL851",
    Severity.WARNING,
    """
    The GPU is in use by nobody who can be seen from here.

    The driver counts more than the processes that it names hold. They run in another container or
    under another user, or a process died and its memory was not given back.

    To do: `nvidia-smi` on the host; if nobody is there, reset the GPU or reboot.
    """,
)
NO_CACHING = page(
    "EL852",
    Severity.WARNING,
    """
    The job runs without torch's caching allocator.

    PYTORCH_NO_CUDA_MEMORY_CACHING asks the driver for every tensor: slow, rounded up to 2 MiB each,
    and figures of torch.cuda.memory_* say nothing. It is for debugging with compute-sanitizer.

    To do: start the job without the variable.
    """,
)
SHM_FULL = page(
    "EL853",
    Severity.WARNING,
    """
    /dev/shm is nearly full, or holds what dead processes left.

    Data loader workers pass batches through it. A killed job leaves its files (torch_PID_...) there
    until somebody removes them, and they count as used memory. In a container that shares /dev/shm
    but not the process numbers, the maker may live and just not be seen.

    To do: remove the files of processes that are gone; give a container more with --shm-size.
    """,
)
NEAR_LIMIT = page(
    "EL854",
    Severity.WARNING,
    """
    Main memory is close to the limit of the control group.

    At the limit the kernel kills a process without a message: a data loader worker, or the job.
    Pinned memory counts too, and cannot be swapped out.

    To do: raise the limit; fewer workers, a smaller prefetch_factor, no pin_memory.
    """,
)
CACHE_IN_MEMORY = page(
    "EL855",
    Severity.WARNING,
    """
    A cache of compiled kernels lies in main memory.

    On a tmpfs every file is memory: the cache grows with each new shape that is compiled, and
    counts against the limit of the container.

    To do: name a folder on a disk with TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR or
    CUDA_CACHE_PATH.
    """,
)
GROWS = page(
    "EL856",
    Severity.INFO,
    """
    The job's memory grew all the time that it was watched.

    A hint, and no proof: a job that is starting grows as well. A loop that keeps its losses without
    detaching them keeps the graph of each step, and grows for ever.

    To do: watch it again in a minute with the same command. If it still grows, look for losses and
    outputs that are stored or summed without .item() or .detach(), and evaluation without no_grad.
    """,
)
PAGES = (NEIGHBOURS, UNEXPLAINED, NO_CACHING, SHM_FULL, NEAR_LIMIT, CACHE_IN_MEMORY, GROWS)


@dataclass(slots=True)
class Step:
    """One question, and what became of it."""

    title: str
    findings: list[Finding] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """What was looked at and is in order."""
    missing: list[str] = field(default_factory=list)
    """What could not be looked at, and why."""

    @property
    def status(self) -> str:
        if self.findings:
            return "failed"
        return "not checkable" if self.missing else "passed"

    def fail(self, rule: Rule, subject: str, message: str, hint: str) -> None:
        self.findings.append(
            Finding(
                code=rule.code,
                severity=rule.severity,
                subject=f"memory.{subject}",
                message=message,
                hint=hint,
            )
        )

    def miss(self, what: str, fact: object) -> None:
        why = fact.get("unknown") if isinstance(fact, Mapping) else None
        self.missing.append(f"{what}: {why}" if why else what)

    def lines(self) -> Iterator[str]:
        yield from (finding.message for finding in self.findings)
        yield from self.seen
        yield from (f"not checkable: {text}" for text in self.missing)


def triage(answer: Mapping[str, Any]) -> tuple[Step, ...]:
    """All steps in order. Raises KeyError, TypeError or ValueError for an answer of another form."""
    steps: tuple[tuple[str, Callable[[Step, Mapping[str, Any]], None]], ...] = (
        ("other processes on the GPU", _neighbours),
        ("the job on the GPU, and what lies outside the allocator", _outside),
        ("pinned memory and /dev/shm", _host),
        ("caches of compiled kernels", _caches),
        ("growth, as from losses that keep their graph", _growth),
    )
    found = []
    for title, look in steps:
        step = Step(title)
        look(step, answer)
        found.append(step)
    return tuple(found)


def _neighbours(step: Step, answer: Mapping[str, Any]) -> None:
    gpus, pid = answer["gpus"], answer["pid"]
    if not isinstance(gpus, list):
        step.miss("GPUs", gpus)
        return
    mine = [gpu for gpu in gpus if any(one == pid for one, _ in gpu["processes"])]
    for gpu in mine or gpus:
        name = f"cuda:{gpu['index']}"
        others = [(one, used) for one, used in gpu["processes"] if one != pid]
        known = [used for _, used in gpu["processes"] if used is not None]
        if others:
            held = [used for _, used in others if used is not None]
            step.fail(
                NEIGHBOURS,
                name,
                f"{name}: {_count(others)} hold {size(sum(held))}"
                + ("" if len(held) == len(others) else " and more that the driver does not say")
                + f" (process {', '.join(str(one) for one, _ in others[:8])}); "
                f"{size(gpu['total'] - gpu['used'])} of {size(gpu['total'])} are free.",
                "end what is yours, or take another card with CUDA_VISIBLE_DEVICES",
            )
        hidden = gpu["used"] - sum(known)
        if len(known) < len(gpu["processes"]):
            step.missing.append(f"{name}: the driver does not say how much each process holds")
        elif hidden > _DRIVER:
            step.fail(
                UNEXPLAINED,
                name,
                f"{name}: {size(hidden)} are in use by no process that can be seen from here.",
                "look with nvidia-smi on the host",
            )
        elif not others:
            step.seen.append(f"{name}: nobody else; {size(gpu['used'])} in use in all")
    if not gpus:
        step.seen.append("the driver has no GPU")


def _count(others: Sequence[object]) -> str:
    return "1 other process" if len(others) == 1 else f"{len(others)} other processes"


def _outside(step: Step, answer: Mapping[str, Any]) -> None:
    gpus, pid = answer["gpus"], answer["pid"]
    if not pid:
        step.missing.append("no job was named (--pid)")
        return
    given = answer["variables"]
    if "unknown" in given:
        step.miss("the job's variables", given)
    elif given.get("PYTORCH_NO_CUDA_MEMORY_CACHING") not in (None, "0", ""):
        step.fail(
            NO_CACHING,
            "variables",
            "The job was started with PYTORCH_NO_CUDA_MEMORY_CACHING.",
            "unset PYTORCH_NO_CUDA_MEMORY_CACHING",
        )
    else:
        step.seen += [f"{name}={given[name]}" for name in sorted(given)]
    if not isinstance(gpus, list):
        step.miss("GPUs", gpus)
        return
    held = [(g["index"], used) for g in gpus for one, used in g["processes"] if one == pid]
    if not held:
        step.missing.append(f"the driver does not know process {pid} on any GPU it shows here")
    for index, used in held:
        amount = "an amount that the driver does not say" if used is None else size(used)
        step.missing.append(
            f"cuda:{index}: the job holds {amount}; what of it is torch's own only the job can "
            "tell: torch.cuda.memory_reserved(). The rest is context, libraries and NCCL"
        )


def _host(step: Step, answer: Mapping[str, Any]) -> None:
    shm, limit, job = answer["shm"], answer["limit"], answer["process"]
    if "size" not in shm:
        step.miss("shared memory", shm)
    else:
        _shm(step, shm)
    if "VmRSS" in job:
        step.seen.append(
            f"the job: {size(job['VmRSS'])} resident, {size(job.get('RssShmem', 0))} of it shared, "
            f"{size(job['VmLck'] + job.get('VmPin', 0))} locked or pinned as far as the kernel "
            "counts it (the driver's own pinning may be missing)"
        )
    elif "absent" not in job:  # unreadable, or a process that has ended and has no memory
        step.miss("the job's memory", job)
    most, used = limit["bytes"], limit["used"]
    if not isinstance(most, int):
        if "unknown" in most:
            step.miss("the memory limit", most)
    elif not isinstance(used, int):
        step.miss("the control group's use of memory", used)
    else:
        text = f"{size(used)} of the control group's {size(most)} are used"
        if used * 20 > most * 19:
            step.fail(
                NEAR_LIMIT, "limit", f"{text}.", "raise the limit, or use fewer loader workers"
            )
        else:
            step.seen.append(text)


def _shm(step: Step, shm: Mapping[str, int]) -> None:
    text = f"{size(shm['free'])} of {size(shm['size'])} of /dev/shm are free"
    few = shm["free"] < _LEAST_SHM or shm["free"] * _LEAST_SHARE < shm["size"]
    if few or shm["left_bytes"] >= MIB:
        left = (
            f"; {size(shm['left_bytes'])} in {shm['left_files']} files were left by processes that "
            "are not to be seen"
        )
        step.fail(
            SHM_FULL,
            "shm",
            text + (left if shm["left_files"] else "") + ".",
            "remove torch_* files of dead processes from /dev/shm, or make it larger (--shm-size)",
        )
    else:
        step.seen.append(text)


def _caches(step: Step, answer: Mapping[str, Any]) -> None:
    for name, cache in sorted(answer["caches"].items()):
        used, where = cache.get("used_bytes"), cache.get("filesystem")
        if not isinstance(used, int):
            if "unknown" in cache:
                step.miss(f"the cache of {name}", cache)
            continue
        more = "" if cache["counted_all"] else "at least "
        text = f"{name}: {more}{size(used)} in {cache['path']}"
        if not isinstance(where, str):
            step.miss(f"{text}, on which file system", where)
            continue
        text += f" ({where})"
        if where in ("tmpfs", "ramfs") and used >= _CACHE_IN_MEMORY:
            step.fail(
                CACHE_IN_MEMORY, name, f"{text} are main memory.", "name a folder on a disk for it"
            )
        else:
            step.seen.append(text)
    if not step.seen and not step.findings and not step.missing:
        step.seen.append("none is there")


def _growth(step: Step, answer: Mapping[str, Any]) -> None:
    samples = answer["growth"]
    if not answer["pid"]:
        step.missing.append("no job was named (--pid)")
        return
    if not isinstance(samples, list):
        step.miss("the job", samples)
        return
    texts = []
    for column, name in ((0, "main memory"), (1, "GPU memory")):
        values = [row[column] for row in samples]
        if None in values:
            step.missing.append(f"{name}: it could not be read each time")
            continue
        steady = all(one < other for one, other in pairwise(values))
        if steady and values[-1] - values[0] >= _GROWTH:
            texts.append(f"{name} by {size(values[-1] - values[0])}")
        else:
            step.seen.append(
                f"{name}: no steady growth while it was watched, which proves nothing for hours"
            )
    if texts:
        step.fail(
            GROWS,
            "growth",
            f"The job grew steadily while it was watched: {', '.join(texts)}. A hint, no proof.",
            "watch again; store losses with .item() or .detach(), evaluate under torch.no_grad()",
        )
