"""On which machines a lock can run, decided without one: driver, GPU, C library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from envlock.diff.judge import Judgement, Status, judge_one
from envlock.facts import driver_floor, gpu_arch_of_name, toolkit_driver
from envlock.findings import Evidence, Finding, Severity, Side
from envlock.lock.machine import Driver, Gpu, System
from envlock.lock.observation import ABSENT, NOT_RECORDED, Observation, Unknown, value_of
from envlock.rules import reading
from envlock.rules import requirements as pages
from envlock.rules.base import DoesNotApplyError, Env, Rule, UndecidedError
from envlock.rules.system import newest_glibc_needed
from envlock.rules.wording import listed, some

_OF_GPU = frozenset({"EL501", "EL502", "EL725"})
_OF_DRIVER = frozenset({"EL401"})
_OF_GLIBC = frozenset({"EL601"})
MACHINE_CODES = _OF_GPU | _OF_DRIVER | _OF_GLIBC
"""Findings that depend on what was asked for; everything else is the lock's own affair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The machine that is asked about; None where the question leaves it open."""

    gpu: str | None = None
    """A compute capability (``8.6``, ``gfx90a``) or a product name."""
    driver: str | None = None
    glibc: str | None = None

    @property
    def codes(self) -> frozenset[str]:
        """The checks that this question needs."""
        asked = (self.gpu, _OF_GPU), (self.driver, _OF_DRIVER), (self.glibc, _OF_GLIBC)
        return frozenset(code for part, codes in asked if part for code in codes)

    def __str__(self) -> str:
        parts = (("GPU", self.gpu), ("driver", self.driver), ("glibc", self.glibc))
        return ", ".join(f"{name} {value}" for name, value in parts if value)


def requirements(observation: Observation) -> tuple[Finding, ...]:
    """What a machine must have: one note each for driver, kernels, C library and interpreter."""
    return tuple(_needs(Env(observation, Side.RIGHT)))


def _note(rule: Rule, env: Env, subject: str, message: str, paths: tuple[str, ...]) -> Finding:
    evidence = tuple(Evidence(side=Side.RIGHT, path=p, value=env.peek(p)) for p in paths)
    return Finding(
        code=rule.code, severity=rule.severity, subject=subject, message=message, evidence=evidence
    )


def _needs(env: Env) -> Iterator[Finding]:
    cuda = reading.torch_cuda(env)
    floor = driver_floor(cuda.value) if cuda else None
    if cuda and floor:
        native = toolkit_driver(cuda.value)
        more = f" ({native} or newer to compile PTX as well)" if native else ""
        yield _note(
            pages.DRIVER,
            env,
            "driver.version",
            f"Needs an NVIDIA driver {floor.driver} or newer, for CUDA {cuda.value}{more}.",
            (cuda.path,),
        )
    try:
        arches = reading.torch_arches(env)
    except (UndecidedError, DoesNotApplyError):
        pass
    else:
        plain = [a for a in arches.names if not a.startswith("compute_")]
        ptx = [a for a in arches.names if a.startswith("compute_")]
        tail = f", and PTX ({listed(ptx)}) for newer ones" if ptx else "; no PTX for newer ones"
        text = f"Has kernels for {listed(plain)}{tail}."
        yield _note(pages.KERNELS, env, "torch.arch_list", text, arches.paths)
    needed = newest_glibc_needed(env)
    if needed is not None:
        text = f"Needs glibc 2.{needed[0]} or newer, for {some(needed[1])}."
        yield _note(pages.GLIBC, env, "system.glibc", text, ())
    python = env.peek("python.version")
    if python:
        arch = env.peek("system.arch")
        where = f" on {arch}" if arch else ""
        text = f"Needs Python {python.rpartition('.')[0]}{where}: the wheels are built for it."
        yield _note(pages.PYTHON, env, "python.version", text, ("python.version", "system.arch"))


def on_machine(observation: Observation, machine: Machine) -> Judgement:
    """Whether the lock runs on a machine: its notes, and an error for each thing that forbids it.

    ``unknown`` names what was asked and cannot be answered. Then, unless an error decides it
    anyway, nothing counts as checked: the question as a whole has no answer.
    """
    judged = judge_one(_moved(observation, machine))
    outcomes = tuple(o for o in judged.outcomes if o.code in MACHINE_CODES)
    undecided = [
        o.why for o in outcomes if o.code in machine.codes and o.status is Status.NOT_CHECKABLE
    ]
    faults = tuple(f for f in judged.findings if f.code in MACHINE_CODES)
    decided = sum(o.status in {Status.PASSED, Status.FAILED} for o in outcomes)
    notes = requirements(observation)
    forbidden = any(f.severity is Severity.ERROR for f in faults)
    return Judgement(
        findings=(*faults, *notes),
        checked=0 if undecided and not forbidden else decided + len(notes),
        unknown=tuple(dict.fromkeys(undecided)),
        outcomes=outcomes,
    )


def _moved(observation: Observation, machine: Machine) -> Observation:
    """The observation with the machine's facts in place of those it was captured on."""
    system = value_of(observation.system) or System()
    changes: dict[str, Any] = {
        "driver": NOT_RECORDED,
        "gpus": NOT_RECORDED,
        "system": system.changed(glibc=machine.glibc or NOT_RECORDED, container=NOT_RECORDED),
    }
    if machine.driver:
        changes["driver"] = Driver(version=machine.driver, compat=ABSENT)
    if machine.gpu:
        changes["gpus"] = [_gpu(machine.gpu)]
    return observation.changed(**changes)


def _gpu(text: str) -> Gpu:
    if re.fullmatch(r"\d{1,2}\.\d|gfx[0-9a-f]{3,5}", text):
        return Gpu(compute_capability=text)
    if found := re.fullmatch(r"sm_(\d{1,2})(\d)[af]?", text):
        return Gpu(compute_capability=f"{found[1]}.{found[2]}")
    arch = gpu_arch_of_name(text)
    unlisted = Unknown(unknown=f"no GPU named {text!r} is in the tables")
    return Gpu(name=text, compute_capability=arch.capability if arch else unlisted)
