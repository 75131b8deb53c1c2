"""Every probe shows that it can fail: faults planted inside, in a real torch.

The probe's own modules are imported by the interpreter that has torch, with a fault each, and have
to see it; beside it stands what must not be seen.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from envlock.targets.base import PROBES
from tests.torch.interpreter import torch_python

PRELUDE = """
import json, sys
import torch, torch.utils.checkpoint
import smoke_allocator, smoke_host, smoke_kernels, smoke_memory, smoke_numerics, smoke_shm
import smoke_trace, smoke_workloads
smoke_host.pin(torch, 1)
workloads = smoke_workloads.Workloads(torch)
found = {}
"""


def measured(program: str, *, environment: dict[str, str] | None = None) -> Any:
    """What the program leaves in ``found``."""
    done = subprocess.run(
        [torch_python(), "-B", "-c", f"{PRELUDE}{program}\nprint('found', json.dumps(found))"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROBES), **(environment or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("found "))
    return json.loads(line.removeprefix("found "))


LEAKS = """
def clean(loop, kept, loss): pass
def item(loop, kept, loss): kept.append(loss.item())
def loss_kept(loop, kept, loss): kept.append(loss)
def total(loop, kept, loss): kept[:] = [sum(kept) + loss]
def no_no_grad(loop, kept, loss): kept.append(loop.forward())
def retained(loop, kept, loss):
    again = loop.forward()
    again.backward(retain_graph=True)
    kept.append(again)
def small_tensor(loop, kept, loss): kept.append(torch.zeros(256))
def small_bytes(loop, kept, loss): kept.append(bytes(4096))

for plant in (
    clean, item, loss_kept, total, no_no_grad, retained, small_tensor, small_bytes
):
    loop, kept = workloads.build("lm_fp32"), []
    found[plant.__name__] = smoke_memory.leak_slopes(
        torch, loop, lambda loss: plant(loop, kept, loss)
    )
    del loop, kept
logits = []
loop = workloads.build("lm_fp32", keep_logits=logits)
found["logits_kept"] = smoke_memory.leak_slopes(torch, loop)
"""

LIMIT, STRICT = 8192, 2048


@pytest.fixture(scope="module")
def slopes() -> Any:
    return measured(LEAKS)


@pytest.mark.parametrize("loop", ["clean", "item"])
def test_a_clean_loop_does_not_grow(slopes: Any, loop: str) -> None:
    assert slopes[loop]["tensor"] == slopes[loop]["grad_fn"] == 0
    assert abs(slopes[loop]["malloc"]) < STRICT


@pytest.mark.parametrize(
    ("loop", "counters"),
    [
        ("loss_kept", {"malloc", "tensor", "grad_fn"}),
        ("total", {"malloc"}),
        ("no_no_grad", {"malloc", "tensor", "grad_fn"}),
        ("retained", {"malloc", "tensor", "grad_fn"}),
        ("logits_kept", {"malloc", "tensor", "grad_fn"}),
        ("small_tensor", {"tensor"}),
        ("small_bytes", set[str]()),
    ],
)
def test_a_planted_leak_is_seen_by_the_named_counters(
    slopes: Any, loop: str, counters: set[str]
) -> None:
    limits = {"malloc": LIMIT, "tensor": 0, "grad_fn": 0}
    assert {name for name, slope in slopes[loop].items() if slope > limits[name]} == counters


def test_a_stricter_limit_sees_plain_bytes_and_still_no_clean_loop(slopes: Any) -> None:
    assert slopes["small_bytes"]["malloc"] > STRICT


@pytest.fixture(scope="module")
def numbers() -> Any:
    return measured("""
def first(name, steps=10, **changes):
    made = smoke_numerics.numerics(workloads, name, steps, **changes)
    floats = [float.fromhex(text) for text in made["loss"]]
    return {
        "loss": floats,
        "norm": float.fromhex(made["grad_norm"]),
        "ratio": float.fromhex(made["update_ratio"]),
        "parameters": made["parameters"],
    }
for name in ("lm_fp32", "conv"):
    found[name] = first(name)
found["again"] = first("lm_fp32")
found["lr_x2"] = first("lm_fp32", lr=2e-3)
found["labels"] = first("lm_fp32", shift_labels=True)
found["evaluate"] = first("conv", evaluate=True)
found["bright"] = first("conv", input_scale=256.0)
""")


def relative(one: float, other: float) -> float:
    return abs(other - one) / abs(one)


def test_a_repeated_run_has_the_same_bits(numbers: Any) -> None:
    assert numbers["again"] == numbers["lm_fp32"]


def test_a_doubled_learning_rate_shows_in_the_update_first(numbers: Any) -> None:
    clean, doubled = numbers["lm_fp32"], numbers["lr_x2"]
    assert doubled["loss"][0] == clean["loss"][0]
    assert doubled["norm"] == clean["norm"]
    assert relative(clean["ratio"], doubled["ratio"]) == pytest.approx(1.0, abs=0.01)
    assert relative(clean["loss"][9], doubled["loss"][9]) > 0.1


def test_shifted_labels_show_in_the_first_loss(numbers: Any) -> None:
    assert relative(numbers["lm_fp32"]["loss"][0], numbers["labels"]["loss"][0]) > 1e-4


def test_batch_norm_in_evaluation_mode_shows_in_the_gradient(numbers: Any) -> None:
    assert relative(numbers["conv"]["norm"], numbers["evaluate"]["norm"]) > 0.3


def test_batch_norm_hides_the_scale_of_inputs(numbers: Any) -> None:
    """Why no control may rely on a network with batch norm."""
    assert relative(numbers["conv"]["loss"][0], numbers["bright"]["loss"][0]) < 1e-2


@pytest.fixture(scope="module")
def memory() -> Any:
    return measured("""
def peaks(name, **changes):
    workloads.build(name, **changes).step()
    return {
        "tensor": smoke_memory.tensor_peak(torch, workloads, name, **changes),
        "alloc": smoke_allocator.allocator_peak(torch, workloads, name, **changes),
    }
found["lm"] = peaks("lm_fp32")
found["again"] = peaks("lm_fp32")
found["batch_9"] = peaks("lm_fp32", batch=9)
kept = []
found["kept"] = peaks("lm_fp32", keep_logits=kept)
found["fused"] = peaks("sdpa_causal")
for name in ("adamw_loop", "adamw_foreach"):
    found[name] = smoke_allocator.optimizer_peak(torch, workloads, name)
smoke_host.plain_attention_only(torch)
found["plain"] = peaks("sdpa_causal")
""")


def test_memory_figures_repeat_to_the_byte(memory: Any) -> None:
    assert memory["again"] == memory["lm"]
    assert memory["lm"]["tensor"]["left"] == memory["lm"]["alloc"]["left"] == 0


@pytest.mark.parametrize("counter", ["tensor", "alloc"])
def test_more_work_needs_more_memory(memory: Any, counter: str) -> None:
    lm, plain = memory["lm"][counter]["peak"], memory["plain"][counter]["peak"]
    assert relative(lm, memory["batch_9"][counter]["peak"]) > 0.05
    assert relative(lm, memory["kept"][counter]["peak"]) > 0.02
    assert plain > 1.5 * memory["fused"][counter]["peak"]


def test_kept_logits_are_left_behind(memory: Any) -> None:
    assert memory["kept"]["tensor"]["left"] > 1_000_000
    assert memory["kept"]["alloc"]["left"] > 1_000_000


def test_the_allocator_holds_kernel_scratch_besides_the_tensors(memory: Any) -> None:
    assert memory["fused"]["alloc"]["peak"] > memory["fused"]["tensor"]["peak"]


def test_the_multi_tensor_optimizer_needs_more(memory: Any) -> None:
    assert memory["adamw_foreach"] > 1.1 * memory["adamw_loop"]


def test_another_attention_kernel_is_another_operator(memory: Any) -> None:
    fused, plain = (memory[name]["tensor"]["ops"] for name in ("fused", "plain"))
    assert any("attention" in op for op in fused)
    assert not any("attention" in op for op in plain)


@pytest.fixture(scope="module")
def kernels() -> Any:
    return measured("""
found["precision"] = smoke_kernels.precision(torch, workloads)
found["rounded"] = smoke_kernels.precision(torch, workloads, round_operands=True)
found["range"] = {
    name: smoke_kernels.half_range(torch, workloads, getattr(torch, name))
    for name in ("float16", "bfloat16")
}
draws = smoke_kernels.random_draws(torch, "cpu")
for seed in (1, 1, 2):
    found.setdefault("draws", []).append(
        {name: smoke_kernels.draw(torch, make, seed) for name, make in draws.items()}
    )
""")


def test_bf16_operands_are_told_from_single_precision(kernels: Any) -> None:
    assert max(kernels["precision"].values()) < 2e-6
    assert min(kernels["rounded"].values()) > 8e-4


def test_naive_attention_overflows_where_softmax_does_not(kernels: Any) -> None:
    half = kernels["range"]["float16"]
    assert half["naive"] == 0
    assert 8 <= half["softmax"] < 64
    assert kernels["range"]["bfloat16"]["softmax"] == 64


def test_a_draw_repeats_with_its_seed_and_changes_with_another(kernels: Any) -> None:
    one, again, other = kernels["draws"]
    assert len(one) == 22
    assert one == again
    assert [name for name in one if one[name] == other[name]] == []


def test_a_block_larger_than_shared_memory_is_refused() -> None:
    found = measured("found.update(smoke_shm.blocks())")
    assert found["refused_block"] > found["free"]
    assert found["largest_block"] > 0


def test_a_loader_that_fails_says_so_instead_of_passing() -> None:
    """Batches that no machine can hold, so that the workers die for want of memory."""
    found = measured(
        "found.update(smoke_shm.load_batches(torch, item_elements=1 << 45, batches=2))"
    )
    assert found["batches"] < found["batches_wanted"]
    assert found["failure"]


def test_a_trace_has_every_block_released(tmp_path: Path) -> None:
    trace = measured("found['trace'] = smoke_trace.record_trace(torch)")["trace"]
    live: dict[int, int] = {}
    for block, size in trace:
        if size:
            assert block not in live
            live[block] = size
        else:
            del live[block]
    assert live == {}
    assert len(trace) > 1000
