"""What the caching allocator of a real GPU did, as a small recording: sizes and places only.

The host replays it in its model of the allocator, which is a check of model and card in one.
"""

from __future__ import annotations

import bisect
from typing import Any, Dict, List

import smoke_workloads

STEPS, MOST_EVENTS = 4, 100_000
WORKLOADS = ("lm_fp32", "conv", "lm_checkpoint", "embedding")


def record_snapshot(torch: Any) -> Dict[str, Any]:
    """To be called before anything is on the GPU, so that the recording begins with nothing."""
    history = torch.cuda.memory._record_memory_history  # noqa: SLF001 - no public name
    history(max_entries=MOST_EVENTS)
    workloads = smoke_workloads.Workloads(torch, "cuda")
    for name in WORKLOADS:
        loop = workloads.build(name)
        for _ in range(STEPS):
            loop.step()
        del loop
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]  # noqa: SLF001 - no public name
    history(enabled=None)
    return as_recording(trace, int(torch.cuda.memory_stats()["reserved_bytes.all.peak"]))


def as_recording(trace: List[Dict[str, Any]], peak_reserved: int) -> Dict[str, Any]:
    """``alloc-trace/1`` from the events of one device: addresses become offsets in segments."""
    events: List[List[Any]] = []
    segments: Dict[int, int] = {}  # base -> number
    blocks: Dict[int, int] = {}  # address -> number
    bases = sorted(event["addr"] for event in trace if event["action"] == "segment_alloc")
    lowest = bases[0] if bases else 0
    reserved = 0
    for made, event in enumerate(trace):
        action, address, size = event["action"], event["addr"], event["size"]
        if action == "segment_alloc":
            segments[address] = made
            reserved += size
            events.append(["S", made, address - lowest, size])
        elif action == "segment_free":
            reserved -= size
            events.append(["R", segments.pop(address), size])
        elif action == "alloc":
            inside = sorted(segments)
            base = inside[bisect.bisect_right(inside, address) - 1]
            blocks[address] = made
            events.append(["a", made, size, segments[base], address - base])
        elif action == "free_completed" and address in blocks:
            events.append(["f", blocks.pop(address)])
    return {
        "schema": "alloc-trace/1",
        "initial": [],
        "events": events,
        "peak_reserved": peak_reserved,
        "final_reserved": reserved,
    }
