"""The allocations of a training run with changing sequence lengths, without doing the work.

Fake tensors have shapes and lifetimes but no numbers, so a machine without a GPU can say which
blocks a run would ask for. The probe returns the list; the host plays it to a model of the CUDA
caching allocator.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List

import smoke_memory
import smoke_workloads

TRACE_SIZES = smoke_workloads.Sizes(
    vocabulary=8192, width=512, heads=8, blocks=2, batch=8, length=1024
)
LENGTHS = (200, 333, 421, 517, 603, 777, 811, 1000)
"""Tokens per sequence and step. Each step is too large for the blocks that the last one left, which
is what makes a caching allocator reserve far more than is used."""


def record_trace(torch: Any) -> List[List[int]]:
    """``[block, bytes]`` when a storage is made, ``[block, 0]`` when it is released, in order."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    workloads = smoke_workloads.Workloads.without_numbers(torch)
    events: List[List[int]] = []
    lifetimes = smoke_memory.make_lifetimes(torch, events)
    with contextlib.ExitStack() as modes:
        modes.enter_context(FakeTensorMode())
        modes.enter_context(lifetimes)
        model = workloads.language_model(TRACE_SIZES)
        optimizer = _MultiTensorAdamW(torch, list(model.parameters()))
        for length in LENGTHS:
            tokens = torch.zeros(TRACE_SIZES.batch, length, dtype=torch.int64)
            logits = model(tokens).view(-1, TRACE_SIZES.vocabulary)
            loss = torch.nn.functional.cross_entropy(logits, tokens.view(-1))
            del logits
            loss.backward()
            del loss, tokens
            optimizer.step()
        del model, optimizer
        lifetimes.settle()
    return events


class _MultiTensorAdamW:
    """The allocations of torch's default on GPUs. The real one reads its step count from a tensor,
    which a tensor without numbers cannot give."""

    def __init__(self, torch: Any, parameters: List[Any]) -> None:
        self.torch = torch
        self.parameters = parameters
        self.state: Dict[str, List[Any]] = {}

    def step(self) -> None:
        torch = self.torch
        with torch.no_grad():
            gradients = [p.grad for p in self.parameters]
            if not self.state:
                for name in ("mean", "square"):
                    self.state[name] = [torch.zeros_like(p) for p in self.parameters]
            mean, square = self.state["mean"], self.state["square"]
            # There are no public names for these; all releases have them.
            torch._foreach_mul_(self.parameters, 0.99)
            torch._foreach_mul_(mean, 0.9)
            torch._foreach_add_(mean, gradients, alpha=0.1)
            torch._foreach_mul_(square, 0.999)
            torch._foreach_addcmul_(square, gradients, gradients, 0.001)
            root = torch._foreach_sqrt(square)  # noqa: SLF001 - as above
            torch._foreach_add_(root, 1e-8)
            torch._foreach_addcdiv_(self.parameters, mean, root, -1e-3)
        for parameter in self.parameters:
            parameter.grad = None
