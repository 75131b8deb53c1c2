"""Train on the GPU with the memory history on, and write the snapshot. Runs in the target's Python.

python gpu_workloads.py MODE FILE

default     a language model with changing lengths, fp32, then bf16
expandable  the same; the caller sets PYTORCH_CUDA_ALLOC_CONF
capped      the same under a memory fraction that is too small: retries, then a failure
streams     two streams, with tensors handed from one to the other
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

LENGTHS = (192, 512, 320, 768, 256, 640, 448, 1024)
WIDTH, LAYERS, BATCH, VOCABULARY = 512, 4, 16, 8192
MOST_EVENTS = 200_000
CAP = 4 << 30


def make(torch: Any, device: str) -> Any:
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
    )
    return torch.nn.Sequential(
        torch.nn.Embedding(VOCABULARY, WIDTH),
        torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False),
        torch.nn.Linear(WIDTH, VOCABULARY),
    ).to(device)


def train(
    torch: Any, *, autocast: bool, device: str = "cuda", lengths: Sequence[int] = LENGTHS
) -> None:
    model = make(torch, device)
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths:
        tokens = torch.randint(0, VOCABULARY, (BATCH, length), device=device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
            loss = torch.nn.functional.cross_entropy(
                model(tokens).float().flatten(0, 1), tokens.flatten()
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def streams(torch: Any) -> None:
    other = torch.cuda.Stream()
    weights = torch.randn(2048, 2048, device="cuda")
    for rows in (256, 1024, 4096, 512, 2048, 8192) * 4:
        data = torch.randn(rows, 2048, device="cuda")
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            product = data @ weights
            data.record_stream(other)
        del data
        torch.cuda.current_stream().wait_stream(other)
        product.record_stream(torch.cuda.current_stream())
        (product * 2).sum()
        del product


def capped(torch: Any) -> None:
    """Enough for the shorter batches and not for the longest."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, CAP / total))
    try:
        train(torch, autocast=False)
    except torch.cuda.OutOfMemoryError:
        print("out of memory, as it was meant to be", file=sys.stderr)


def main() -> int:
    torch: Any = importlib.import_module("torch")  # the target's
    mode, path = sys.argv[1:]
    memory: Any = torch.cuda.memory  # the recorder has no public name
    torch.manual_seed(0)
    memory._record_memory_history(max_entries=MOST_EVENTS)  # noqa: SLF001
    if mode == "streams":
        streams(torch)
    elif mode == "capped":
        capped(torch)
    else:
        train(torch, autocast=False)
        train(torch, autocast=True)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    memory._dump_snapshot(path)  # noqa: SLF001
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "peak_reserved": stats["reserved_bytes.all.peak"],
                "peak_allocated": stats["allocated_bytes.all.peak"],
                "retries": stats["num_alloc_retries"],
                "ooms": stats["num_ooms"],
                "outside": torch.cuda.mem_get_info()[1]
                - torch.cuda.mem_get_info()[0]
                - stats["reserved_bytes.all.current"],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
