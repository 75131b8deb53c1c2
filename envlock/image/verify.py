"""Is an image what its lock says? Observe inside, hash every file, run the smoke test, compare.

The machine (driver, GPUs, kernel, limits) is not the image's: the two sides are compared on what an
image can hold. What the image claims is read with envlock's own probes, inside it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from envlock.diff.judge import Judgement, judge_pair
from envlock.diff.policy import Policy, apply_policy
from envlock.errors import InputError, NothingComparedError
from envlock.findings import Report
from envlock.image.gates import judge_gates
from envlock.image.plan import LABEL, LOCK_PATH, runtime_env
from envlock.image.smoke import DeviceClass, record_of
from envlock.lock.behaviour import BehaviourRecord
from envlock.lock.fields import Text
from envlock.lock.io import parse_lock
from envlock.lock.machine import System
from envlock.lock.model import Lock
from envlock.lock.observation import (
    ABSENT,
    NOT_RECORDED,
    Absent,
    Fact,
    FileCheck,
    Observation,
    Unknown,
)
from envlock.rules.behaviour import judge_behaviour
from envlock.rules.behaviour_tolerances import Tolerance
from envlock.targets.container import ContainerOptions, ImageTarget
from envlock.targets.engine import Engine, ImageInfo, check_reference
from envlock.targets.observe import observe
from envlock.targets.process import Limits
from envlock.targets.smoke import measure

_MACHINE = ("driver", "gpus", "limits", "indexes", "toolkit", "seeds")
"""Sections of an observation that say where an image ran, not what is in it."""
_READ_FILE = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read(67108865))"


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyOptions:
    say: Callable[[str], None]
    lock: Lock | None = None
    """None: the lock inside the image."""
    device: DeviceClass = "cpu"
    smoke: bool = True
    limits: Mapping[str, Tolerance] | None = None
    """Of the smoke test; None: envlock's own."""
    policy: Policy = field(default_factory=Policy)
    """What is let through, and what is demanded besides."""
    container: ContainerOptions = field(default_factory=ContainerOptions)
    progress: Callable[[int, int], None] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What was found, and what it was found from."""

    report: Report
    expected: Observation
    """What the lock says that an image of it holds."""
    found: Observation
    recorded: BehaviourRecord | None
    """The smoke test's record in the lock."""
    measured: BehaviourRecord | None
    """None where it did not run."""
    layers: Sequence[tuple[str, int]]
    """What made each layer, by the image's own word, and its bytes; the lowest first."""


def verify(name: str, options: VerifyOptions) -> Verified:
    """One container start; the image is resolved to its id once.

    Raises InputError without a lock, TargetError when the image cannot be run.
    """
    check_reference(name)
    engine = Engine.connect()
    image = engine.resolve(name)
    options.say(f"verifying image:{name} ({image.image_id})")
    with ImageTarget(engine=engine, image=image, options=options.container) as target:
        lock = options.lock or embedded_lock(target, image)
        found = observe(
            target, deep=True, check_files=True, progress=options.progress, say=options.say
        )
        measured = None
        if options.smoke and not isinstance(found.torch, Absent | Unknown):
            measured = measure(target, device=options.device, progress=options.say)
    judgement = joined(judge_image(lock, found), judge_gates(options.policy, lock, image, found))
    if measured is not None:
        judgement = joined(judgement, behaviour_judgement(lock, measured, options.limits))
    report = Report(
        command="verify",
        left=f"lock {lock.table.id.rpartition(':')[2][:12]}",
        right=f"image:{image.image_id[:19]}"
        if name == image.image_id
        else f"image:{name} ({image.image_id[:19]})",
        findings=judgement.findings,
        checked=judgement.checked,
        unknown=judgement.unknown,
    )
    applied = apply_policy(options.policy, report, dt.date.today())  # noqa: DTZ011 - a day
    for waiver in applied.idle:
        options.say(f"note: nothing here needs the waiver of {waiver.code} ({waiver.reason})")
    return Verified(
        report=applied.report,
        expected=expected(lock, found),
        found=image_side(found),
        recorded=record_of(lock, options.device),
        measured=measured,
        layers=engine.layer_sizes(image.image_id),
    )


def embedded_lock(target: ImageTarget, image: ImageInfo) -> Lock:
    """The lock that the image carries; raises InputError when it carries none."""
    path = image.labels.get(f"{LABEL}.lock.path", LOCK_PATH)
    done = target.run(
        [target.interpreter, "-I", "-S", "-c", _READ_FILE, path],
        limits=Limits(timeout_s=60, stdout_bytes=68 << 20),
    )
    if done.code != 0:
        raise InputError(
            f"image {image.reference} carries no lock at {LOCK_PATH}",
            hint="name the lock it should match: envlock verify IMAGE --lock LOCK",
        )
    return parse_lock(done.stdout, f"the lock inside {image.reference}")


def judge_image(lock: Lock, found: Observation) -> Judgement:
    """Compare what an image holds with what the lock says it holds."""
    judgement = judge_pair(expected(lock, found), image_side(found), exact=True)
    if judgement.checked == 0:
        raise NothingComparedError("nothing in the image could be compared with the lock")
    return judgement


def expected(lock: Lock, found: Observation) -> Observation:
    """The lock's observation as an image of it would give it: only what an image can hold.

    An image sets the variables of ``image.env`` and no others, whatever the shell of the person
    who captured had set.
    """
    names = found.env if isinstance(found.env, dict) else {}
    env: dict[Text, Fact[Text]] = dict.fromkeys(names, ABSENT)
    env.update({n: v for n, v in runtime_env(lock) if n in names})
    env.update(lock.table.image.env)
    files = found.files
    if isinstance(files, FileCheck):  # an image of the lock has them all, unaltered
        files = FileCheck(checked=files.checked)
    packages = _packages(lock, found)
    return image_side(lock.observed).changed(env=env, files=files, packages=packages)


def _packages(lock: Lock, found: Observation) -> object:
    """The lock's. What an image built from source is another build: its bytes cannot be promised."""
    packages, there = lock.observed.packages, found.packages
    if not isinstance(packages, dict) or not isinstance(there, dict):
        return packages
    built = {package.name for package in lock.packages if not package.wheels}
    reason = Unknown(unknown="built from source in the image: not the bytes of the captured build")
    return {
        name: package.changed(record=reason)
        if name in built and name in there and there[name].record != package.record
        else package
        for name, package in packages.items()
    }


def image_side(observation: Observation) -> Observation:
    """Without the machine that it was read on."""
    machine = dict.fromkeys(_MACHINE, NOT_RECORDED)
    system = observation.system
    if isinstance(system, System):
        kept = {name: getattr(system, name) for name in ("os", "arch", "glibc", "glibcxx")}
        machine["system"] = System(**kept)  # type: ignore[assignment]
    return observation.changed(**machine)


def behaviour_judgement(
    lock: Lock, measured: BehaviourRecord, limits: Mapping[str, Tolerance] | None = None
) -> Judgement:
    recorded = record_of(lock, measured.device_class)
    findings, checked, unknown = judge_behaviour(recorded, measured, limits=limits)
    return Judgement(findings=findings, checked=checked, unknown=unknown)


def joined(first: Judgement, second: Judgement) -> Judgement:
    """Both judgements as one; at equal severity what is installed comes before what it does."""
    findings = sorted((*first.findings, *second.findings), key=lambda f: f.severity.rank)
    return replace(
        first,
        findings=tuple(findings),
        checked=first.checked + second.checked,
        unknown=(*first.unknown, *second.unknown),
    )
