"""Rules on what training needs: leaks, peaks, what stays behind, which kernels run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from envlock.findings import Severity
from envlock.lock.behaviour import (
    AllocatorPeak,
    Leak,
    OptimizerPeak,
    StepAllocations,
    TensorFigures,
    TensorPeak,
)
from envlock.rules.behaviour_base import (
    Records,
    Verdict,
    common,
    percent,
    relative,
    rule,
    size,
)

_COUNTERS = {
    "malloc": ("leak_malloc", "{} of host memory"),
    "tensor": ("leak_tensor", "{} of tensors"),
    "grad_fn": ("leak_grad_fn", "{:.0f} tensors that hold on to a graph"),
    "device": ("leak_device", "{} of GPU memory"),
}


@rule("EL805", Severity.ERROR)
def leak(r: Records) -> Iterator[Verdict]:
    """Memory grows with every training step.

    A clean loop grows by nothing: over 400 runs at most 3 KiB a step by the C library's count, and
    no byte by the count of tensors. Growth means that something keeps what a step made, most often
    a loss that was stored with its graph. This needs no record to compare with. The job dies after
    hours, when the sum of it fills the machine.

    To do: store losses as numbers (`loss.item()`), not as tensors; look for hooks, caches and
    patches (a sitecustomize, a .pth file) that keep tensors. `retain_graph=True` and evaluation
    without `torch.no_grad()` are the other usual causes.
    """
    probe = r.here("leak", Leak)
    if probe is None:
        return
    growing: dict[str, int] = {}
    for counter, (row, _) in _COUNTERS.items():
        slope = getattr(probe.values, counter)
        if slope is None:
            continue
        if r.limits[row].judge(slope, same=r.same) is None:
            yield Verdict(subject=r.subject("leak", counter))
        else:
            growing[counter] = slope
    if not growing:
        return
    first = next(iter(growing))
    shown = ", ".join(
        _COUNTERS[name][1].format(slope if name == "grad_fn" else size(slope))
        for name, slope in growing.items()
    )
    yield Verdict(
        subject=r.subject("leak", first),
        severity=Severity.ERROR,
        message=f"A clean training loop leaks here: every step keeps {shown}. "
        "A long job will run out of memory.",
        hint="something in this environment keeps losses or tensors with their graph: "
        "look for patches of torch (sitecustomize, .pth files), hooks and loggers; "
        "in your own loop store loss.item()",
        right=dict(growing),
        explains=tuple(r.subject(probe, "*") for probe in ("leak", "tensor_peak", "alloc_peak")),
        sources=(r.limits[_COUNTERS[first][0]].source,),
    )


@rule("EL808", Severity.ERROR)
def bytes_left(r: Records) -> Iterator[Verdict]:
    """Memory is still taken after model, optimizer and losses were dropped.

    When nothing of a loop is referenced any more, all its memory has to be free. What is left is
    kept by something else: a cache, a hook, a patched function. This needs no record.

    To do: look for what keeps tensors in this environment, as for a leak.
    """
    tensors = r.here("tensor_peak", TensorPeak)
    allocator = r.here("alloc_peak", AllocatorPeak)
    left = [
        *(("tensor_peak", name, f.left) for name, f in (tensors.values if tensors else {}).items()),
        *(
            ("alloc_peak", name, f.left)
            for name, f in (allocator.values if allocator else {}).items()
        ),
    ]
    for probe, workload, count in sorted(left):
        subject = r.subject(probe, workload, "left")
        severity = r.limits["bytes_left"].judge(count, same=r.same)
        if severity is None:
            yield Verdict(subject=subject)
            continue
        yield Verdict(
            subject=subject,
            severity=severity,
            message=f"{size(count)} stay allocated after {workload} was dropped: "
            "something keeps tensors alive.",
            hint="look for patches, hooks and caches that keep tensors",
            right=count,
            sources=(r.limits["bytes_left"].source,),
        )


def _moved(r: Records, row: str, what: str, subject: str, peaks: tuple[int, int]) -> Verdict:
    """A figure that rose beyond its limit is a fault; one that fell is worth telling."""
    left, right = peaks
    severity = r.limits[row].judge(relative(left, right), same=r.same)
    if severity is None:
        return Verdict(subject=subject)
    less = right < left
    return Verdict(
        subject=subject,
        severity=Severity.INFO if less else severity,
        message=f"{what} needs {'less' if less else 'more'} memory than recorded: "
        f"{size(left)} -> {size(right)} ({percent(left, right)}).",
        hint=""
        if less
        else "see which operators and allocations changed, and what is known of the two releases",
        left=left,
        right=right,
        sources=(r.limits[row].source,),
    )


def _counts(ops: Sequence[str]) -> dict[str, int]:
    """``add.Tensor x12`` -> ``{"add.Tensor": 12}``."""
    pairs = (line.rpartition(" x") for line in ops)
    return {name: int(count) for name, _, count in pairs if count.isdecimal()}


def operator_changes(one: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    """Operators that ran more often on the left, and on the right, most telling first.

    An operator that is new or gone tells more than one whose count moved.
    """
    before, after = _counts(one), _counts(other)
    gone: list[tuple[bool, int, str]] = []
    new: list[tuple[bool, int, str]] = []
    for name in before.keys() | after.keys():
        change = after.get(name, 0) - before.get(name, 0)
        if change:
            moved = name in before and name in after
            (new if change > 0 else gone).append((moved, -abs(change), name))
    return (
        [f"{name} x{-count}" for _, count, name in sorted(gone)],
        [f"{name} x{-count}" for _, count, name in sorted(new)],
    )


def _with_operators(verdict: Verdict, one: TensorFigures, other: TensorFigures) -> Verdict:
    gone, new = operator_changes(one.ops, other.ops)
    if verdict.severity is None or not (gone or new):
        return verdict
    path = verdict.subject.rpartition(".")[0] + ".ops"
    return replace(verdict, details=((path, gone[:12], new[:12]),))


@rule("EL806", Severity.ERROR)
def tensor_peak(r: Records) -> Iterator[Verdict]:
    """The same training step holds more tensors at once.

    The peak of all live tensors over some steps is exact: the same byte on any machine, thread
    count and processor. Another value means that other operators run, keep more for the backward
    pass, or run in another order. On a GPU the same code then needs more memory there too.

    To do: see which operators changed; a release that needs more can often be given back the
    former behaviour with one setting, which the known changes name.
    """
    sides = r.both("tensor_peak", TensorPeak)
    for name, one, other in common(sides[0].values, sides[1].values) if sides else ():
        subject = r.subject("tensor_peak", name, "peak")
        verdict = _moved(r, "tensor_peak", f"The loop {name}", subject, (one.peak, other.peak))
        yield _with_operators(verdict, one, other)
        subject = r.subject("tensor_peak", name, "step_end")
        ends = (one.step_end, other.step_end)
        yield _moved(r, "tensor_peak", f"Between two steps, {name}", subject, ends)


@rule("EL807", Severity.ERROR)
def allocator_peak(r: Records) -> Iterator[Verdict]:
    """The same training step makes the allocator hand out more memory at once.

    Counted by the allocator itself, so it holds what kernels use as scratch besides the tensors.
    Scratch follows release and instruction set; on one build and processor it is the same byte.

    To do: see which block sizes are new. Where the tensor peak did not move, a kernel takes more
    scratch: a convolution or attention algorithm was chosen differently.
    """
    sides = r.both("alloc_peak", AllocatorPeak)
    for name, one, other in common(sides[0].values, sides[1].values) if sides else ():
        subject = r.subject("alloc_peak", name, "peak")
        verdict = _moved(r, "alloc_peak", f"The loop {name}", subject, (one.peak, other.peak))
        if verdict.severity is not None:
            blocks = (_blocks(one.step), _blocks(other.step))
            verdict = replace(verdict, details=((r.subject("alloc_peak", name, "step"), *blocks),))
        yield verdict


def _blocks(step: StepAllocations) -> list[str]:
    return [f"{block.size} x{block.count}" for block in step.largest]


@rule("EL819", Severity.WARNING)
def allocation_pattern(r: Records) -> Iterator[Verdict]:
    """One training step allocates other blocks than recorded, though the peak may be equal.

    Other sizes or another number of blocks mean that other kernels ran. On a GPU the pattern
    decides how the caching allocator fragments.

    To do: nothing by itself; it explains other findings.
    """
    sides = r.both("alloc_peak", AllocatorPeak)
    for name, one, other in common(sides[0].values, sides[1].values) if sides else ():
        subject = r.subject("alloc_peak", name, "step")
        if one.step == other.step:
            yield Verdict(subject=subject)
            continue
        yield Verdict(
            subject=subject,
            severity=Severity.WARNING if r.same else Severity.INFO,
            message=f"One step of {name} makes {other.step.count} allocations of "
            f"{size(other.step.total)} in all, recorded were {one.step.count} of "
            f"{size(one.step.total)}: other kernels run.",
            left=_blocks(one.step),
            right=_blocks(other.step),
        )


@rule("EL809", Severity.ERROR)
def attention_kernel(r: Records) -> Iterator[Verdict]:
    """Attention runs through another kernel than recorded.

    torch chooses among fused kernels and the plain formula by inputs, hardware, switches and
    release. The plain one keeps the whole score matrix: memory grows with the square of the
    sequence length instead of linearly, and numbers change in their last digits.

    To do: see which backends are switched off (torch.backends.cuda.*_sdp_enabled), which mask or
    shape is passed, and what the release prefers; `torch.nn.attention.sdpa_kernel` pins one.
    """
    sides = r.both("tensor_peak", TensorPeak)
    for name, one, other in common(sides[0].values, sides[1].values) if sides else ():
        left, right = _attention(one.ops), _attention(other.ops)
        if not left and not right:
            continue
        subject = r.subject("tensor_peak", name, "attention")
        if left == right:
            yield Verdict(subject=subject)
            continue
        more = other.peak > one.peak
        yield Verdict(
            subject=subject,
            severity=Severity.ERROR if more else Severity.WARNING,
            message=f"Attention in {name} runs through {_named(right)}, recorded was "
            f"{_named(left)}; the loop holds {percent(one.peak, other.peak)} at its peak.",
            hint="check torch.backends.cuda.flash_sdp_enabled() and its siblings here, "
            "or pin a backend with torch.nn.attention.sdpa_kernel",
            left=left,
            right=right,
            explains=tuple(
                r.subject(probe, name, "*") for probe in ("tensor_peak", "alloc_peak", "numerics")
            ),
        )


def _attention(ops: Sequence[str]) -> list[str]:
    return sorted(name for name in _counts(ops) if "attention" in name and "backward" not in name)


def _named(kernels: Sequence[str]) -> str:
    return " and ".join(kernels) or "no attention kernel (the plain formula)"


@rule("EL813", Severity.ERROR)
def optimizer_peak(r: Records) -> Iterator[Verdict]:
    """An optimizer step needs more memory than recorded.

    One step of the same optimizer in its three implementations. The multi-tensor one (foreach)
    keeps a temporary copy of its inputs: some 14 % more for AdamW, and on a GPU it is the default.

    To do: pass `foreach=False` or `fused=True` where memory is short.
    """
    sides = r.both("optimizer", OptimizerPeak)
    for name, one, other in common(sides[0].values, sides[1].values) if sides else ():
        subject = r.subject("optimizer", name)
        yield _moved(r, "optimizer", f"The optimizer {name}", subject, (one, other))
