"""Which memory a user's own training step would ask for, traced without a GPU and without numbers.

``TOKEN FOLDER MODULE:FUNCTION STEPS``: the function is imported with FOLDER first on the path and
called without arguments. It returns ``(model, batch, step)``; ``step(model, batch)`` does all of one
step: forward, backward, optimizer. Everything runs on fake tensors, which have shapes and lifetimes
but no values, and therefore take no memory, however large the model.

The answer holds an ``alloc-trace/1`` for the model of the caching allocator. It is an estimate, and
says why.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Tuple

import observe_frame
import smoke_memory

MOST_EVENTS = 250_000
"""More than this would not fit the answer that the host accepts."""

REASON = (
    "traced on fake CPU tensors: memory of CUDA libraries (cuBLAS, cuDNN workspaces), of kernels "
    "that only a GPU uses, and the CUDA context are not in it"
)


def work(arguments: List[str]) -> Dict[str, object]:
    folder, name, steps = arguments[0], arguments[1], int(arguments[2])
    torch, fake_mode = load_torch()
    sys.path.insert(0, folder)
    function = find_function(name)
    events: List[List[int]] = []
    began = time.monotonic()
    try:
        peak, read = trace(torch, fake_mode, function, steps, events)
    except observe_frame.KnownError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise observe_frame.KnownError(
            "step-failed",
            "%s failed on fake tensors: %s: %s" % (name, type(error).__name__, error),
            "it must run on the CPU, whatever the machine has; see the traceback above for where",
        ) from error
    reason = REASON
    if read:
        reason += "; %d values that the program read from tensors were taken to be 1" % read
    return {
        "torch": str(torch.__version__),
        "function": name,
        "steps": steps,
        "seconds": round(time.monotonic() - began, 3),
        "peak_requested": peak,
        "trace": {
            "schema": "alloc-trace/1",
            "initial": [],
            "events": [["a", block, size] if size else ["f", block] for block, size in events],
            "estimate": reason,
        },
    }


def load_torch() -> Tuple[Any, Any]:
    try:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ImportError as error:
        raise observe_frame.KnownError(
            "no-fake-tensors",
            "this environment has no torch with fake tensors: %s" % error,
            "name an interpreter with torch 1.13 or newer with --python",
        ) from error
    return torch, FakeTensorMode


def find_function(name: str) -> Callable[[], Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise observe_frame.KnownError(
            "no-function",
            "%s cannot be imported: %s: %s" % (name, type(error).__name__, error),
            "write MODULE:FUNCTION, with the module importable from the folder that you are in",
        ) from error
    if not callable(found):
        raise observe_frame.KnownError(
            "no-function", "%s is no function" % name, "write MODULE:FUNCTION"
        )
    return found


def trace(
    torch: Any, fake_mode: Any, function: Callable[[], Any], steps: int, events: List[List[int]]
) -> Tuple[int, int]:
    """Fill ``events``; return the peak of what is alive, and how many values were made up."""
    prefer_foreach()
    values = make_values(torch)
    lifetimes = smoke_memory.make_lifetimes(torch, events)
    with fake_mode(allow_non_fake_inputs=True), lifetimes, values:
        made = function()
        if not isinstance(made, tuple) or len(made) != 3 or not callable(made[2]):
            raise observe_frame.KnownError(
                "wrong-answer",
                "the function returned %s" % type(made).__name__,
                "return (model, batch, step), where step(model, batch) does one whole step",
            )
        model, batch, step = made
        for _ in range(steps):
            step(model, batch)
            lifetimes.settle()
            if len(events) > MOST_EVENTS:
                raise observe_frame.KnownError(
                    "too-long",
                    "more than %d blocks were made and released" % MOST_EVENTS,
                    "trace fewer steps",
                )
    return lifetimes.peak, values.read


def prefer_foreach() -> None:
    """Optimizers take the multi-tensor path on GPUs, with its temporaries, and only there."""
    name = "_get_foreach_kernels_supported_devices"
    for module in ("torch.utils._foreach_utils", "torch.optim.optimizer"):
        found = sys.modules.get(module)
        if found is not None and hasattr(found, name):
            setattr(found, name, lambda: ["cuda", "cpu"])


def make_values(torch: Any) -> Any:
    """A dispatch mode that answers where a program reads a tensor, and counts in ``read``."""
    from torch.utils._python_dispatch import TorchDispatchMode

    read_one = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001 - its only name

    class Values(TorchDispatchMode):
        """A fake tensor has no value. Whoever reads one gets 1: a step count, a loss to print."""

        def __init__(self) -> None:
            super().__init__()
            self.read = 0

        def __torch_dispatch__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is not read_one:
                return func(*args, **(kwargs or {}))
            self.read += 1
            kind = args[0].dtype
            if kind is torch.bool:
                return True
            return 1.0 if kind.is_floating_point else 1

    return Values()


if __name__ == "__main__":
    observe_frame.answer("trace_memory", work)
