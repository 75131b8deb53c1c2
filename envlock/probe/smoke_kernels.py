"""Single operations: random streams, the precision of products, the range of half precision."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Callable, Dict

import smoke_numerics

DRAWS = 64
FP16_SCALES = (8, 16, 24, 28, 32, 40, 64)


def random_draws(torch: Any, device: str) -> Dict[str, Callable[[], Any]]:
    """Seeded draws as training makes them. Several changed between releases, at an equal seed."""
    nn = torch.nn

    def empty(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.empty(*(shape or (DRAWS,)), dtype=dtype, device=device)

    def weight(module: Any) -> Any:
        return module.to(device).weight

    ones = torch.ones(DRAWS, device=device)
    odds = torch.arange(1, DRAWS + 1, dtype=torch.float32, device=device)
    return {
        "rand": lambda: torch.rand(DRAWS, device=device),
        "rand_fp64": lambda: torch.rand(DRAWS, dtype=torch.float64, device=device),
        "randn": lambda: torch.randn(DRAWS, device=device),
        "randn_fp64": lambda: torch.randn(DRAWS, dtype=torch.float64, device=device),
        "randn_bf16": lambda: torch.randn(DRAWS, dtype=torch.bfloat16, device=device),
        "randint": lambda: torch.randint(0, 1 << 20, (DRAWS,), device=device),
        "randperm": lambda: torch.randperm(DRAWS, device=device),
        "uniform": lambda: empty().uniform_(-1, 1),
        "normal": lambda: empty().normal_(0, 2),
        "bernoulli": lambda: empty().bernoulli_(0.5),
        "dropout": lambda: nn.functional.dropout(ones, 0.5, training=True),
        "exponential": lambda: empty().exponential_(),
        "geometric": lambda: empty().geometric_(0.25),
        "log_normal": lambda: empty().log_normal_(),
        "cauchy": lambda: empty().cauchy_(),
        "poisson": lambda: torch.poisson(odds),
        "multinomial": lambda: torch.multinomial(odds, DRAWS, replacement=True),
        "multinomial_once": lambda: torch.multinomial(odds, DRAWS // 2, replacement=False),
        "trunc_normal": lambda: nn.init.trunc_normal_(empty()),
        "linear_init": lambda: weight(nn.Linear(16, 8)),
        "conv_init": lambda: weight(nn.Conv2d(3, 4, 3)),
        "embedding_init": lambda: weight(nn.Embedding(16, 8)),
    }


def draw(torch: Any, make: Callable[[], Any], seed: int) -> str:
    """Digest of one draw after seeding."""
    torch.manual_seed(seed)
    return hashlib.sha256(smoke_numerics.tensor_bytes(make())).hexdigest()[:16]


def precision(torch: Any, workloads: Any, *, round_operands: bool = False) -> Dict[str, float]:
    """Largest error against double precision, relative to the largest value, per operation.

    Single precision gives under 2e-6, TF32 and half precision some 4e-4, bfloat16 over 2e-3: the
    loss of a first step does not tell them apart. Run with the user's own switches.
    """
    functional = torch.nn.functional
    workloads.numbers.restart()
    floats = workloads.numbers.floats
    one, other = floats(256, 256), floats(256, 256)
    images, kernels = floats(2, 16, 32, 32), floats(16, 16, 3, 3)
    operations = {
        "matmul": (torch.matmul, one, other),
        "linear": (functional.linear, one, other),
        "conv": (functional.conv2d, images, kernels),
    }
    errors = {}
    for name, (function, left, right) in operations.items():
        exact = function(left.double(), right.double())
        if round_operands:
            result = function(left.bfloat16().float(), right.bfloat16().float())
        else:
            result = function(left, right)
        difference = (result.double() - exact).abs().max().item()
        errors[name] = difference / exact.abs().max().item()
    return errors


def half_range(torch: Any, workloads: Any, dtype: Any) -> Dict[str, int]:
    """The largest scale of constant queries and keys for which attention stays finite.

    Three ways: the fused operator, softmax over the scores, and exp over the sum, which has to
    overflow early (the control).
    """
    found = {}
    for name, attend in _attentions(torch).items():
        if attend is not None:
            found[name] = _largest_finite(torch, workloads, dtype, attend)
    return found


def _largest_finite(torch: Any, workloads: Any, dtype: Any, attend: Callable[..., Any]) -> int:
    largest = 0
    for scale in FP16_SCALES:
        shape = (1, 2, 32, 64)
        query = torch.full(shape, float(scale), dtype=dtype, device=workloads.device)
        value = torch.ones(shape, dtype=dtype, device=workloads.device)
        if not torch.isfinite(attend(query, query, value)).all().item():
            break
        largest = scale
    return largest


def _attentions(torch: Any) -> Dict[str, Any]:
    def softmax(query: Any, key: Any, value: Any) -> Any:
        scores = query @ key.transpose(-2, -1)
        return (scores / math.sqrt(query.shape[-1])).softmax(-1) @ value

    def naive(query: Any, key: Any, value: Any) -> Any:
        weights = ((query @ key.transpose(-2, -1)) / math.sqrt(query.shape[-1])).exp()
        return (weights / weights.sum(-1, keepdim=True)) @ value

    fused = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    return {"sdpa": fused, "softmax": softmax, "naive": naive}
