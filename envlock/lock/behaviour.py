"""What the smoke test measured: one record per device class, kept in ``[tool.envlock.behaviour]``.

A record holds raw figures and the conditions they were taken under, never a verdict. Two records
are comparable when schema, device class, threads and battery agree (``envlock.rules.behaviour``).
Every probe is either measured or unavailable with a reason; one that is left out was not asked for.
"""

from __future__ import annotations

from typing import Annotated, Literal

from envlock.lock.fields import Bytes, Count, Digest, Text
from envlock.lock.observation import NOT_RECORDED, Fact, Model
from envlock.lock.shape import Length, Matches, Within

BEHAVIOUR_SCHEMA: Literal["envlock.behaviour/1"] = "envlock.behaviour/1"

Name = Annotated[str, Matches(r"[a-z][a-z0-9_]{0,39}")]
"""Of a workload, a draw, a counter."""
HexFloat = Annotated[
    str,
    Matches(r"(nan|-?inf|-?0x[01]\.[0-9a-f]{1,13}p[+-]([0-9]{1,3}|10[01][0-9]|102[0-3]))"),
]
"""``float.hex()``, whose exponents end at 1023: where equality of bits is what is compared, and nan
must be sayable."""
Signed = Annotated[int, Within(1 - 2**63, 2**63)]
Seconds = Annotated[float, Within(0)]

Names = Annotated[list[Text], Length(10_000)]
Levels = Annotated[list[Bytes], Length(1000)]


class Unavailable(Model):
    """Could not run. Never a pass."""

    status: Literal["unavailable"]
    reason: Text


class Measured(Model):
    status: Literal["ok"]
    seconds: Seconds = 0.0
    skipped: dict[Name, Text] = {}
    """Items of this probe that could not run -> why."""


class NumericFigures(Model):
    loss: Annotated[list[HexFloat], Length(1000, least=1)]
    """Per step."""
    grad_norm: HexFloat
    """Of all parameters together, after the first backward pass."""
    update_ratio: HexFloat
    """Median over parameters of |change| / |value| in the first step."""
    parameters: Digest
    """Over the bytes of all parameters at the end."""


class Numerics(Measured):
    values: dict[Name, NumericFigures]
    control: dict[Name, NumericFigures] = {}
    """The same with a planted fault, which has to show: fewer steps are enough."""


class TensorFigures(Model):
    peak: Bytes
    step_end: Bytes
    """Alive after the last step."""
    left: Bytes
    """Alive after everything was dropped."""
    ops: Names = []
    """``add.Tensor x12``: operators with how often they ran."""


class TensorPeak(Measured):
    values: dict[Name, TensorFigures]
    control: dict[Name, Bytes] = {}


class Block(Model):
    size: Bytes
    count: Count


class StepAllocations(Model):
    count: Count
    total: Bytes
    multiset: Digest
    """Over the sorted sizes."""
    largest: Annotated[list[Block], Length(64)] = []


class AllocatorFigures(Model):
    peak: Bytes
    left: Signed
    step: StepAllocations
    """Of the last step."""


class AllocatorPeak(Measured):
    values: dict[Name, AllocatorFigures]
    control: dict[Name, Bytes] = {}


class OptimizerPeak(Measured):
    values: dict[Name, Bytes]
    """Tensor peak per implementation of the same optimizer."""


class LeakSlopes(Model):
    """Growth per training step; a counter that is left out could not be read."""

    malloc: Signed | None = None
    """Bytes the C library has handed out."""
    tensor: Signed | None = None
    """Bytes of tensor storages."""
    grad_fn: Signed | None = None
    """Tensors that hold on to a graph."""
    device: Signed | None = None
    """Bytes allocated on the GPU."""


class Leak(Measured):
    values: LeakSlopes
    control: LeakSlopes


class Rng(Measured):
    values: dict[Name, Annotated[str, Matches(r"[0-9a-f]{16}")]]
    """Draw -> digest of the first numbers after a fixed seed."""
    control_changed: Count
    """How many of the draws another seed changed: has to be all."""


class Precision(Measured):
    values: dict[Name, float]
    """Largest error of an operation against double precision, relative to the largest value."""
    control: dict[Name, float]
    """The same on operands rounded to bfloat16."""


class Fp16Range(Measured):
    values: dict[Name, dict[Name, Count]]
    """dtype -> way of computing -> the largest input scale whose result is finite."""


class SharedMemory(Measured):
    free: Bytes
    """Of /dev/shm, before."""
    largest_block: Bytes
    """Of the blocks tried, the largest that could be reserved."""
    refused_block: Bytes | None = None
    """Control: a block larger than what is free, which has to be refused."""
    batches: Count
    """Loader batches that arrived through /dev/shm..."""
    batches_wanted: Count
    batch_bytes: Bytes
    failure: Text | None = None
    oom_kills: Count | None = None
    """By this control group's memory limit, while the loader ran."""


class Limits(Measured):
    memory_limit: Fact[Bytes] = NOT_RECORDED
    physical_memory: Fact[Bytes] = NOT_RECORDED
    import_resident: Fact[Bytes] = NOT_RECORDED
    """Resident size after ``import torch``."""
    cpu_quota: Fact[float] = NOT_RECORDED
    cpus: Fact[Count] = NOT_RECORDED


class MemoryTimeline(Model):
    """Equal stretches of the operations, each with the most that was in use within it."""

    operations: Count
    allocated: Levels
    reserved: Levels


class SimulatedFigures(Model):
    requested: Bytes
    reserved: Bytes
    min_device: Bytes
    """The smallest card on which the trace finishes."""
    timeline: MemoryTimeline | None = None
    """To draw; not compared."""


class Simulated(Measured):
    """Under the user's allocator settings and the default ones, from a trace without a GPU."""

    values: dict[Name, SimulatedFigures]
    settings: dict[Name, Text] = {}


class Compile(Measured):
    values: dict[Name, Signed]


class Figures(Measured):
    """Of a GPU probe whose values are plain integers."""

    values: dict[Name, Signed]


class CudaAllocator(Measured):
    values: dict[Name, dict[Name, Signed]]
    """Loop -> allocated, reserved, requested, inactive (peaks in bytes), retries, ooms."""


class Probes(Model):
    rng: Rng | Unavailable | None = None
    numerics: Numerics | Unavailable | None = None
    precision: Precision | Unavailable | None = None
    fp16_range: Fp16Range | Unavailable | None = None
    tensor_peak: TensorPeak | Unavailable | None = None
    alloc_peak: AllocatorPeak | Unavailable | None = None
    optimizer: OptimizerPeak | Unavailable | None = None
    leak: Leak | Unavailable | None = None
    shm: SharedMemory | Unavailable | None = None
    limits: Limits | Unavailable | None = None
    sim: Simulated | Unavailable | None = None
    compile: Compile | Unavailable | None = None
    neighbours: Figures | Unavailable | None = None
    cuda_allocator: CudaAllocator | Unavailable | None = None
    outside: Figures | Unavailable | None = None
    workspaces: Figures | Unavailable | None = None
    pinned: Figures | Unavailable | None = None
    headroom: Figures | Unavailable | None = None
    snapshot: Figures | Unavailable | None = None


class RunLimits(Model):
    memory: Fact[Bytes] = NOT_RECORDED
    shm: Fact[Bytes] = NOT_RECORDED


class RunEnvironment(Model):
    """What selects the tolerance column, and what a report names beside a difference."""

    torch: Fact[Text] = NOT_RECORDED
    isa: Fact[Text] = NOT_RECORDED
    """``AVX2``, ``AVX512``, ``NEON``."""
    processor: Fact[Text] = NOT_RECORDED
    """Vendor, family and model: maths libraries choose their code by it."""
    gpu: Fact[Text] = NOT_RECORDED
    libs: dict[Name, Text] = {}
    user: dict[Text, Text] = {}
    """Switches and variables as the environment had them, before the battery pinned them."""
    limits: RunLimits = RunLimits()


class Noise(Model):
    neighbours: Count | None = None
    """Other processes on the GPU."""
    repeat_equal: bool | None = None
    """Whether a second run in a fresh process gave the same bits."""


class BehaviourRecord(Model):
    schema_: Literal["envlock.behaviour/1"]
    device_class: Literal["cpu", "cuda"]
    battery: Digest
    """Of the definition of all workloads: other workloads cannot be compared."""
    created: Text
    threads: Count
    env: RunEnvironment
    noise: Noise = Noise()
    probes: Probes


class Behaviour(Model):
    """Side by side, so that a machine without a GPU can compare the CPU record."""

    cpu: BehaviourRecord | None = None
    cuda: BehaviourRecord | None = None
