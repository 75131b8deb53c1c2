"""Rules on single operations: their precision, their range, their random streams."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.findings import Severity
from envlock.lock.behaviour import Compile, Fp16Range, Precision, Rng
from envlock.rules.behaviour_base import Records, Verdict, common, relative, rule

_CLASSES = ("single precision", "TF32 or half precision", "bfloat16")


def precision_class(r: Records, error: float) -> int:
    """Index into ``_CLASSES``: how coarse an operation computes."""
    rows = ("precision_single", "precision_half")
    return sum(r.limits[row].judge(error, same=r.same) is not None for row in rows)


@rule("EL810", Severity.ERROR)
def precision(r: Records) -> Iterator[Verdict]:
    """Products are computed in another precision.

    Matrix products and convolutions of single-precision tensors are compared with double precision.
    The error tells which kind of arithmetic was used: TF32 on Ampere and newer, or bfloat16 through
    autocast, a default dtype or a patch. The loss of a first step hardly shows it (4e-6), the course
    of training does. Without a record, anything coarser than single precision is reported.

    To do: look at torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision(),
    autocast contexts, the default dtype, and NVIDIA_TF32_OVERRIDE.
    """
    here = r.here("precision", Precision)
    sides = r.both("precision", Precision)
    for name, error in sorted(here.values.items()) if here else ():
        subject = r.subject("precision", name)
        recorded = sides[0].values.get(name) if sides else None
        wanted = 0 if recorded is None else precision_class(r, recorded)
        found = precision_class(r, error)
        if found == wanted:
            yield Verdict(subject=subject)
            continue
        coarser = found > wanted
        known = recorded is not None
        yield Verdict(
            subject=subject,
            severity=(Severity.ERROR if coarser else Severity.WARNING)
            if known
            else Severity.WARNING,
            message=f"{name} computes in {_CLASSES[found]}"
            + (f", recorded was {_CLASSES[wanted]}" if known else "")
            + f": its largest error is {error:.2g} of the largest value. "
            "Training takes another course, and memory may differ.",
            hint="look for autocast, a default dtype, TF32 switches "
            "(torch.backends.cuda.matmul.allow_tf32, NVIDIA_TF32_OVERRIDE) or a patch of torch",
            left=recorded,
            right=error,
            explains=tuple(
                r.subject(probe, "*")
                for probe in ("precision", "numerics", "tensor_peak", "alloc_peak")
            ),
            sources=(r.limits["precision_single"].source, r.limits["precision_half"].source),
        )


@rule("EL811", Severity.ERROR)
def half_range(r: Records) -> Iterator[Verdict]:
    """Attention in half precision overflows earlier than recorded.

    fp16 ends at 65504. Whether large scores give infinity and then nan depends on where a kernel
    scales and in which precision it adds: the same input gives nan on torch 2.3 and 2.4 and finite
    values on 2.6 and later, on a CPU. A range that grew is told as a warning: what trains here may
    break there.

    To do: train in bfloat16, scale queries before the product, or pin the attention backend.
    """
    sides = r.both("fp16_range", Fp16Range)
    for dtype, one, other in common(sides[0].values, sides[1].values) if sides else ():
        for way, left, right in common(one, other):
            if way == "naive":
                continue  # the control, which has to overflow
            subject = r.subject("fp16_range", dtype, way)
            if left == right:
                yield Verdict(subject=subject)
                continue
            shrank = right < left
            yield Verdict(
                subject=subject,
                severity=Severity.ERROR if shrank else Severity.WARNING,
                message=f"Attention in {dtype} ({way}) stays finite up to inputs of {right}, "
                f"recorded was {left}: "
                + (
                    "training that was stable may give nan here."
                    if shrank
                    else "training that is stable here may give nan where this was recorded."
                ),
                hint="use bfloat16, scale the queries, or pin the attention backend",
                left=left,
                right=right,
            )


@rule("EL812", Severity.ERROR)
def random_stream(r: Records) -> Iterator[Verdict]:
    """The same seed gives other random numbers.

    Seeds do not carry over releases: CPU dropout masks, bernoulli_, exponential_, trunc_normal_,
    bf16 randn and multinomial without replacement changed between torch 2.6 and 2.13. A run cannot
    be repeated to the bit across that border, though it is just as good. On one build and processor
    the streams have to be equal.

    To do: repeat runs with the recorded release, or store masks and initial weights.
    """
    sides = r.both("rng", Rng)
    for name, left, right in common(sides[0].values, sides[1].values) if sides else ():
        subject = r.subject("rng", name)
        severity = r.limits["rng"].judge(float(left != right), same=r.same)
        if severity is None:
            yield Verdict(subject=subject)
            continue
        yield Verdict(
            subject=subject,
            severity=severity,
            message=f"The random stream of {name} is another one at the same seed: "
            "runs cannot be repeated to the bit.",
            hint="repeat with the recorded torch release, or store what was drawn",
            left=left,
            right=right,
            sources=(r.limits["rng"].source,),
        )


@rule("EL818", Severity.WARNING)
def compile_graphs(r: Records) -> Iterator[Verdict]:
    """torch.compile makes another number of graphs for the same inputs.

    Each graph costs compile time and about a megabyte of host memory. More graphs for changing
    lengths mean that shapes are taken as fixed where they were dynamic.

    To do: compare the defaults of the two releases (`dynamic=`, recompile limits).
    """
    sides = r.both("compile", Compile)
    for name, left, right in common(sides[0].values, sides[1].values) if sides else ():
        if not name.startswith("graphs_"):
            continue
        subject = r.subject("compile", name)
        severity = r.limits["compile_graphs"].judge(relative(left, right), same=r.same)
        if severity is None:
            yield Verdict(subject=subject)
            continue
        yield Verdict(
            subject=subject,
            severity=severity,
            message=f"Twelve lengths are compiled into {right} graphs ({name}), "
            f"recorded were {left}.",
            hint="compare dynamic= and the recompile limits of the two releases",
            left=left,
            right=right,
        )
