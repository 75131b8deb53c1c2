"""Rules on what the machine allows: shared memory, memory limits; and on blind probes."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.findings import Severity
from envlock.lock.behaviour import (
    AllocatorPeak,
    Fp16Range,
    Leak,
    Limits,
    Numerics,
    Precision,
    Probes,
    Rng,
    SharedMemory,
    TensorPeak,
    Unavailable,
)
from envlock.lock.observation import value_of
from envlock.rules.behaviour_base import Records, Verdict, rule, size
from envlock.rules.behaviour_kernels import precision_class

KILLED = "the memory limit of this control group killed"
"""In the reason that the probe gives for a group of which the kernel ended the process."""
_IMPORT_SHARE = 2
"""A limit under this many times what `import torch` takes leaves no room for a model."""


@rule("EL814", Severity.ERROR)
def shared_memory(r: Records) -> Iterator[Verdict]:
    """Data loader workers run out of shared memory.

    Workers hand batches over through /dev/shm. Docker gives a container 64 MB of it; then a worker
    dies with "unable to allocate shared memory", "Bus error" or only "worker exited unexpectedly",
    which on some releases is also what a kill by the memory limit looks like. The count of kills
    tells them apart: here nothing was killed. Little free space is a warning even if the probe's
    own batches (12 MB, two workers) still pass.

    To do: `docker run --shm-size 8g` or `--ipc=host`; in Kubernetes an emptyDir of medium Memory
    on /dev/shm. Changing the sharing strategy to file_system does not help: it uses /dev/shm too.
    """
    probe = r.here("shm", SharedMemory)
    if probe is None:
        return
    subject = r.subject("shm")
    if probe.failure and not probe.oom_kills:
        yield Verdict(
            subject=subject,
            severity=Severity.ERROR,
            message=f"Data loader workers cannot hand over batches of {size(probe.batch_bytes)}: "
            f"{probe.batches} of {probe.batches_wanted} arrived, /dev/shm has {size(probe.free)} "
            f"free. {probe.failure}",
            hint="give the container more shared memory: docker run --shm-size 8g (or --ipc=host)",
            right=probe.free,
        )
        return
    enough = r.limits["shm_free"]
    column = enough.same if r.same else enough.other
    small = probe.free < column["warn"]
    yield Verdict(
        subject=subject,
        severity=Severity.WARNING if small else None,
        message=f"Only {size(probe.free)} of /dev/shm are free: data loader workers with larger "
        "batches will die there.",
        hint="give the container more shared memory: docker run --shm-size 8g (or --ipc=host)",
        right=probe.free,
        sources=(enough.source,),
    )


@rule("EL815", Severity.ERROR)
def killed_for_memory(r: Records) -> Iterator[Verdict]:
    """The memory limit of the control group killed a process of the smoke test.

    A worker that is killed says "worker exited unexpectedly", and the main process says nothing at
    all and loses its output. The count of kills in the control group is the only trace.

    To do: raise the limit (`docker run --memory`, the pod's limit), use fewer workers or smaller
    batches. The machine's physical memory says nothing here: the limit counts.
    """
    for name in Probes.defaults:
        probe = getattr(r.measured.probes, name)
        if isinstance(probe, Unavailable) and KILLED in probe.reason:
            yield Verdict(
                subject=r.subject(name, "killed"),
                severity=Severity.ERROR,
                message=f"The memory limit killed the process that measures {name}: "
                "there is not enough for a small model.",
                hint="raise the memory limit: docker run --memory",
                right=probe.reason,
                explains=(r.subject(name),),
            )
    loader = r.here("shm", SharedMemory)
    if loader is None or loader.oom_kills is None:
        return
    killed = loader.oom_kills > 0
    yield Verdict(
        subject=r.subject("shm", "oom_kills"),
        severity=Severity.ERROR if killed else None,
        message=f"The memory limit killed {loader.oom_kills} data loader worker(s): this is not a "
        "matter of /dev/shm.",
        hint="raise the memory limit, or use fewer workers or smaller batches",
        right=loader.oom_kills,
    )


@rule("EL816", Severity.WARNING)
def memory_limit(r: Records) -> Iterator[Verdict]:
    """The memory limit leaves little room beside torch itself.

    Importing torch takes 200 to 500 MB, depending on the wheel (CUDA builds the most). Programs
    that look at physical memory do not see the limit and size their caches far beyond it.

    To do: raise the limit, or use a CPU build where no GPU is needed.
    """
    probe = r.here("limits", Limits)
    if probe is None:
        return
    limit, resident = value_of(probe.memory_limit), value_of(probe.import_resident)
    if limit is None or resident is None:
        return
    tight = limit < _IMPORT_SHARE * resident
    yield Verdict(
        subject=r.subject("limits", "memory_limit"),
        severity=Severity.WARNING if tight else None,
        message=f"The memory limit is {size(limit)}, and importing torch takes {size(resident)}: "
        "there is hardly room for a model.",
        hint="raise the memory limit",
        right=limit,
    )


@rule("EL893", Severity.WARNING)
def blind_probe(r: Records) -> Iterator[Verdict]:
    """A probe does not see the fault that was planted for it, so its silence means nothing.

    Every probe carries a control: a loop that leaks, a doubled learning rate, another seed, products
    in bfloat16, attention that has to overflow. A control that does not show means that the probe
    measures something else here, for example because torch or malloc is replaced.

    To do: report it; treat what this probe says as unknown.
    """
    for probe, seen in _controls(r):
        yield Verdict(
            subject=r.subject(probe, "control"),
            severity=None if seen else Severity.WARNING,
            message=f"The planted fault does not show in {probe}: its figures mean nothing here.",
            hint="treat what this probe says as unknown",
            right=None if seen else "not seen",
        )


def _controls(r: Records) -> Iterator[tuple[str, bool]]:
    leak, numerics = r.here("leak", Leak), r.here("numerics", Numerics)
    rng, precision = r.here("rng", Rng), r.here("precision", Precision)
    half, shm = r.here("fp16_range", Fp16Range), r.here("shm", SharedMemory)
    if leak:
        grown = [leak.control.malloc, leak.control.device]
        row = r.limits["leak_malloc"]
        seen = any(g is not None and row.judge(g, same=r.same) for g in grown)
        yield "leak", seen or bool(leak.control.grad_fn)
    if numerics and "lm_fp32" in numerics.values and "lr_x2" in numerics.control:
        plain = float.fromhex(numerics.values["lm_fp32"].update_ratio)
        doubled = float.fromhex(numerics.control["lr_x2"].update_ratio)
        yield "numerics", doubled > 1.5 * plain
    if rng:
        yield "rng", rng.control_changed >= len(rng.values)
    if precision:
        rounded = [precision_class(r, error) for error in precision.control.values()]
        yield "precision", min(rounded, default=0) == 2
    if half:
        yield "fp16_range", all(ways.get("naive", 0) == 0 for ways in half.values.values())
    if shm:
        yield "shm", shm.refused_block is not None
    yield from _plain_attention(r)


def _plain_attention(r: Records) -> Iterator[tuple[str, bool]]:
    """Attention by its formula needs about twice the memory, unless it is what runs anyway."""
    tensors = r.here("tensor_peak", TensorPeak)
    figures = tensors.values.get("sdpa_causal") if tensors else None
    if tensors is None or figures is None or not any("attention" in op for op in figures.ops):
        return
    if "sdpa_math" in tensors.control:
        yield "tensor_peak", tensors.control["sdpa_math"] > 1.5 * figures.peak
    allocator = r.here("alloc_peak", AllocatorPeak)
    if allocator and "sdpa_math" in allocator.control and "sdpa_causal" in allocator.values:
        plain = allocator.values["sdpa_causal"].peak
        yield "alloc_peak", allocator.control["sdpa_math"] > 1.5 * plain
