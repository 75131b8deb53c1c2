"""What training computes, recorded to the bit: losses, the first gradient, the first update."""

from __future__ import annotations

import ctypes
import hashlib
import math
from typing import Any, Dict, List

NUMERIC_STEPS = 10


def numerics(
    workloads: Any, name: str, steps: int = NUMERIC_STEPS, **changes: Any
) -> Dict[str, Any]:
    """Some steps from hashed weights. Floats as hex: equality of bits is what is compared."""
    loop = workloads.build(name, **changes)
    losses = [loop.backward()]
    grad_norm = global_norm([p.grad for p in loop.parameters if p.grad is not None])
    before = [p.detach().clone() for p in loop.parameters]
    loop.update()
    ratio = update_ratio(before, loop.parameters)
    losses += [loop.step() for _ in range(steps - 1)]
    return {
        "loss": [loss.item().hex() for loss in losses],
        "grad_norm": grad_norm.hex(),
        "update_ratio": ratio.hex(),
        "parameters": parameters_digest(loop.parameters),
    }


def global_norm(tensors: List[Any]) -> float:
    """In double precision, so that summation order cannot show."""
    return math.sqrt(sum(t.detach().double().pow(2).sum().item() for t in tensors))


def update_ratio(before: List[Any], after: List[Any]) -> float:
    """Median over parameters of |change| / |value|: follows the learning rate and the optimizer.

    Parameters that start at zero (biases) have no ratio and are left out.
    """
    ratios = []
    for old, new in zip(before, after):  # noqa: B905 - strict is Python 3.10
        size = global_norm([old])
        if size > 0:
            ratios.append(global_norm([new.detach() - old]) / size)
    ratios.sort()
    return ratios[len(ratios) // 2] if ratios else math.nan


def parameters_digest(parameters: List[Any]) -> str:
    digest = hashlib.sha256()
    for value in parameters:
        digest.update(tensor_bytes(value))
    return "sha256:" + digest.hexdigest()


def tensor_bytes(tensor: Any) -> bytes:
    """The raw bytes, without numpy, which an environment need not have."""
    flat = tensor.detach().cpu().contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())
