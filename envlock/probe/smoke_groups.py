"""The groups of probes, each run in a process of its own."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import smoke_allocator
import smoke_compile
import smoke_cuda
import smoke_host
import smoke_kernels
import smoke_lines
import smoke_memory
import smoke_numerics
import smoke_nvml
import smoke_shm
import smoke_snapshot
import smoke_trace
import smoke_workloads

Options = Dict[str, Any]

THREADS = 1


def battery_digest() -> str:
    return smoke_workloads.battery_digest(
        smoke_numerics.NUMERIC_STEPS,
        smoke_memory.MEMORY_STEPS,
        smoke_memory.LEAK_WARM_UP,
        smoke_memory.LEAK_STEPS,
    )


def run_env(torch: Any, emit: smoke_lines.Emit, options: Options) -> None:
    """First what the user's own settings give; only then are they pinned."""
    resident = smoke_shm.resident_bytes()
    emit.step("env/values", lambda: smoke_host.environment(torch))
    emit.step("limits", lambda: smoke_shm.limits(resident))
    workloads = _workloads(torch, options)
    emit.step("precision/values", lambda: smoke_kernels.precision(torch, workloads))
    smoke_host.pin(torch, THREADS)
    emit.step(
        "precision/control",
        lambda: smoke_kernels.precision(torch, workloads, round_operands=True),
    )
    for dtype in ("float16", "bfloat16"):
        kind = getattr(torch, dtype)
        emit.step(
            "fp16_range/values/" + dtype,
            lambda kind=kind: smoke_kernels.half_range(torch, workloads, kind),
        )
    _random(torch, emit, options["device"])


def _random(torch: Any, emit: smoke_lines.Emit, device: str) -> None:
    changed = 0
    for name, make in smoke_kernels.random_draws(torch, device).items():
        emit.step("rng/values/" + name, lambda make=make: smoke_kernels.draw(torch, make, seed=1))
        try:
            one, other = (smoke_kernels.draw(torch, make, seed=seed) for seed in (1, 2))
            changed += one != other
        except Exception:
            continue  # the step above has the reason
    emit.step("rng", lambda: {"control_changed": changed})


def run_numerics(torch: Any, emit: smoke_lines.Emit, options: Options) -> None:
    workloads = _pinned(torch, options)

    def measure(name: str) -> Any:
        return smoke_numerics.numerics(workloads, name)

    _each(emit, workloads, "numerics/values/", smoke_workloads.NUMERIC_WORKLOADS, measure)
    emit.step(
        "numerics/control/lr_x2",
        lambda: smoke_numerics.numerics(workloads, "lm_fp32", steps=2, lr=2e-3),
    )


def run_memory(torch: Any, emit: smoke_lines.Emit, options: Options) -> None:
    workloads = _pinned(torch, options)
    names = smoke_workloads.MEMORY_WORKLOADS

    def tensors(name: str) -> Any:
        workloads.build(name).step()  # first use allocates what later uses find in place
        return smoke_memory.tensor_peak(torch, workloads, name)

    def allocator(name: str) -> Any:
        return smoke_allocator.allocator_peak(torch, workloads, name)

    _each(emit, workloads, "tensor_peak/values/", names, tensors)
    for name in smoke_allocator.OPTIMIZERS:
        emit.step(
            "optimizer/values/" + name,
            lambda name=name: smoke_allocator.optimizer_peak(torch, workloads, name),
        )
    if workloads.device == "cpu":
        _each(emit, workloads, "alloc_peak/values/", names, allocator)
    else:
        emit.skip("alloc_peak", "only the CPU allocator reports its events to the profiler")
    if workloads.has_sdpa():
        smoke_host.plain_attention_only(torch)
        name = "sdpa_causal"
        emit.step("tensor_peak/control/sdpa_math", lambda: tensors(name)["peak"])
        if workloads.device == "cpu":
            emit.step("alloc_peak/control/sdpa_math", lambda: allocator(name)["peak"])


def run_leak(torch: Any, emit: smoke_lines.Emit, options: Options) -> None:
    workloads = _pinned(torch, options)
    loop = workloads.build("lm_fp32")
    kept: List[Any] = []
    emit.step("leak/values", lambda: smoke_memory.leak_slopes(torch, loop))
    emit.step("leak/control", lambda: smoke_memory.leak_slopes(torch, loop, kept.append))
    _, reason = smoke_memory.malloc_counter()
    if reason:
        emit.skip("leak/values/malloc", reason)


def run_shm(torch: Any, emit: smoke_lines.Emit, _: Options) -> None:
    torch.set_num_threads(THREADS)
    emit.step("shm", smoke_shm.blocks)
    emit.step("shm", lambda: smoke_shm.load_batches(torch))


def run_trace(torch: Any, emit: smoke_lines.Emit, _: Options) -> None:
    emit.step("sim/values", lambda: smoke_trace.record_trace(torch))


def run_compile(torch: Any, emit: smoke_lines.Emit, options: Options) -> None:
    _pinned(torch, options)
    emit.step("compile/values", lambda: smoke_compile.compile_counts(torch))


def run_cuda(torch: Any, emit: smoke_lines.Emit, options: Options) -> None:
    """In this order: the first figures are of a GPU that this process has not touched yet."""
    _need_device(torch, options)
    emit.step("neighbours/values", smoke_nvml.neighbours)
    emit.step("outside/values", lambda: smoke_cuda.outside_allocator(torch))
    workloads = _pinned(torch, options)
    for name in smoke_workloads.MEMORY_WORKLOADS:
        emit.step(
            "cuda_allocator/values/" + name,
            lambda name=name: smoke_cuda.allocator_figures(torch, workloads, name),
        )
    emit.step("workspaces/values", lambda: smoke_cuda.workspaces(torch))
    emit.step("pinned/values", lambda: smoke_cuda.pinned(torch))
    emit.step("headroom/values", lambda: smoke_cuda.headroom(torch, workloads))


def run_snapshot(torch: Any, emit: smoke_lines.Emit, options: Options) -> None:
    _need_device(torch, options)
    smoke_host.pin(torch, THREADS)
    emit.step("snapshot/values", lambda: smoke_snapshot.record_snapshot(torch))


def _pinned(torch: Any, options: Options) -> Any:
    smoke_host.pin(torch, THREADS)
    return _workloads(torch, options)


def _workloads(torch: Any, options: Options) -> Any:
    _need_device(torch, options)
    return smoke_workloads.Workloads(torch, options["device"])


def _need_device(torch: Any, options: Options) -> None:
    if options["device"] == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA device here")


def _each(
    emit: smoke_lines.Emit,
    workloads: Any,
    place: str,
    names: Sequence[str],
    measure: Callable[[str], Any],
) -> None:
    for name in names:
        reason = workloads.unavailable(name)
        if reason:
            emit.skip(place + name, reason)
        else:
            emit.step(place + name, lambda name=name: measure(name))


class Group(NamedTuple):
    run: Callable[[Any, smoke_lines.Emit, Options], None]
    limit_s: int
    """Some twenty times what it takes on an idle machine."""
    probes: Tuple[str, ...]
    """What is unavailable when the group gives nothing."""
    alone: bool = False
    """Whether another group at the same time would show in its figures."""


GROUPS: Dict[str, Group] = {
    "env": Group(run_env, 120, ("env", "limits", "precision", "fp16_range", "rng")),
    "numerics": Group(run_numerics, 180, ("numerics",)),
    "memory": Group(run_memory, 240, ("tensor_peak", "alloc_peak", "optimizer")),
    "leak": Group(run_leak, 120, ("leak",)),
    "shm": Group(run_shm, 120, ("shm",), alone=True),
    "trace": Group(run_trace, 180, ("sim",)),
    "compile": Group(run_compile, 180, ("compile",)),
    "snapshot": Group(run_snapshot, 180, ("snapshot",)),
    "cuda": Group(
        run_cuda,
        300,
        ("neighbours", "outside", "cuda_allocator", "workspaces", "pinned", "headroom"),
    ),
}
