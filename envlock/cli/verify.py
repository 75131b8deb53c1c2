from __future__ import annotations

from pathlib import Path
from typing import Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Argument, Option
from envlock.cli.talk import counter, say
from envlock.report import Format


def verify(
    images: Annotated[list[str], Argument(metavar="IMAGE...", help="Images to verify.")],
    *,
    lock: Annotated[
        Path | None,
        Option("--lock", metavar="LOCK", help="What they should be; else the lock inside."),
    ] = None,
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
    """
    from envlock.image.verify import VerifyOptions, verify  # noqa: PLC0415
    from envlock.lock.io import load_lock  # noqa: PLC0415
    from envlock.targets.container import ContainerOptions  # noqa: PLC0415

    with counter("checking files") as progress:
        wanted = VerifyOptions(
            say=say,
            lock=load_lock(lock) if lock else None,
            device=device.value,
            smoke=not no_smoke,
            limits=opt.limits_of(tolerances),
            container=ContainerOptions(
                python=python,
                memory_bytes=memory << 20,
                shm_bytes=shm_size << 20,
                gpus=device is opt.Device.CUDA,
            ),
            progress=progress,
        )
        reports = [verify(image.removeprefix("image:"), wanted) for image in images]
    return opt.Reporting(
        format=format_,
        output=output,
        more=report or (),
        fail_on=fail_on,
        ignore=ignore or (),
        verbose=verbose,
    ).publish(reports)
