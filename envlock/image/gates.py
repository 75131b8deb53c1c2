"""What is checked of an image as a whole: its layers, its size, its base, where it has to run."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from envlock.diff.judge import Judgement, Status
from envlock.diff.policy import Policy
from envlock.diff.requires import Machine, on_machine
from envlock.findings import Finding, JsonValue, Severity
from envlock.image.assemble import ENGINE
from envlock.lock.model import BaseImage, Lock
from envlock.lock.observation import Observation
from envlock.rules import image_gates as pages
from envlock.rules.base import Rule
from envlock.targets.image_info import ImageInfo


def judge_gates(policy: Policy, lock: Lock, image: ImageInfo, found: Observation) -> Judgement:
    """``found``: what was observed inside. Every gate that is asked for is decided or a finding."""
    findings: list[Finding] = []
    unknown: list[str] = []
    checked = 0
    for outcome in (
        *_layers(lock, image),
        *_triggers(image),
        *_size(policy, image),
        *_base(policy, lock, image),
    ):
        checked += 1
        findings += [outcome] if outcome is not None else []
    for machine in _machines(policy):
        judged = on_machine(found, machine)
        errors = [f for f in judged.findings if f.severity is Severity.ERROR]
        findings += errors
        checked += judged.checked
        why = "" if errors else _undecided(judged, machine)
        if why:
            unknown.append(f"requires {machine}")
            message = f"Whether it runs on {machine} is not decided: {why}."
            findings.append(_finding(pages.UNDECIDED, f"requires {machine}", message))
    return Judgement(findings=tuple(findings), checked=checked, unknown=tuple(unknown))


def _undecided(judged: Judgement, machine: Machine) -> str:
    """Why a question about a machine has no answer; empty where it has one."""
    if judged.unknown:
        return "; ".join(judged.unknown)
    decided = {Status.PASSED, Status.FAILED}
    if any(o.code in machine.codes and o.status in decided for o in judged.outcomes):
        return ""
    return "the image has no torch that is built for a GPU"


def _layers(lock: Lock, image: ImageInfo) -> Iterator[Finding | None]:
    """Only an assembler's layers are promised; an image upon this one has more of them."""
    recorded = lock.table.image
    if not recorded.layers or recorded.engine != ENGINE:
        return
    own = tuple(recorded.layers)
    places = range(len(image.layers) - len(own) + 1)
    if any(tuple(image.layers[at : at + len(own)]) == own for at in places):
        yield None
        return
    here = sum(layer in image.layers for layer in own)
    yield _finding(
        pages.LAYERS,
        "image.layers",
        f"Of the {len(own)} layers that the lock's first build made, {here} are in this image.",
        left=list(own),
        right=list(image.layers),
    )


def _triggers(image: ImageInfo) -> Iterator[Finding | None]:
    if not image.onbuild:
        yield None
        return
    message = "Builds upon this image run instructions that stand in no Dockerfile of theirs."
    yield _finding(pages.TRIGGERS, "image.onbuild", message, right=list(image.onbuild))


def _size(policy: Policy, image: ImageInfo) -> Iterator[Finding | None]:
    most = policy.image.max_bytes
    if most is None:
        return
    if image.size_bytes <= most:
        yield None
        return
    yield _finding(
        pages.SIZE,
        "image.size_bytes",
        f"The image has {image.size_bytes / 1e9:.2f} GB, {(image.size_bytes - most) / 1e9:.2f} GB more "
        f"than the policy's {policy.image.max_size}.",
        left=most,
        right=image.size_bytes,
    )


def _base(policy: Policy, lock: Lock, image: ImageInfo) -> Iterator[Finding | None]:
    allowed = policy.image.bases
    if not allowed:
        return
    base = lock.table.image.base
    if base is None:
        why = (
            "The policy allows only some bases, and the lock does not record which one this image "
            "stands upon: verify with the lock that the build wrote (--lock)."
        )
        yield _finding(pages.UNDECIDED, "image.base", why)
    elif list(image.layers[: len(base.layers)]) != base.layers:
        why = (
            f"The lock says {base.reference}, but the image does not begin with its layers, so "
            "what it stands upon is not known."
        )
        yield _finding(pages.UNDECIDED, "image.base", why)
    elif not any(fnmatch.fnmatchcase(name, one) for name in _names(base) for one in allowed):
        yield _finding(
            pages.BASE,
            "image.base",
            f"It stands upon {base.reference}@{base.digest}, which the policy does not allow.",
            left=list(allowed),
            right=f"{base.reference}@{base.digest}",
        )
    else:
        yield None


def _names(base: BaseImage) -> tuple[str, ...]:
    return (base.reference, base.digest, f"{base.reference}@{base.digest}")


def _machines(policy: Policy) -> list[Machine]:
    wanted = policy.requires
    gpus = [Machine(gpu=gpu) for gpu in wanted.gpus]
    return [*gpus, *([Machine(driver=wanted.driver)] if wanted.driver else [])]


def _finding(
    rule: Rule, subject: str, message: str, left: JsonValue = None, right: JsonValue = None
) -> Finding:
    return Finding(
        code=rule.code,
        severity=rule.severity,
        subject=subject,
        message=message,
        left=left,
        right=right,
    )
