"""Rules on what training computes: precision, the first step, the course of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from envlock.findings import Severity
from envlock.lock.behaviour import NumericFigures, Numerics
from envlock.rules.behaviour_base import Records, Verdict, common, percent, relative, rule


def _row(r: Records, figure: str, workload: str) -> str:
    if figure == "loss" and r.measured.device_class == "cuda":
        return "loss_cuda"
    return f"{figure}_bf16" if "bf16" in workload else f"{figure}_fp32"


def _pairs(r: Records) -> Iterator[tuple[str, NumericFigures, NumericFigures]]:
    sides = r.both("numerics", Numerics)
    return common(sides[0].values, sides[1].values) if sides else iter(())


@rule("EL804", Severity.ERROR)
def loss_is_finite(r: Records) -> Iterator[Verdict]:
    """A training loop gives a loss that is not a number, or infinite.

    The loops of the smoke test are small and tame: on every release and processor tried they give
    finite losses that fall. Here a kernel, a patch or a setting breaks the computation itself.

    To do: compare the torch build and what patches it (a sitecustomize, a .pth file) with an
    environment that works; try with TF32, autocast and compiled kernels switched off.
    """
    numerics = r.here("numerics", Numerics)
    for workload, figures in sorted(numerics.values.items()) if numerics else ():
        subject = r.subject("numerics", workload, "finite")
        values = [float.fromhex(text) for text in figures.loss]
        bad = next((i for i, value in enumerate(values) if not math.isfinite(value)), None)
        if bad is None:
            yield Verdict(subject=subject)
            continue
        yield Verdict(
            subject=subject,
            severity=Severity.ERROR,
            message=f"The loss of {workload} is {values[bad]} in step {bad + 1}, "
            "so training breaks down here.",
            hint="find what patches or replaces torch's kernels in this environment",
            right=figures.loss,
            explains=(r.subject("numerics", workload, "*"),),
        )


def _first_step(
    r: Records, figure: str, read: Callable[[NumericFigures], str]
) -> Iterator[tuple[str, Severity | None, float, float]]:
    for workload, one, other in _pairs(r):
        left, right = float.fromhex(read(one)), float.fromhex(read(other))
        limits = r.limits[_row(r, figure, workload)]
        yield workload, limits.judge(relative(left, right), same=r.same), left, right


@rule("EL803", Severity.ERROR)
def gradient_norm(r: Records) -> Iterator[Verdict]:
    """The first backward pass gives another gradient.

    Same weights, same data, same loss function: the norm of the first gradient follows from the
    kernels and the mode of the layers alone. It moves by 75 % when batch norm is left in evaluation
    mode, by rounding only between releases.

    To do: look at what runs in the backward pass: layer modes, custom autograd functions, patched
    kernels, another precision.
    """
    for workload, severity, left, right in _first_step(r, "grad_norm", lambda f: f.grad_norm):
        subject = r.subject("numerics", workload, "grad_norm")
        if severity is None:
            yield Verdict(subject=subject)
            continue
        yield Verdict(
            subject=subject,
            severity=severity,
            message=f"The first gradient of {workload} has another size "
            f"({percent(left, right)}): the backward pass computes something else, "
            "and training will take another course.",
            hint="compare layer modes, patches of torch and the precision in the two environments",
            left=left,
            right=right,
            explains=(r.subject("numerics", workload, "*"),),
            sources=(r.limits[_row(r, "grad_norm", workload)].source,),
        )


@rule("EL802", Severity.ERROR)
def update_ratio(r: Records) -> Iterator[Verdict]:
    """The first optimizer step is larger or smaller than recorded.

    How far one step moves the weights, relative to their size, follows the learning rate and the
    optimizer's rule. The loss of the first step is still equal then, and the later ones drift: a
    doubled learning rate shows as +100 % here and as some 30 % in the loss after ten steps.

    To do: look for what changes the optimizer: a patched torch.optim, another default (foreach,
    fused, weight decay), a scheduler that is attached on import.
    """
    for workload, severity, left, right in _first_step(r, "update_ratio", lambda f: f.update_ratio):
        subject = r.subject("numerics", workload, "update_ratio")
        if severity is None:
            yield Verdict(subject=subject)
            continue
        yield Verdict(
            subject=subject,
            severity=severity,
            message=f"The first optimizer step of {workload} moves the weights by another amount "
            f"({percent(left, right)}), as another learning rate would: the loss takes another "
            "trajectory from the second step on.",
            hint="look for what changes torch.optim here: a sitecustomize, a .pth file, a wrapper",
            left=left,
            right=right,
            explains=(
                r.subject("numerics", workload, "loss"),
                r.subject("numerics", workload, "parameters"),
            ),
            sources=(r.limits[_row(r, "update_ratio", workload)].source,),
        )


@rule("EL801", Severity.ERROR)
def loss_trajectory(r: Records) -> Iterator[Verdict]:
    """The loss of the same training steps takes another course.

    Weights, data and seed are the same to the bit. On one build and processor the losses have to
    be equal; between releases they differ by rounding (2e-7 in single precision, 2e-4 under bf16
    autocast). More than that means other kernels, another precision, other data or another
    optimizer.

    To do: see whether the first step differs already (data, precision, forward pass) or only the
    later ones (optimizer, backward pass), and compare the libraries that compute.
    """
    for workload, one, other in _pairs(r):
        subject = r.subject("numerics", workload, "loss")
        left = [float.fromhex(text) for text in one.loss]
        right = [float.fromhex(text) for text in other.loss]
        distances = [relative(a, b) for a, b in zip(left, right, strict=False)]
        worst = max(distances) if len(left) == len(right) else math.inf
        limits = r.limits[_row(r, "loss", workload)]
        severity = limits.judge(worst, same=r.same)
        if severity is None:
            yield Verdict(subject=subject)
            continue
        first = next((i + 1 for i, distance in enumerate(distances) if distance), len(left))
        where = "already in the first step" if first == 1 else f"from step {first} on"
        yield Verdict(
            subject=subject,
            severity=severity,
            message=f"The loss of {workload} differs {where}, at most by {worst:.2g} of its value: "
            "this environment does not train as the recorded one did.",
            hint="compare precision and data first"
            if first == 1
            else "compare the optimizer and the backward pass first",
            left=left,
            right=right,
            explains=(r.subject("numerics", workload, "parameters"),),
            sources=(limits.source,),
        )


@rule("EL829", Severity.WARNING)
def final_parameters(r: Records) -> Iterator[Verdict]:
    """The weights after ten steps are not the same bits, though the losses are close.

    Only compared on one build and one kind of processor, where the bits have to be equal.

    To do: nothing, unless bit-equal training matters to you; then compare the processors.
    """
    for workload, one, other in _pairs(r) if r.same else ():
        subject = r.subject("numerics", workload, "parameters")
        if one.parameters == other.parameters:
            yield Verdict(subject=subject)
            continue
        yield Verdict(
            subject=subject,
            severity=Severity.WARNING,
            message=f"The weights of {workload} after ten steps are not the same bits.",
            hint="compare processors and maths libraries if bit-equal training matters",
            left=one.parameters,
            right=other.parameters,
        )
