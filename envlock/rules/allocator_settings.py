"""Settings of torch's caching allocator: different, contradictory, or not read at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envlock.facts import versions
from envlock.findings import Severity
from envlock.lock.observation import Unknown
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


@check("EL732", Severity.WARNING)
def option_refused(env: Env) -> Iterator[Fault]:
    """The allocator variable holds a value that torch refuses, or options that exclude each other.

    torch stops at its first GPU allocation, or prints a warning and ignores the option:
    max_split_size_mb must be above 20, garbage_collection_threshold between 0 and 1;
    expandable_segments belongs to the native backend and does not exist on Windows.

    To do: correct the value.
    """
    options = allocator_options(env)
    if options is None:
        env.need(f"env.{ALLOCATOR[1]}")
        raise DoesNotApplyError("the variable is not set")
    if not options[1]:
        return
    values = options[0]
    expandable = values.get("expandable_segments", "").lower() == "true"
    split, collect = values.get("max_split_size_mb", ""), values.get("garbage_collection_threshold")
    faults = {
        f"max_split_size_mb:{split} is not above 20": split.isdecimal() and int(split) <= 20,
        f"garbage_collection_threshold:{collect} is not between 0 and 1": collect is not None
        and not re.fullmatch(r"0?\.\d*[1-9]\d*", collect),
        "expandable_segments does not work with backend:cudaMallocAsync": expandable
        and values.get("backend") == "cudaMallocAsync",
        "expandable_segments does not exist on Windows": expandable
        and env.peek("system.os") == "windows",
    }
    for text, holds in faults.items():
        if holds:
            yield Fault(
                subject=f"env.{options[1][-1]}",
                message=f"{options[1][-1]}: {text}.",
                hint=f"correct or remove it in {options[1][-1]}",
            )


@check("EL734", Severity.WARNING)
def caching_off(env: Env) -> Iterator[Fault]:
    """torch's caching allocator is switched off.

    Every tensor is allocated and freed by CUDA itself: many times slower, with other peaks, and no
    allocator statistics. The switch is meant for debugging with memory checkers.

    To do: unset PYTORCH_NO_CUDA_MEMORY_CACHING.
    """
    if env.need("env.PYTORCH_NO_CUDA_MEMORY_CACHING") not in {"", "0"}:
        yield Fault(
            subject="env.PYTORCH_NO_CUDA_MEMORY_CACHING",
            message="PYTORCH_NO_CUDA_MEMORY_CACHING switches the caching allocator off: much slower, "
            "and other peaks of memory.",
            hint="unset PYTORCH_NO_CUDA_MEMORY_CACHING",
        )
