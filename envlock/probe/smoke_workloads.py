"""The small training loops that the smoke test runs, and the numbers they run on.

Weights, inputs and labels come from an integer hash with power-of-two scales, so they are the same
bits on every machine and release; the environment's random streams are a probe of their own. Only
public torch calls are made, through their public names, so that whatever patches torch in this
environment is measured too.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Callable, Iterable, NamedTuple, Optional

BATTERY_VERSION = 1
"""Goes up with every change that moves a figure: then old records are not comparable."""
EMBEDDING_ROWS, EMBEDDING_WIDTH = 20_000, 64
POOL = 1 << 21  # numbers
"""Hashed numbers made once, before anything is measured: filling a weight then costs one copy and
leaves no trace of the hashing in the memory figures."""

MEMORY_WORKLOADS = (
    "lm_fp32",
    "lm_foreach",
    "lm_clip",
    "lm_bf16",
    "lm_checkpoint",
    "conv",
    "sdpa_causal",
    "sdpa_mask",
    "encoder",
    "lstm",
    "embedding",
)
NUMERIC_WORKLOADS = (
    "lm_fp32",
    "lm_bf16",
    "lm_clip",
    "conv",
    "sdpa_causal",
    "encoder",
    "lstm",
    "embedding",
)


class Sizes(NamedTuple):
    """Of a language model and its batch."""

    vocabulary: int
    width: int
    heads: int
    blocks: int
    batch: int
    length: int


SIZES = Sizes(vocabulary=512, width=128, heads=4, blocks=2, batch=8, length=64)


def battery_digest(*step_counts: int) -> str:
    """Names what was run: equal on both sides, or the figures are of different things."""
    sizes = [*SIZES, EMBEDDING_ROWS, EMBEDDING_WIDTH]
    content = [BATTERY_VERSION, sizes, step_counts, MEMORY_WORKLOADS, NUMERIC_WORKLOADS]
    return "sha256:" + hashlib.sha256(json.dumps(content).encode()).hexdigest()


class Numbers:
    """Hashed floats in [-1/2, 1/2) and integers, on one device."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch = torch
        self.device = device
        hashed = self._hash(0, POOL)
        self.pool = ((hashed & 0xFFFF).to(torch.float32) * 2.0**-16 - 0.5).to(device)
        self._next = 0

    def _hash(self, start: int, count: int) -> Any:
        """32 bits per index: multiply, fold, multiply, fold; exact in 64-bit integers."""
        value = self.torch.arange(start + 1, start + 1 + count, dtype=self.torch.int64)
        value = (value * 2654435761) & 0xFFFFFFFF
        value = value ^ (value >> 16)
        value = (value * 0x45D9F3B) & 0xFFFFFFFF
        return value ^ (value >> 16)

    def restart(self) -> None:
        """Every workload starts at the same number, whichever ran before it."""
        self._next = 0

    def floats(self, *shape: int, scale: float = 1.0) -> Any:
        """The next numbers, times a power of two, in a tensor of their own."""
        count = math.prod(shape)
        if self._next + count > POOL:
            self._next = 0
        flat = self.pool[self._next : self._next + count]
        self._next += count
        return (flat * scale).view(*shape)

    def integers(self, *shape: int, below: int, seed: int) -> Any:
        count = math.prod(shape)
        return (self._hash(seed << 20, count) % below).view(*shape).to(self.device)

    def fill(self, model: Any) -> Any:
        """Overwrite every parameter: weights scaled by their fan-in, norms 1, biases 0."""
        with self.torch.no_grad():
            for name, value in model.named_parameters():
                if value.dim() == 1:
                    value.fill_(1.0 if name.endswith("weight") else 0.0)
                    continue
                fan_in = math.prod(value.shape[1:])
                halvings = 0
                while 12 * 4**halvings < fan_in:  # 1/12 is the variance before scaling
                    halvings += 1
                value.copy_(self.floats(*value.shape, scale=2.0**-halvings))
        return model


class Loop:
    """One model in training: ``step()`` does one step and returns its loss, still attached."""

    def __init__(
        self,
        forward: Callable[[], Any],
        parameters: Iterable[Any],
        optimizer: Any,
        clip: Optional[Callable[..., Any]] = None,
    ) -> None:
        self.forward = forward
        self.parameters = list(parameters)
        self.optimizer = optimizer
        self.clip = clip
        self.grad_norm = None
        """Set by every step of a loop that clips."""

    def backward(self) -> Any:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward()
        loss.backward()
        return loss

    def update(self) -> None:
        if self.clip is not None:
            self.grad_norm = self.clip(self.parameters, 1.0)
        self.optimizer.step()

    def step(self) -> Any:
        loss = self.backward()
        self.update()
        return loss


class Workloads:
    """Builds loops by name. ``unavailable(name)`` says why one cannot run on this torch."""

    def __init__(self, torch: Any, device: str = "cpu") -> None:
        self.torch = torch
        self.device = device
        self.numbers = Numbers(torch, device)

    @classmethod
    def without_numbers(cls, torch: Any) -> Workloads:
        """For models whose weights do not matter."""
        made = cls.__new__(cls)
        made.torch = torch
        made.device = "cpu"
        return made

    def unavailable(self, name: str) -> Optional[str]:
        if name.startswith("sdpa") and not self.has_sdpa():
            return "this torch has no scaled_dot_product_attention"
        return None

    def has_sdpa(self) -> bool:
        return hasattr(self.torch.nn.functional, "scaled_dot_product_attention")

    def build(self, name: str, **changes: Any) -> Loop:
        """A fresh loop. ``changes`` plant a fault for a negative control (see each builder)."""
        self.numbers.restart()
        family, _, variant = name.partition("_")
        return getattr(self, "_" + family)(variant, **changes)

    def language_model(self, sizes: Sizes, *, checkpointed: bool = False) -> Any:
        return _language_model(
            self.torch, sizes, fused_attention=self.has_sdpa(), checkpointed=checkpointed
        )

    def _lm(
        self,
        variant: str,
        *,
        batch: Optional[int] = None,
        lr: float = 1e-3,
        shift_labels: bool = False,
        keep_logits: Optional[list] = None,
    ) -> Loop:
        torch = self.torch
        if batch is None:  # without bf16 instructions a CPU takes 10 to 25 times as long
            batch = SIZES.batch // 2 if variant == "bf16" else SIZES.batch
        model = self.language_model(SIZES, checkpointed=variant == "checkpoint")
        self.numbers.fill(model).to(self.device)
        tokens = self.numbers.integers(batch, SIZES.length, below=SIZES.vocabulary, seed=1)
        labels = self.numbers.integers(batch, SIZES.length, below=SIZES.vocabulary, seed=2)
        if shift_labels:
            labels = labels.roll(1, 1)
        flat = labels.view(-1)
        options = {"foreach": True} if variant == "foreach" else {}
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, **options)
        functional = torch.nn.functional

        def forward() -> Any:
            if variant == "bf16":
                with torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16):
                    logits = model(tokens)
            else:
                logits = model(tokens)
            if keep_logits is not None:
                keep_logits.append(logits)
            return functional.cross_entropy(logits.float().view(-1, SIZES.vocabulary), flat)

        clip = torch.nn.utils.clip_grad_norm_ if variant == "clip" else None
        return Loop(forward, model.parameters(), optimizer, clip)

    def _conv(self, _: str, *, evaluate: bool = False, input_scale: float = 1.0) -> Loop:
        torch, nn = self.torch, self.torch.nn
        layers = []
        for inputs, outputs, stride in ((3, 16, 1), (16, 32, 2), (32, 64, 2)):
            layers += [
                nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
        self.numbers.fill(model).to(self.device)
        model.train(not evaluate)
        images = self.numbers.floats(SIZES.batch, 3, 32, 32, scale=input_scale)
        labels = self.numbers.integers(SIZES.batch, below=10, seed=3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def forward() -> Any:
            return nn.functional.cross_entropy(model(images), labels)

        return Loop(forward, model.parameters(), optimizer)

    def _sdpa(self, variant: str) -> Loop:
        torch = self.torch
        query, key, value = (
            torch.nn.Parameter(self.numbers.floats(2, 4, 256, 64, scale=2.0)) for _ in range(3)
        )
        mask = None
        if variant == "mask":
            mask = torch.ones(256, 256, dtype=torch.bool, device=self.device).tril()
        optimizer = torch.optim.SGD([query, key, value], lr=1024.0)

        def forward() -> Any:
            attend = torch.nn.functional.scaled_dot_product_attention
            out = attend(query, key, value, attn_mask=mask, is_causal=mask is None)
            return out.pow(2).mean()

        return Loop(forward, [query, key, value], optimizer)

    def _encoder(self, _: str) -> Loop:
        torch = self.torch
        layer = torch.nn.TransformerEncoderLayer(
            128, 4, 512, dropout=0.0, batch_first=True, norm_first=True
        )
        self.numbers.fill(layer).to(self.device)
        inputs = self.numbers.floats(SIZES.batch, 64, 128)
        wanted = self.numbers.floats(SIZES.batch, 64, 128)
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)

        def forward() -> Any:
            return torch.nn.functional.mse_loss(layer(inputs), wanted)

        return Loop(forward, layer.parameters(), optimizer)

    def _lstm(self, _: str) -> Loop:
        torch = self.torch
        model = torch.nn.LSTM(64, 128, batch_first=True)
        self.numbers.fill(model).to(self.device)
        inputs = self.numbers.floats(SIZES.batch, 32, 64)
        wanted = self.numbers.floats(SIZES.batch, 32, 128)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        def forward() -> Any:
            return torch.nn.functional.mse_loss(model(inputs)[0], wanted)

        return Loop(forward, model.parameters(), optimizer)

    def _embedding(self, _: str) -> Loop:
        torch = self.torch
        model = torch.nn.Embedding(EMBEDDING_ROWS, EMBEDDING_WIDTH)
        self.numbers.fill(model).to(self.device)
        rows = self.numbers.integers(64, 32, below=EMBEDDING_ROWS, seed=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def forward() -> Any:
            return model(rows).pow(2).sum(-1).mean()

        return Loop(forward, model.parameters(), optimizer)


def _language_model(torch: Any, sizes: Sizes, *, fused_attention: bool, checkpointed: bool) -> Any:
    """A decoder of pre-norm blocks. The classes are made here because torch is imported late.

    Releases before 2.0 have no fused attention and compute it by hand, as their users did.
    """
    nn, functional, width = torch.nn, torch.nn.functional, sizes.width

    def attend(query: Any, key: Any, value: Any) -> Any:
        if fused_attention:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        length = query.shape[-2]
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
        return scores.masked_fill(later, -math.inf).softmax(-1) @ value

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before_attention = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.before_mlp = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, hidden: Any) -> Any:
            batch, length, _ = hidden.shape
            qkv = self.qkv(self.before_attention(hidden)).view(batch, length, 3, sizes.heads, -1)
            query, key, value = qkv.permute(2, 0, 3, 1, 4)
            mixed = attend(query, key, value).transpose(1, 2).reshape(batch, length, width)
            hidden = hidden + self.out(mixed)
            return hidden + self.down(functional.gelu(self.up(self.before_mlp(hidden))))

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(sizes.vocabulary, width)
            self.positions = nn.Embedding(sizes.length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(sizes.blocks)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, sizes.vocabulary)

        def forward(self, tokens: Any) -> Any:
            hidden = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
            for block in self.blocks:
                if checkpointed:
                    run = torch.utils.checkpoint.checkpoint
                    hidden = run(block, hidden, use_reentrant=False)
                else:
                    hidden = block(hidden)
            return self.head(self.norm(hidden))

    return LanguageModel()
