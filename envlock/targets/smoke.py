"""Run the smoke battery in a target and make one record of what it answers."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from envlock.errors import InputError, TargetError
from envlock.lock.behaviour import BEHAVIOUR_SCHEMA, Behaviour, BehaviourRecord
from envlock.lock.observation import value_of
from envlock.lock.shape import ShapeError
from envlock.lock.strict import spot
from envlock.targets.base import PROBES, ProbeCall, ProgressLines, Target
from envlock.targets.bundle import bundle
from envlock.targets.simulate import check_model, simulate

CPU_BATTERY = ("env", "numerics", "memory", "leak", "shm", "trace")
CUDA_BATTERY = ("cuda", "env", "numerics", "memory", "leak", "shm", "snapshot")
"""Groups of probes, each of which the probe runs in a process of its own. "compile" takes longest
and is only run when asked for."""

TIMEOUT_S = 600.0

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeCall(ProbeCall):
    """The call whose program is also a value in itself: the probe feeds it to its children."""

    def source(self) -> bytes:
        program = bundle(PROBES, self.probe).decode("ascii")
        return f"PROGRAM = {program!a}\nexec(PROGRAM)\n".encode("ascii")


def measure(
    target: Target,
    *,
    device: Device = "cpu",
    battery: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> BehaviourRecord:
    """Run the groups of probes in the target and return their figures.

    Raises TargetError when the target cannot be run or answers with something else. A probe that
    cannot run there is no error: the record says so with the reason.
    """
    if battery is None:
        battery = CPU_BATTERY if device == "cpu" else CUDA_BATTERY
    progress(f"running the smoke test on {device} in {target.describe()}")
    options = {
        "device": device,
        "groups": list(battery),
        # On a GPU some kernels are not repeatable, and the limits have to know.
        "repeat": device == "cuda" and "numerics" in battery,
    }
    call = SmokeCall(
        probe="smoke",
        arguments=[json.dumps(options)],
        timeout_s=TIMEOUT_S,
        on_stderr=ProgressLines(
            lambda done, total: progress(f"smoke test: {done} of {total} groups done")
        ),
    )
    answer = target.run_probe(call)
    try:
        return BehaviourRecord.read(_record(answer, device))
    except (ShapeError, KeyError, TypeError, ValueError, AttributeError) as error:
        detail = spot(error.path) if isinstance(error, ShapeError) else error
        raise TargetError(
            f"the smoke probe's answer does not fit its schema at {detail}",
            hint="something in the target changed the answer on its way",
        ) from error


def measure_devices(
    target: Target, *, progress: Callable[[str], None] = lambda _: None
) -> Behaviour:
    """The record of the CPU, and beside it that of the GPU where torch finds one."""
    cpu = measure(target, progress=progress)
    if value_of(cpu.env.gpu) is None:
        return Behaviour(cpu=cpu)
    return Behaviour(cpu=cpu, cuda=measure(target, device="cuda", progress=progress))


def _simulated(probe: Mapping[str, Any], env: Mapping[str, Any]) -> dict[str, Any]:
    """The traced allocations, played to the allocator model of this torch release."""
    try:
        figures = simulate(_trace(probe["values"]), str(env.get("torch")), env.get("user", {}))
    except InputError as error:
        return {"status": "unavailable", "reason": error.message}
    return {"seconds": probe["seconds"], **figures}


def _replayed(probe: Mapping[str, Any], env: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded allocations of the card, compared with what the allocator model decides."""
    try:
        figures = check_model(probe["values"], str(env.get("torch")), env.get("user", {}))
    except InputError as error:
        return {"status": "unavailable", "reason": error.message}
    return {"status": "ok", "seconds": probe["seconds"], "values": figures}


def _trace(events: Sequence[Any]) -> list[tuple[int, int]]:
    """Raises TypeError or ValueError for anything that is no list of allocations and releases."""
    live: set[int] = set()
    trace = []
    for block, size in events:
        if not (isinstance(block, int) and isinstance(size, int) and 0 <= size < 1 << 40):
            raise TypeError("an event of the trace is not two integers")
        if (block in live) is (size > 0):
            raise ValueError("a block of the trace is allocated twice, or released before")
        (live.add if size else live.remove)(block)
        trace.append((block, size))
    return trace


def _whole(probe: dict[str, Any]) -> dict[str, Any]:
    """A probe of which a step ended early that gives its own figures, not those of one workload.

    What was measured before is no complete answer: a kill by the memory limit ends here.
    """
    skipped = probe.get("skipped")
    if isinstance(skipped, dict) and "all" in skipped:
        return {"status": "unavailable", "reason": skipped["all"]}
    return probe


def _record(answer: Mapping[str, Any], device: str) -> dict[str, Any]:
    env = {}
    noise = dict(answer["noise"])
    probes: dict[str, Any] = {}
    for name, probe in answer["probes"].items():
        if name == "env":
            env = probe.get("values", {})
        else:
            probes[name] = _whole(probe)
    for name, judge in (("sim", _simulated), ("snapshot", _replayed)):
        if probes.get(name, {}).get("status") == "ok":
            probes[name] = judge(probes[name], env)
    neighbours = probes.get("neighbours", {}).get("values")
    if neighbours:
        noise["neighbours"] = neighbours["processes"]
    return {
        "schema": BEHAVIOUR_SCHEMA,
        "device_class": device,
        "battery": answer["battery"],
        "created": dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "threads": answer["threads"],
        "env": env,
        "noise": noise,
        "probes": probes,
    }
