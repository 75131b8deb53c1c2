from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Argument, Option
from envlock.cli.talk import counter, say
from envlock.errors import EnvlockError
from envlock.report import Format

if TYPE_CHECKING:  # judging needs the facts, which --help does not
    from envlock.diff.policy import Policy
    from envlock.image.verify import Verified, VerifyOptions
    from envlock.rules.behaviour_tolerances import Tolerance

_AT_ONCE = 4
"""Each runs a container with its own limits of memory and threads."""


def verify(
    images: Annotated[list[str], Argument(metavar="IMAGE...", help="Images to verify.")],
    *,
    lock: Annotated[
        Path | None,
        Option("--lock", metavar="LOCK", help="What they should be; else the lock inside."),
    ] = None,
    policy: opt.PolicyOption = None,
    python: opt.PythonOption = None,
    device: opt.DeviceOption = opt.Device.CPU,
    no_smoke: Annotated[bool, Option("--no-smoke", help="Leave the smoke test out.")] = False,
    tolerances: opt.Tolerances = None,
    memory: opt.Memory = 4096,
    shm_size: opt.Shm = 1024,
    format_: opt.FormatOption = Format.TEXT,
    output: opt.Output = None,
    report: opt.MoreReports = None,
    fail_on: opt.FailOnOption = opt.FailOn.ERROR,
    ignore: opt.Ignore = None,
    verbose: opt.Verbose = False,
    debug: opt.Debug = False,
) -> int:
    """Prove inside an image that it is what its lock says: packages, files, libraries, behaviour.

    envlock verify team/train:2.3
    envlock verify team/train:2.3 --lock pylock.env.toml --report json=verify.json
    envlock verify team/train:2.3 team/eval:2.3 --policy envlock.toml
    """
    from envlock.cli.extras import of_verified  # noqa: PLC0415
    from envlock.image.verify import VerifyOptions  # noqa: PLC0415
    from envlock.lock.io import load_lock  # noqa: PLC0415
    from envlock.targets.container import ContainerOptions  # noqa: PLC0415

    agreed = _policy(policy)
    with counter("checking files") as progress:
        wanted = VerifyOptions(
            say=say,
            lock=load_lock(lock) if lock else None,
            device=device.value,
            smoke=not no_smoke,
            limits=_limits(tolerances, agreed),
            policy=agreed,
            container=ContainerOptions(
                python=python,
                memory_bytes=memory << 20,
                shm_bytes=shm_size << 20,
                gpus=device is opt.Device.CUDA,
            ),
            progress=progress if len(images) == 1 else None,
        )
        found, failed = _all([image.removeprefix("image:") for image in images], wanted)
    code = opt.Reporting(
        format=format_,
        output=output,
        more=report or (),
        fail_on=fail_on,
        ignore=ignore or (),
        verbose=verbose,
        extras=lambda: [of_verified(one) for one in found],
    ).publish([one.report for one in found])
    if failed is not None:  # told now, below the reports of the others
        raise failed
    return code


def _all(images: list[str], wanted: VerifyOptions) -> tuple[list[Verified], EnvlockError | None]:
    """What was found, in the order of the images; and by what the worst of the others failed.

    Raises it where no image has a report.
    """
    from dataclasses import replace  # noqa: PLC0415

    from envlock.image.verify import Verified, verify  # noqa: PLC0415

    if len(images) == 1:
        return [verify(images[0], wanted)], None

    def one(image: str) -> Verified | EnvlockError:
        try:
            return verify(image, replace(wanted, say=_named(image)))
        except EnvlockError as error:
            say(f"{image}: failed: {error.message}")
            error.message = f"{image}: {error.message}"
            return error

    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, os.cpu_count() or 1, len(images))) as pool:
        answers = list(pool.map(one, images))
    found = [answer for answer in answers if isinstance(answer, Verified)]
    failures = [answer for answer in answers if isinstance(answer, EnvlockError)]
    worst = max(failures, key=lambda error: error.code, default=None)
    if worst is not None and not found:
        raise worst
    return found, worst


def _named(image: str) -> Callable[[str], None]:
    return lambda text: say(f"{image}: {text}")


def _policy(path: Path | None) -> Policy:
    from envlock.diff.policy import Policy, find_policy, read_policy  # noqa: PLC0415

    found = path or find_policy(Path.cwd())
    if found is None:
        return Policy()
    say(f"policy: {found}")
    return read_policy(found)


def _limits(given: Path | None, policy: Policy) -> Mapping[str, Tolerance] | None:
    """``--tolerances`` goes before the policy's."""
    if given is not None or not policy.tolerances:
        return opt.limits_of(given)
    from envlock.rules.behaviour_tolerances import with_tables  # noqa: PLC0415

    return with_tables(policy.tolerances, "tolerances of the policy")
