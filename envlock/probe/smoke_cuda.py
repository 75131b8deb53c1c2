"""What only a GPU can tell: allocator figures, memory outside the allocator, headroom.

Not one of these figures can be had from a machine without a GPU; each step that this release or
card cannot do fails by itself and leaves its reason.
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Dict

import smoke_memory
import smoke_nvml

MIB = 1 << 20
BUDGET_BYTES = 2 << 30
"""What ``headroom`` pretends the card has, so that cards can be compared."""
LARGEST_BATCH = 4096


def clean(torch: Any) -> None:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def allocator_figures(torch: Any, workloads: Any, name: str) -> Dict[str, int]:
    """Of build and some steps: peaks, what was reserved for it, retries and failures."""
    clean(torch)
    before = torch.cuda.memory_stats()
    loop = workloads.build(name)
    for _ in range(smoke_memory.MEMORY_STEPS):
        loop.step()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    found = {
        short: after[key] - before[key.replace(".peak", ".current")]
        for short, key in (
            ("allocated", "allocated_bytes.all.peak"),
            ("reserved", "reserved_bytes.all.peak"),
            ("requested", "requested_bytes.all.peak"),
            ("inactive", "inactive_split_bytes.all.peak"),
        )
        if key in after
    }
    for key in ("num_alloc_retries", "num_ooms"):
        found[key] = after[key] - before[key]
    return {key: int(value) for key, value in found.items()}


def outside_allocator(torch: Any) -> Dict[str, int]:
    """Bytes of the GPU in use beyond what the allocator holds, after each first use.

    To be called before anything else touches the GPU: the first figure is the context.
    """
    at_start = smoke_nvml.used_bytes()
    image = torch.ones(8, 16, 64, 64, device="cuda")
    kernel = torch.ones(16, 16, 3, 3, device="cuda")
    query = torch.ones(2, 4, 128, 64, device="cuda", dtype=torch.float16)
    functional = torch.nn.functional
    uses: Dict[str, Callable[[], Any]] = {
        "context": lambda: None,
        "matmul": lambda: query @ query.transpose(-2, -1),
        "conv": lambda: functional.conv2d(image, kernel),
        "attention": lambda: functional.scaled_dot_product_attention(query, query, query),
        "nccl": lambda: _reduce_alone(torch),
    }
    found = {}
    for name, use in uses.items():
        try:
            use()
        except (AttributeError, RuntimeError, ValueError):
            continue  # this release lacks it, or was built without it
        torch.cuda.synchronize()
        found[name] = smoke_nvml.used_bytes() - at_start - torch.cuda.memory_reserved()
    return found


def _reduce_alone(torch: Any) -> None:
    """A group of one: what NCCL takes for being there."""
    distributed = torch.distributed
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    distributed.all_reduce(torch.ones(1024, device="cuda"))


def workspaces(torch: Any) -> Dict[str, int]:
    """What libraries take for themselves: cuBLAS's workspace, and scratch of convolutions."""
    clean(torch)
    one = torch.ones(512, 512, device="cuda")
    torch.matmul(one, one)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - there is no public way
    found = {"cublas": held - torch.cuda.memory_allocated()}
    images = torch.ones(8, 32, 64, 64, device="cuda")
    kernels = torch.ones(32, 32, 3, 3, device="cuda")
    volumes = torch.ones(1, 16, 16, 64, 64, device="cuda", dtype=torch.bfloat16)
    cubes = torch.ones(16, 16, 3, 3, 3, device="cuda", dtype=torch.bfloat16)
    functional, cudnn = torch.nn.functional, torch.backends.cudnn
    for name, flags in (
        ("cudnn", {"enabled": True, "benchmark": False}),
        ("cudnn_benchmark", {"enabled": True, "benchmark": True}),
        ("native", {"enabled": False}),
    ):
        with cudnn.flags(**flags):
            found["conv2d_" + name] = _scratch(torch, lambda: functional.conv2d(images, kernels))
            found["conv3d_" + name] = _scratch(torch, lambda: functional.conv3d(volumes, cubes))
    return found


def _scratch(torch: Any, run: Callable[[], Any]) -> int:
    """Peak of one call, less its result."""
    clean(torch)
    before = torch.cuda.memory_allocated()
    result = run()
    torch.cuda.synchronize()
    own = result.numel() * result.element_size()
    return int(torch.cuda.max_memory_allocated() - before - own)


def pinned(torch: Any) -> Dict[str, int]:
    """Page-locked host memory that a loader holds, by how far it reads ahead."""
    if not hasattr(torch.cuda, "host_memory_stats"):
        raise RuntimeError("this torch has no host_memory_stats")
    found = {}
    data = torch.utils.data.TensorDataset(torch.zeros(64, MIB // 4))
    for prefetch in (2, 8):
        torch.cuda.reset_peak_host_memory_stats()
        loader = torch.utils.data.DataLoader(
            data,
            batch_size=2,
            num_workers=1,
            pin_memory=True,
            prefetch_factor=prefetch,
            multiprocessing_context="fork",
        )
        for (batch,) in loader:
            batch.to("cuda", non_blocking=True)
        stats = torch.cuda.host_memory_stats()
        found["prefetch_%d" % prefetch] = int(stats["allocated_bytes.peak"])
    return found


def headroom(torch: Any, workloads: Any) -> Dict[str, int]:
    """The largest batch of the language model that fits into a fixed number of bytes."""
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(BUDGET_BYTES / total)
    try:
        fits, fails = 0, 8
        while fails <= LARGEST_BATCH and _fits(torch, workloads, fails):
            fits, fails = fails, 2 * fails
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if _fits(torch, workloads, middle):
                fits = middle
            else:
                fails = middle
        return {"batch": fits, "budget": BUDGET_BYTES}
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def _fits(torch: Any, workloads: Any, batch: int) -> bool:
    clean(torch)
    try:
        loop = workloads.build("lm_fp32", batch=batch)
        loop.step()
        loop.step()
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        return False
    return True
