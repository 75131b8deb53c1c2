from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Option
from envlock.cli.talk import say
from envlock.report import Format


def smoke(
    *,
    lock: Annotated[
        Path | None, Option("--lock", metavar="LOCK", help="Compare with its record.")
    ] = None,
    image: Annotated[
        str | None, Option("--image", metavar="REF", help="Run inside an image.")
    ] = None,
    python: opt.PythonOption = None,
    device: opt.DeviceOption = opt.Device.CPU,
    record: Annotated[
        Path | None, Option("--record", metavar="FILE", help="Write the record as JSON.")
    ] = None,
    compile_: Annotated[
        bool, Option("--compile", help="Also count what torch.compile makes; takes longest.")
    ] = False,
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
    """Measure how torch behaves here: memory peaks, leaks, losses. Compare with a lock's record.

    envlock smoke                          absolute checks on this environment
    envlock smoke --lock colleague.lock    against what the lock recorded
    envlock smoke --record smoke.json
    """
    from envlock.cli.extras import of_smoke  # noqa: PLC0415
    from envlock.image.smoke import SmokeOptions, run_smoke  # noqa: PLC0415
    from envlock.lock.io import load_lock  # noqa: PLC0415
    from envlock.targets.container import ContainerOptions  # noqa: PLC0415
    from envlock.targets.references import Reading  # noqa: PLC0415

    container = ContainerOptions(
        python=python,
        memory_bytes=memory << 20,
        shm_bytes=shm_size << 20,
        gpus=device is opt.Device.CUDA,
    )
    result = run_smoke(
        SmokeOptions(
            reference=f"image:{image}" if image else "env",
            reading=Reading(say=say, python=python, container=container),
            device=device.value,
            lock=load_lock(lock) if lock else None,
            compiling=compile_,
            limits=opt.limits_of(tolerances),
        )
    )
    if record is not None:
        opt.write_product(json.dumps(result.record.plain(), indent=1) + "\n", record)
    return opt.Reporting(
        format=format_,
        output=output,
        more=report or (),
        fail_on=fail_on,
        ignore=ignore or (),
        verbose=verbose,
        extras=lambda: [of_smoke(result.recorded, result.record)],
    ).publish([result.report])
