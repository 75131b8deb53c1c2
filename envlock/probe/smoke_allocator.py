"""What the allocator hands out, from its own events, over the whole life of a training loop.

The profiler is opened before the model exists and closed after everything was dropped. Opened in
the middle of a life it would meet releases of blocks it never saw, and blocks of an earlier session
at the same address: the figures then change from run to run.
"""

from __future__ import annotations

import gc
import hashlib
from collections import Counter
from typing import Any, Dict, List, Tuple

import smoke_memory

LARGEST_BLOCKS = 8
OPTIMIZER_PARAMETERS, OPTIMIZER_ELEMENTS = 16, 65_536
"""Sixteen parameters of 256 KiB."""


def allocator_peak(torch: Any, workloads: Any, name: str, **changes: Any) -> Dict[str, Any]:
    """Peak over build and some steps, what is left in the end, and the blocks of the last step."""
    with _profiler(torch) as profile:
        with torch.profiler.record_function("build"):
            loop = workloads.build(name, **changes)
        for _ in range(smoke_memory.MEMORY_STEPS):
            with torch.profiler.record_function("step"):
                loop.step()
        with torch.profiler.record_function("drop"):
            del loop
            gc.collect()
    phases = _allocations(profile)
    everything = [event for _, events in phases for event in events]
    if not everything:
        raise RuntimeError("the profiler of this torch reports no allocations")
    first_size, first_total = everything[0]
    before = first_total - first_size
    last_step = [size for size, _ in phases[-2][1] if size > 0]
    return {
        "peak": max(total for _, total in everything) - before,
        "left": sum(size for size, _ in everything),
        "step": describe_blocks(last_step),
    }


def _profiler(torch: Any) -> Any:
    activities = [torch.profiler.ProfilerActivity.CPU]
    return torch.profiler.profile(activities=activities, profile_memory=True)


def _allocations(profile: Any) -> List[Tuple[str, List[Tuple[int, int]]]]:
    """Phase -> (size, bytes in use after it), in order of time; a release has a negative size."""
    roots = profile.profiler.kineto_results.experimental_event_tree()
    phases = []
    for root in sorted(roots, key=_start):
        events: List[Any] = []
        waiting = [root]
        while waiting:
            event = waiting.pop()
            waiting.extend(event.children)
            if type(event.extra_fields).__name__ == "_ExtraFields_Allocation":
                events.append(event)
        events.sort(key=_start)
        fields = [event.extra_fields for event in events]
        phases.append((root.name, [(f.alloc_size, f.total_allocated) for f in fields]))
    return phases


def _start(event: Any) -> int:
    return int(event.start_time_ns)


def describe_blocks(sizes: List[int]) -> Dict[str, Any]:
    """How many, how much, which: the digest is over the sorted sizes, so order does not count."""
    counted = Counter(sizes)
    lines = ["%d x%d" % item for item in sorted(counted.items())]
    return {
        "count": len(sizes),
        "total": sum(sizes),
        "multiset": "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        "largest": [
            {"size": size, "count": counted[size]}
            for size in sorted(counted, reverse=True)[:LARGEST_BLOCKS]
        ],
    }


OPTIMIZERS = {
    "adamw_loop": {"foreach": False},
    "adamw_foreach": {"foreach": True},
    "adamw_fused": {"fused": True},
}


def optimizer_peak(torch: Any, workloads: Any, name: str) -> int:
    """Tensor peak of two AdamW steps in one of its implementations.

    Raises where this release or device lacks the implementation.
    """
    with smoke_memory.make_lifetimes(torch) as lifetimes:
        lifetimes.ignore(workloads.numbers.pool)
        workloads.numbers.restart()
        parameters = [
            torch.nn.Parameter(workloads.numbers.floats(OPTIMIZER_ELEMENTS))
            for _ in range(OPTIMIZER_PARAMETERS)
        ]
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, **OPTIMIZERS[name])
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, 0.5)
            optimizer.step()
    return int(lifetimes.peak)
