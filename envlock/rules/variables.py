"""Environment variables and backend switches: memory, numbers, devices. Absence is a fact."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.facts import variable, versions
from envlock.findings import Severity
from envlock.lock.observation import Absent, Unknown
from envlock.rules import reading
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

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_TF32 = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
_TF32_SWITCHES = ("matmul_allow_tf32", "cudnn_allow_tf32", "float32_matmul_precision")
_DETERMINISM = ("deterministic_algorithms", "cudnn_deterministic", "cudnn_benchmark")
_LOADER = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"})


def allocator_options(env: Env) -> tuple[dict[str, str], list[str]] | None:
    """The allocator's options as torch combines them, and the variables they come from.

    None where no spelling of the variable is known. The newer name wins where both are set.
    """
    options: dict[str, str] = {}
    found: list[str] = []
    known = False
    for name in reversed(ALLOCATOR):
        fact = env.find(f"env.{name}")
        known = known or not isinstance(fact, Unknown)
        if isinstance(fact, str):
            found.append(name)
            for part in fact.split(","):
                key, _, value = part.partition(":")
                if key.strip():
                    options[key.strip()] = value.strip()
    return (options, found) if known else None


@difference("EL701", Severity.WARNING, strict=Severity.ERROR)
def allocator_differs(pair: Pair) -> Iterator[Fault]:
    """The settings of torch's caching allocator differ.

    They decide how much memory is reserved beyond what tensors use, and whether fragmentation ends
    in an out-of-memory error: expandable_segments, max_split_size_mb, the backend.

    To do: set the variable as the reference has it, before the process starts. From torch 2.9 on
    it is named PYTORCH_ALLOC_CONF; the older PYTORCH_CUDA_ALLOC_CONF is still read.
    """
    left, right = allocator_options(pair.left), allocator_options(pair.right)
    if left is None or right is None:
        raise DoesNotApplyError("env.PYTORCH_CUDA_ALLOC_CONF")
    name = (left[1] or right[1] or [ALLOCATOR[1]])[-1]
    if left[0] != right[0]:
        text = ",".join(f"{key}:{value}" for key, value in left[0].items())
        yield Fault(
            subject=f"env.{name}",
            message=f"The caching allocator has {say(dict(left[0])) if left[0] else 'its defaults'} in "
            f"{REFERENCE} and {say(dict(right[0])) if right[0] else 'its defaults'} in {HERE}: reserved "
            "memory and fragmentation differ, up to an out-of-memory error on one side only.",
            hint=f"export {name}={text}" if text else f"unset {name}",
            evidence=tuple(f"env.{n}" for n in dict.fromkeys((*left[1], *right[1]))),
            explains=tuple(f"env.{n}" for n in ALLOCATOR),
        )
    allocators = pair.left.peek("torch.allocator"), pair.right.peek("torch.allocator")
    if all(allocators) and allocators[0] != allocators[1]:
        yield Fault(
            subject="torch.allocator",
            message=f"The allocator is {allocators[0]} in {REFERENCE} and {allocators[1]} in {HERE}: "
            "memory is counted and returned in other ways.",
            hint="set backend:native or backend:cudaMallocAsync on both sides",
        )


@check("EL702", Severity.WARNING)
def expandable_with_pool(env: Env) -> Iterator[Fault]:
    """expandable_segments is set beside a library that uses a memory pool of its own.

    Pools with a pluggable allocator do not support expandable segments: vLLM's sleep mode asserts
    or does not give memory back.

    To do: remove expandable_segments:True from the allocator variable for this process.
    """
    options = allocator_options(env)
    if options is None:
        env.need(f"env.{ALLOCATOR[1]}")
    elif options[0].get("expandable_segments", "").lower() == "true":
        if "vllm" not in env.table("packages"):
            return
        yield Fault(
            subject=f"env.{options[1][-1]}",
            message="expandable_segments:True is set beside vllm: its sleep mode uses a memory pool "
            "that does not support it.",
            hint=f"remove expandable_segments:True from {options[1][-1]}",
            evidence=("packages.vllm",),
            sources=("pytorch/pytorch#147851",),
        )


_SINCE = {
    "expandable_segments": (2, 1),
    "release_lock_on_cudamalloc": (2, 2),
    "pinned_use_cuda_host_register": (2, 2),
    "pinned_num_register_threads": (2, 2),
    "max_non_split_rounding_mb": (2, 6),
    "pinned_use_background_threads": (2, 6),
    "per_process_memory_fraction": (2, 10),
    "pinned_reserve_segment_size_mb": (2, 10),
    "large_segment_size_mb": (2, 11),
    "throw_on_cudamalloc_oom": (2, 12),
}
"""First torch release that accepts an allocator option (facts/behaviour_changes)."""


@check("EL703", Severity.WARNING)
def option_too_new(env: Env) -> Iterator[Fault]:
    """The allocator variable holds an option that this torch does not know, or is not read at all.

    An unknown option stops torch at the first allocation ("Unrecognized CachingAllocator option");
    PYTORCH_ALLOC_CONF is silently ignored before torch 2.9.

    To do: remove the option, or use the older name of the variable.
    """
    options = allocator_options(env)
    release = reading.torch_release(env)
    have = versions.minor_of(release.value) if release else None
    if options is None or release is None or have is None:
        raise UndecidedError("torch.release" if options else f"env.{ALLOCATOR[1]}", "not recorded")
    late = sorted(name for name in options[0] if _SINCE.get(name, (0, 0)) > have)
    if late:
        yield Fault(
            subject=f"env.{options[1][-1]}",
            message=f"torch {release.value} does not know {', '.join(late)}.",
            hint=f"remove it from {options[1][-1]}",
            evidence=(release.path,),
        )
    if "PYTORCH_ALLOC_CONF" in options[1] and have < (2, 9):
        yield Fault(
            subject="env.PYTORCH_ALLOC_CONF",
            message=f"torch {release.value} does not read PYTORCH_ALLOC_CONF: its options have no "
            "effect.",
            hint="use PYTORCH_CUDA_ALLOC_CONF",
            evidence=(release.path,),
        )


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
