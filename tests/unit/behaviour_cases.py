"""For every rule on behaviour: what trips it, and the near miss that must not."""

from __future__ import annotations

from typing import Any

from tests.unit.behaviour_samples import (
    FLASH,
    MATH,
    OTHER_DIGEST,
    figures,
    numerics,
    record,
    step,
    tensors,
)

# What trips and what must not, per rule: (code, recorded, measured) and the near miss.
LEAK_OK = {"status": "ok", "control": {"malloc": 45_000}}


def probe(name: str, **fields: Any) -> dict[str, Any]:
    return record(**{name: {"status": "ok", **fields}})


def shm(**changes: Any) -> dict[str, Any]:
    made = {
        "free": 1 << 33,
        "largest_block": 96 << 20,
        "refused_block": 1 << 34,
        "batches": 8,
        "batches_wanted": 8,
        "batch_bytes": 12 << 20,
        "oom_kills": 0,
    }
    return probe("shm", **{**made, **changes})


def limits(limit: Any) -> dict[str, Any]:
    return probe("limits", memory_limit=limit, import_resident=400 << 20)


def sim(reserved: int) -> dict[str, Any]:
    made = {"requested": 10, "reserved": reserved, "min_device": 40}
    return probe("sim", values={"default": made})


def on_gpu(made: dict[str, Any]) -> dict[str, Any]:
    env = {**made["env"], "gpu": "NVIDIA H200"}
    return {**made, "device_class": "cuda", "env": env}


def gpu(name: str, **values: Any) -> dict[str, Any]:
    return on_gpu(probe(name, values=values))


def outside(count: int) -> dict[str, Any]:
    return gpu("outside", context=count)


LOADER_DIED = "RuntimeError: DataLoader worker (pid(s) 12) exited unexpectedly"
CASES: dict[str, tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any]]] = {
    "EL801": (
        record(),
        numerics(lm_fp32=figures(loss=[6.5 * 1.001, 6.0, 5.5])),
        numerics(),
    ),
    "EL802": (
        record(),
        numerics(lm_fp32=figures(update_ratio=(0.03).hex(), loss=[6.5, 5.6, 5.0])),
        numerics(),
    ),
    "EL803": (
        record(),
        numerics(lm_fp32=figures(grad_norm=(0.4).hex(), loss=[6.5, 5.9, 5.4])),
        numerics(),
    ),
    "EL804": (
        None,
        numerics(lm_fp32=figures(loss=[6.5, float("nan"), float("nan")])),
        numerics(lm_fp32=figures(loss=[6.5, 1e30, 1e-30])),
    ),
    "EL805": (
        None,
        record(leak={**LEAK_OK, "values": {"malloc": 8193}}),
        record(leak={**LEAK_OK, "values": {"malloc": 8192, "tensor": 0, "grad_fn": 0}}),
    ),
    "EL806": (
        record(),
        record(
            tensor_peak={
                "status": "ok",
                "values": {"lm_fp32": tensors(peak=1_000_004, ops=["add.Tensor x13", FLASH])},
            }
        ),
        record(),
    ),
    "EL807": (
        record(),
        record(
            alloc_peak={
                "status": "ok",
                "values": {"lm_fp32": {"peak": 1_100_001, "left": 0, "step": step()}},
            }
        ),
        record(),
    ),
    "EL808": (
        None,
        record(tensor_peak={"status": "ok", "values": {"lm_fp32": tensors(left=4)}}),
        record(),
    ),
    "EL809": (
        record(),
        record(
            tensor_peak={
                "status": "ok",
                "values": {"lm_fp32": tensors(peak=1_900_000, ops=["add.Tensor x12", MATH])},
            }
        ),
        record(
            tensor_peak={
                "status": "ok",
                "values": {"lm_fp32": tensors(ops=["add.Tensor x40", FLASH])},
            }
        ),
    ),
    "EL813": (
        record(),
        record(optimizer={"status": "ok", "values": {"adamw_loop": 20_000_000}}),
        record(optimizer={"status": "ok", "values": {"adamw_loop": 17_000_000}}),
    ),
    "EL819": (
        record(),
        record(
            alloc_peak={
                "status": "ok",
                "values": {
                    "lm_fp32": {
                        "peak": 1_100_000,
                        "left": 0,
                        "step": step(multiset=OTHER_DIGEST, count=11),
                    }
                },
            }
        ),
        record(),
    ),
    "EL829": (record(), numerics(lm_fp32=figures(parameters=OTHER_DIGEST)), numerics()),
    "EL810": (
        probe("precision", values={"matmul": 3e-7}, control={"matmul": 2e-3}),
        probe("precision", values={"matmul": 2e-3}, control={"matmul": 2e-3}),
        probe("precision", values={"matmul": 6e-7}, control={"matmul": 2e-3}),
    ),
    "EL811": (
        probe("fp16_range", values={"float16": {"sdpa": 64, "naive": 0}}),
        probe("fp16_range", values={"float16": {"sdpa": 28, "naive": 0}}),
        probe("fp16_range", values={"float16": {"sdpa": 64, "naive": 0}}),
    ),
    "EL812": (
        probe("rng", values={"dropout": "0" * 16}, control_changed=1),
        probe("rng", values={"dropout": "1" * 16}, control_changed=1),
        probe("rng", values={"dropout": "0" * 16}, control_changed=1),
    ),
    "EL814": (
        None,
        shm(free=60 << 20, batches=1, failure=LOADER_DIED),
        shm(),
    ),
    "EL815": (None, shm(batches=1, failure=LOADER_DIED, oom_kills=2), shm()),
    "EL816": (None, limits(500 << 20), limits(4 << 30)),
    "EL817": (sim(30), sim(34), sim(30)),
    "EL818": (
        probe("compile", values={"graphs_automatic": 2, "host_bytes_per_graph": 1_000_000}),
        probe("compile", values={"graphs_automatic": 8, "host_bytes_per_graph": 1_000_000}),
        probe("compile", values={"graphs_automatic": 2, "host_bytes_per_graph": 1_200_000}),
    ),
    "EL820": (
        None,
        gpu("neighbours", processes=1, used=8 << 30),
        gpu("neighbours", processes=0, used=8 << 20),
    ),
    "EL821": (
        gpu("cuda_allocator", lm_fp32={"reserved": 40 << 20}),
        gpu("cuda_allocator", lm_fp32={"reserved": 42 << 20}),
        gpu("cuda_allocator", lm_fp32={"reserved": 40 << 20}),
    ),
    "EL822": (
        None,
        gpu("cuda_allocator", lm_fp32={"num_ooms": 0, "num_alloc_retries": 1}),
        gpu("cuda_allocator", lm_fp32={"num_ooms": 0, "num_alloc_retries": 0}),
    ),
    "EL823": (outside(287 << 20), outside(667 << 20), outside(288 << 20)),
    "EL824": (
        gpu("workspaces", conv3d_cudnn=1 << 20),
        gpu("workspaces", conv3d_cudnn=4 << 20),
        gpu("workspaces", conv3d_cudnn=1 << 20),
    ),
    "EL825": (
        gpu("pinned", prefetch_2=100 << 20),
        gpu("pinned", prefetch_2=120 << 20),
        gpu("pinned", prefetch_2=104 << 20),
    ),
    "EL826": (
        gpu("headroom", batch=200, budget=1 << 31),
        gpu("headroom", batch=190, budget=1 << 31),
        gpu("headroom", batch=200, budget=1 << 31),
    ),
    "EL827": (
        None,
        gpu("snapshot", allocations=400, decisions_right=399),
        gpu("snapshot", allocations=400, decisions_right=400),
    ),
    "EL893": (
        None,
        record(leak={"status": "ok", "values": {"malloc": 10}, "control": {"malloc": 10}}),
        record(leak={"status": "ok", "values": {"malloc": 10}, "control": {"malloc": 40_000}}),
    ),
}
