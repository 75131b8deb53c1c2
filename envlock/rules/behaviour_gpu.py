"""Rules on what only a GPU can tell, and on what the allocator model predicts without one."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.findings import Severity
from envlock.lock.behaviour import CudaAllocator, Figures, Simulated
from envlock.rules.behaviour_base import Records, Verdict, common, percent, relative, rule, size


@rule("EL820", Severity.WARNING)
def neighbours(r: Records) -> Iterator[Verdict]:
    """Other processes use this GPU.

    Their memory is missing for training, and figures of the whole device (context, headroom) hold
    theirs too. Look here first when a job runs out of memory that used to fit.

    To do: `nvidia-smi`; end what is left over, or choose another GPU with CUDA_VISIBLE_DEVICES.
    """
    probe = r.here("neighbours", Figures)
    if probe is None or "processes" not in probe.values:
        return
    count, used = probe.values["processes"], probe.values.get("used", 0)
    yield Verdict(
        subject=r.subject("neighbours"),
        severity=Severity.WARNING if count else None,
        message=f"{count} other process(es) compute on this GPU; {size(used)} were in use before "
        "the smoke test began. Figures of the whole device are flagged.",
        hint="see nvidia-smi; choose a free GPU with CUDA_VISIBLE_DEVICES",
        right=count,
        explains=(r.subject("outside", "*"), r.subject("headroom", "*")),
    )


@rule("EL821", Severity.ERROR)
def reserved_peak(r: Records) -> Iterator[Verdict]:
    """The caching allocator reserves more GPU memory for the same loop.

    Reserved memory is what the card has to hold; the part of it that no tensor uses is
    fragmentation. It follows the order and size of allocations and the allocator's settings.

    To do: compare PYTORCH_CUDA_ALLOC_CONF; `expandable_segments:True` removes most fragmentation
    of changing lengths.
    """
    sides = r.both("cuda_allocator", CudaAllocator)
    for name, one, other in common(sides[0].values, sides[1].values) if sides else ():
        for figure in ("reserved", "allocated"):
            if figure in one and figure in other:
                subject = r.subject("cuda_allocator", name, figure)
                yield _more(
                    r,
                    "reserved_peak",
                    subject,
                    f"The loop {name} ({figure})",
                    (one[figure], other[figure]),
                )


@rule("EL822", Severity.ERROR)
def allocator_retries(r: Records) -> Iterator[Verdict]:
    """The allocator had to empty its cache and try again, or failed.

    A retry means that the card was full: the next larger batch runs out of memory, and every retry
    stops the GPU. The loops of the smoke test are small, so the memory is taken by others.

    To do: see what else uses the GPU, and whether a memory fraction is set.
    """
    probe = r.here("cuda_allocator", CudaAllocator)
    for name, figures in sorted(probe.values.items()) if probe else ():
        for figure in ("num_alloc_retries", "num_ooms"):
            if figure not in figures:
                continue
            count = figures[figure]
            yield Verdict(
                subject=r.subject("cuda_allocator", name, figure),
                severity=Severity.ERROR if count else None,
                message=f"{figure} is {count} in the small loop {name}: the GPU is full.",
                hint="see nvidia-smi for other processes, and set no memory fraction",
                right=count,
            )


@rule("EL823", Severity.ERROR)
def outside_allocator(r: Records) -> Iterator[Verdict]:
    """More GPU memory is in use outside of torch's allocator.

    The CUDA context, loaded kernels and the libraries' own buffers do not show in
    torch.cuda.memory_summary(). Module loading (eager instead of lazy) alone makes 400 MB.

    To do: compare CUDA_MODULE_LOADING, the driver, and the versions of cuBLAS, cuDNN and NCCL.
    """
    sides = r.both("outside", Figures)
    for name, left, right in common(sides[0].values, sides[1].values) if sides else ():
        yield _added(
            r, r.subject("outside", name), f"outside the allocator after {name}", (left, right)
        )


@rule("EL824", Severity.ERROR)
def workspaces(r: Records) -> Iterator[Verdict]:
    """Libraries take more GPU memory as workspace or scratch.

    cuBLAS keeps a workspace per handle and stream (8 MiB, 32 MiB on Hopper), cuDNN takes scratch
    by the algorithm it chooses. Whole releases were affected: conv3d in bf16 needs several times
    the memory in torch 2.9.0.

    To do: CUBLAS_WORKSPACE_CONFIG; torch.backends.cudnn.benchmark off; the cuDNN that the release
    was made for.
    """
    sides = r.both("workspaces", Figures)
    for name, left, right in common(sides[0].values, sides[1].values) if sides else ():
        yield _added(r, r.subject("workspaces", name), f"as scratch of {name}", (left, right))


@rule("EL825", Severity.WARNING)
def pinned_memory(r: Records) -> Iterator[Verdict]:
    """A data loader holds more page-locked host memory.

    Page-locked memory cannot be swapped and is never given back before the process ends. It grows
    with prefetch_factor, workers and batch size.

    To do: lower prefetch_factor, or pin_memory=False where transfers are not the bottleneck.
    """
    sides = r.both("pinned", Figures)
    for name, left, right in common(sides[0].values, sides[1].values) if sides else ():
        yield _more(
            r, "pinned", r.subject("pinned", name), f"The loader with {name}", (left, right)
        )


@rule("EL826", Severity.ERROR)
def headroom(r: Records) -> Iterator[Verdict]:
    """The largest batch that fits into a fixed amount of GPU memory became smaller.

    This is what one feels: the batch that used to fit no longer does. The cause is one of the
    other findings: reserved memory, workspaces, other kernels.

    To do: see the findings on memory above.
    """
    sides = r.both("headroom", Figures)
    if sides is None or not all("batch" in side.values for side in sides):
        return
    left, right = (side.values["batch"] for side in sides)
    fell = relative(left, right) if right < left else 0.0
    severity = r.limits["headroom"].judge(fell, same=r.same)
    yield Verdict(
        subject=r.subject("headroom", "batch"),
        severity=severity,
        message=f"The largest batch in {size(sides[1].values.get('budget', 0))} is {right}, "
        f"recorded was {left} ({percent(left, right)}).",
        hint="see the other findings on memory",
        left=left,
        right=right,
    )


@rule("EL827", Severity.WARNING)
def model_replay(r: Records) -> Iterator[Verdict]:
    """The model of the caching allocator decides otherwise than this card did.

    A recording of the allocator at work is replayed in the model that predicts memory on machines
    without a GPU. On the settings and releases it knows, every decision has to be the same. Where
    one is not, predictions for this card are estimates.

    To do: report it, with the torch release and the allocator settings.
    """
    probe = r.here("snapshot", Figures)
    if probe is None or not probe.values.get("allocations"):
        return
    total, right = probe.values["allocations"], probe.values.get("decisions_right", 0)
    yield Verdict(
        subject=r.subject("snapshot"),
        severity=None if right == total else Severity.WARNING,
        message=f"The allocator model makes {right} of {total} decisions as this card did: what it "
        "predicts for this card is an estimate.",
        hint="report the torch release and PYTORCH_CUDA_ALLOC_CONF",
        right=right,
        explains=(r.subject("sim", "*"),),
    )


@rule("EL828", Severity.INFO)
def repeatable(r: Records) -> Iterator[Verdict]:
    """Two runs in fresh processes do not give the same losses.

    Some GPU kernels add in an order that changes. Losses are then compared with wider limits.

    To do: nothing; torch.use_deterministic_algorithms(True) names the kernels.
    """
    equal = r.measured.noise.repeat_equal
    if equal is not None:
        yield Verdict(
            subject=r.subject("noise", "repeat_equal"),
            severity=None if equal else Severity.INFO,
            message="Two runs do not give the same bits: losses are compared with wider limits.",
            right=equal,
        )


@rule("EL817", Severity.ERROR)
def predicted_memory(r: Records) -> Iterator[Verdict]:
    """A training run with changing lengths is predicted to need more GPU memory.

    The allocations of a language model were traced with fake tensors, without a GPU, and played to
    a model of the CUDA caching allocator. Another figure means that this release allocates other
    blocks, or that the allocator's settings differ.

    To do: see the findings on tensor peaks; compare PYTORCH_CUDA_ALLOC_CONF.
    """
    sides = r.both("sim", Simulated)
    for name, one, other in common(sides[0].values, sides[1].values) if sides else ():
        for figure in ("requested", "reserved", "min_device"):
            subject = r.subject("sim", name, figure)
            pair = (getattr(one, figure), getattr(other, figure))
            yield _more(r, "simulated", subject, f"The traced run ({figure}, {name})", pair)


def _more(r: Records, row: str, subject: str, what: str, pair: tuple[int, int]) -> Verdict:
    left, right = pair
    severity = r.limits[row].judge(relative(left, right), same=r.same)
    if severity is None:
        return Verdict(subject=subject)
    return Verdict(
        subject=subject,
        severity=severity if right > left else Severity.INFO,
        message=f"{what} takes {size(right)}, recorded were {size(left)} ({percent(left, right)}).",
        hint="compare allocator settings and library versions" if right > left else "",
        left=left,
        right=right,
        sources=(r.limits[row].source,),
    )


def _added(r: Records, subject: str, what: str, pair: tuple[int, int]) -> Verdict:
    left, right = pair
    severity = r.limits["outside"].judge(abs(right - left), same=r.same)
    if severity is None:
        return Verdict(subject=subject)
    return Verdict(
        subject=subject,
        severity=severity if right > left else Severity.INFO,
        message=f"{size(right)} of GPU memory are in use {what}, recorded were {size(left)}.",
        hint="compare CUDA_MODULE_LOADING and the versions of the CUDA libraries"
        if right > left
        else "",
        left=left,
        right=right,
        sources=(r.limits["outside"].source,),
    )
