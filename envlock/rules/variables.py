"""Environment variables and backend switches: memory, numbers, devices. Absence is a fact."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.facts import changes_between, variable, versions
from envlock.facts.gpus import capability_pair
from envlock.findings import Severity
from envlock.lock.observation import Absent, Unknown
from envlock.rules import reading
from envlock.rules.allocator_settings import ALLOCATOR
from envlock.rules.base import (
    HERE,
    REFERENCE,
    DoesNotApplyError,
    Env,
    Fault,
    Pair,
    UndecidedError,
    check,
    difference,
)
from envlock.rules.wording import say

_TF32 = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
_TF32_SWITCHES = ("matmul_allow_tf32", "cudnn_allow_tf32", "float32_matmul_precision")
_DETERMINISM = ("deterministic_algorithms", "cudnn_deterministic", "cudnn_benchmark")
_LOADER = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"})


@check("EL704", Severity.WARNING)
def two_spellings(env: Env) -> Iterator[Fault]:
    """Two spellings of one variable are set to different values.

    To do: keep one of them.
    """
    pairs = [(ALLOCATOR[0], ALLOCATOR[1]), (ALLOCATOR[0], ALLOCATOR[2])]
    for name in env.table("env"):
        row = variable(name)
        if row is not None and row.name != name:
            pairs.append((row.name, name))
    for new, old in pairs:
        one, other = env.peek(f"env.{new}"), env.peek(f"env.{old}")
        if one is not None and other is not None and one != other:
            yield Fault(
                subject=f"env.{new}",
                message=f"{new} and {old} are both set and differ: which one counts depends on the "
                "release.",
                hint=f"unset {old}",
                evidence=(f"env.{old}",),
            )


@check("EL731", Severity.WARNING)
def tf32_by_default(env: Env) -> Iterator[Fault]:
    """This torch computes float32 matrix products with TF32 by default on this GPU.

    torch 1.7 to 1.11 did so on GPUs from compute capability 8.0 on: results are exact to about three
    digits only (1024.5 times 1 gives 1025). Older GPUs and torch from 1.12 on compute in float32.

    To do: `torch.backends.cuda.matmul.allow_tf32 = False`, or torch 1.12 or newer.
    """
    torch = reading.torch_release(env)
    release = versions.minor_of(torch.value) if torch else None
    if torch is None or release is None:
        raise UndecidedError("torch.release", "not recorded")
    if reading.gpu_count(env) == 0:
        raise DoesNotApplyError("no GPU")
    found = reading.capability(env, 0)
    device = capability_pair(found.value) if found else None
    if found is None or device is None:
        raise UndecidedError("gpus.0.compute_capability", "not recorded")
    off = env.peek("env.NVIDIA_TF32_OVERRIDE") == "0"
    off = off or env.peek("torch.switches.matmul_allow_tf32") is False
    if (1, 7) <= release < (1, 12) and device >= (8, 0) and not off:
        yield Fault(
            subject="torch.switches.matmul_allow_tf32",
            message=f"torch {torch.value} computes float32 matrix products with TF32 on a GPU of "
            f"compute capability {found.value}: results are exact to about three digits.",
            hint="torch.backends.cuda.matmul.allow_tf32 = False",
            evidence=(torch.path, found.path, "env.NVIDIA_TF32_OVERRIDE"),
        )


@difference("EL733", Severity.WARNING, strict=Severity.ERROR)
def tf32_default_moved(pair: Pair) -> Iterator[Fault]:
    """The default of TF32 changed between the two torch releases.

    On GPUs from compute capability 8.0 on, float32 matrix products were computed with TF32 by
    default in torch 1.7 to 1.11 and are computed in full float32 from 1.12 on.

    To do: set torch.backends.cuda.matmul.allow_tf32 to one value on both sides.
    """
    left, right = reading.torch_release(pair.left), reading.torch_release(pair.right)
    if left is None or right is None:
        raise DoesNotApplyError("torch.release")
    ids = {"tf32-flag-added", "tf32-matmul-off"}
    changes = [c for c in changes_between("torch", left.value, right.value) if c.id in ids]
    capable = [
        found.path
        for env in (pair.left, pair.right)
        if env.peek("gpus")
        and (found := reading.capability(env, 0)) is not None
        and (capability_pair(found.value) or (0, 0)) >= (8, 0)
    ]
    if len(changes) == 1 and capable:
        yield Fault(
            subject="torch.switches.matmul_allow_tf32",
            message=f"torch is {left.value} in {REFERENCE} and {right.value} in {HERE}: "
            f"{changes[0].effect}.",
            hint="set torch.backends.cuda.matmul.allow_tf32 to one value on both sides",
            evidence=(left.path, right.path, *capable),
            sources=changes[0].source,
        )


@difference("EL705", Severity.WARNING, strict=Severity.ERROR)
def tf32_differs(pair: Pair) -> Iterator[Fault]:
    """TF32 is switched on one side only.

    With it, float32 matrix products and convolutions are computed with 10 bits of mantissa on
    GPUs from compute capability 8.0 on: relative differences near 1e-3.

    To do: set the switch or the variable as the reference has it.
    """
    paths = [f"env.{name}" for name in _TF32]
    paths += [f"torch.switches.{name}" for name in _TF32_SWITCHES]
    yield from _switched(pair, paths, "float32 results differ by about 1e-3 relative")


@difference("EL706", Severity.WARNING, strict=Severity.ERROR)
def determinism_differs(pair: Pair) -> Iterator[Fault]:
    """A switch for deterministic or benchmarked algorithms differs.

    Other algorithms are chosen, with other workspaces, speed and last digits; with
    cudnn.benchmark the choice changes from run to run.

    To do: set the switch as the reference has it.
    """
    paths = [f"torch.switches.{name}" for name in _DETERMINISM]
    paths += ["env.CUBLAS_WORKSPACE_CONFIG", "env.CUBLASLT_WORKSPACE_SIZE"]
    yield from _switched(pair, paths, "other algorithms with other workspaces are chosen")


@difference("EL707", Severity.WARNING, strict=Severity.ERROR)
def backend_differs(pair: Pair) -> Iterator[Fault]:
    """A backend switch differs: attention backends, reduced precision, cuDNN.

    To do: set the switch as the reference has it.
    """
    names = (
        "cudnn_enabled",
        "sdp_flash",
        "sdp_mem_efficient",
        "sdp_math",
        "sdp_cudnn",
        "fp16_reduced_precision_reduction",
        "bf16_reduced_precision_reduction",
        "fp16_accumulation",
        "default_dtype",
    )
    paths = [f"torch.switches.{name}" for name in names]
    yield from _switched(pair, paths, "other kernels run, with other memory use and last digits")


def _switched(pair: Pair, paths: list[str], effect: str) -> Iterator[Fault]:
    for path in paths:
        left, right = pair.left.find(path), pair.right.find(path)
        if isinstance(left, Unknown) or isinstance(right, Unknown) or left == right:
            continue
        name = path.rpartition(".")[2]
        texts = ["not set" if isinstance(v, Absent) else say(v) for v in (left, right)]
        is_variable = path.startswith("env.")
        undo = f"unset {name}" if isinstance(left, Absent) else f"export {name}={say(left)}"
        yield Fault(
            subject=path,
            message=f"{name} is {texts[0]} in {REFERENCE} and {texts[1]} in {HERE}: {effect}.",
            hint=undo if is_variable else f"set {name} to {texts[0]}, as in {REFERENCE}",
        )


_HANDLED = frozenset(
    {*ALLOCATOR, *_TF32, "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", *_LOADER}
)


@difference("EL708", Severity.WARNING, strict=Severity.ERROR)
def variable_differs(pair: Pair) -> Iterator[Fault]:
    """A variable that changes memory or numbers differs.

    To do: set it as the reference has it; `envlock explain` and the sources say what it does.
    """
    for name in sorted(pair.left.peek_table("env").keys() | pair.right.peek_table("env").keys()):
        row = variable(name)
        if row is None or name in _HANDLED or row.kind not in {"memory", "numerics"}:
            continue
        left, right = pair.left.find(f"env.{name}"), pair.right.find(f"env.{name}")
        if isinstance(left, Unknown) or isinstance(right, Unknown) or left == right:
            continue
        texts = ["not set" if isinstance(v, Absent) else v for v in (left, right)]
        yield Fault(
            subject=f"env.{name}",
            severity=Severity.INFO if row.confidence == "unconfirmed" else None,
            message=f"{name} is {texts[0]} in {REFERENCE} and {texts[1]} in {HERE} "
            f"({row.component}, {row.kind}): {row.changes}.",
            hint=f"unset {name}" if isinstance(left, Absent) else f"export {name}={left}",
            sources=row.source[:1],
        )


@difference("EL709", Severity.INFO, strict=Severity.ERROR)
def search_path_differs(pair: Pair) -> Iterator[Fault]:
    """A variable that decides which libraries or modules are found first differs.

    Harmless while the libraries and modules that are found are the same; a finding of its own
    says where they are not. In an image that should be a rebuild it is an error, because the
    variable hides what the image contains.

    To do: unset it, or set it as the reference has it.
    """
    for name in sorted(_LOADER):
        left, right = pair.left.find(f"env.{name}"), pair.right.find(f"env.{name}")
        if isinstance(left, Unknown) or isinstance(right, Unknown) or left == right:
            continue
        texts = ["not set" if isinstance(v, Absent) else v for v in (left, right)]
        yield Fault(
            subject=f"env.{name}",
            message=f"{name} is {texts[0]} in {REFERENCE} and {texts[1]} in {HERE}.",
            hint=f"unset {name}" if isinstance(left, Absent) else f"export {name}={texts[0]}",
        )
