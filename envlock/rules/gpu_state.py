"""What each GPU does at this moment: memory that others hold, heat, power and persistence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envlock.findings import Severity
from envlock.rules import reading
from envlock.rules.base import Env, Fault, check

_GIB = 2**30
_HELD_BACK = {
    "hw-slowdown": "the hardware protects itself",
    "hw-thermal": "it is too hot",
    "hw-power-brake": "the power supply asks for it",
    "sw-thermal": "it is near its temperature limit",
}


def _states(env: Env, fact: str) -> Iterator[tuple[int, Any]]:
    """(index, value) of every GPU of which a fact is known; undecided where it is of none."""
    paths = {f"gpus.{index}": index for index in range(reading.gpu_count(env))}
    for path in reading.where_known(env, paths, fact):
        yield paths[path], env.peek(f"{path}.{fact}")


@check("EL513", Severity.WARNING)
def memory_in_use(env: Env) -> Iterator[Fault]:
    """Other processes hold GPU memory.

    What they hold is missing from the start, and what they take later is missing then: the usual
    reason for an out-of-memory error that comes and goes.

    To do: `nvidia-smi` shows the processes; end them or choose another GPU.
    """
    for index, used in _states(env, "used_bytes"):
        total = env.need(f"gpus.{index}.memory_bytes")
        # A driver without processes reports some hundred MiB of its own.
        if used > max(0.05 * total, _GIB):
            yield Fault(
                subject=f"gpus.{index}.used_bytes",
                message=f"Other processes hold {used / _GIB:.1f} of {total / _GIB:.1f} GiB of "
                f"GPU {index}.",
                hint="nvidia-smi shows the processes; end them or choose another GPU",
                evidence=(f"gpus.{index}.memory_bytes",),
            )


@check("EL514", Severity.WARNING, in_rebuild=False)
def throttled(env: Env) -> Iterator[Fault]:
    """The GPU is slowed down by heat or by its power supply.

    The driver gives the reason at this moment (`nvidia-smi -q -d PERFORMANCE`). A GPU that is slow
    before the run starts will be slower under load; all ranks of a job wait for the slowest one.
    Not counted: the power cap that every GPU reaches under full load, and clocks set on purpose.

    To do: look at temperature, fans and power cables; take the GPU out of the job.
    """
    for index, reasons in _states(env, "slowed_by"):
        why = [_HELD_BACK[reason] for reason in reasons if reason in _HELD_BACK]
        if why:
            yield Fault(
                subject=f"gpus.{index}.slowed_by",
                message=f"GPU {index} is slowed down: {' and '.join(why)}.",
                hint="nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
                evidence=(f"gpus.{index}.name", f"gpus.{index}.sm_clock_mhz"),
            )


@check("EL515", Severity.WARNING, in_rebuild=False)
def lowered_limits(env: Env) -> Iterator[Fault]:
    """The GPU's power limit is set well below its default.

    Somebody lowered it with `nvidia-smi -pl`, for noise, heat or a weak power supply. Results stay
    the same; a run takes longer, and figures of speed do not compare. Named below 90%.

    To do: `nvidia-smi -pl WATTS` with the default, if nobody needs the lower limit.
    """
    for index, limit in _states(env, "power_limit_w"):
        usual = env.peek(f"gpus.{index}.default_power_limit_w")
        if usual and limit < 0.9 * usual:
            yield Fault(
                subject=f"gpus.{index}.power_limit_w",
                message=f"GPU {index} may draw {limit} W, {usual} W is its default: it is slower.",
                hint=f"nvidia-smi -i {index} -pl {usual}",
                evidence=(f"gpus.{index}.default_power_limit_w", f"gpus.{index}.name"),
            )


@check("EL516", Severity.INFO, in_rebuild=False)
def no_persistence(env: Env) -> Iterator[Fault]:
    """Persistence mode is off.

    Whenever the last process leaves the GPU, the driver lets go of it: the next start takes seconds
    longer, and clocks, power limits and error counters that were set or counted are forgotten.
    Only told before a run, since it is no difference between two environments.

    To do: `nvidia-smi -pm 1`, or run nvidia-persistenced.
    """
    env.need("preflight")
    for index, persistence in _states(env, "persistence"):
        if not persistence:
            yield Fault(
                subject=f"gpus.{index}.persistence",
                message=f"The driver lets go of GPU {index} between processes: slower starts, and "
                "its settings are forgotten.",
                hint="nvidia-smi -pm 1",
                evidence=(f"gpus.{index}.name",),
            )
