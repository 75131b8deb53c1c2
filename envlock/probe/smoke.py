"""Run the smoke test inside the target and answer with raw figures, never with a verdict.

The host feeds this file together with its siblings ``smoke_*.py`` as one program on standard input,
so nothing needs to be written in the target. This process never imports torch: each group of probes
runs in a child of its own, fed with the same program, under its own time limit. A group that
crashes, hangs or is killed for memory costs its own figures and leaves a reason; a probe that
cannot run is ``unavailable`` with a reason, never a pass.

``TOKEN OPTIONS`` runs all groups that the options name; with a third argument, the name of a group,
this is the child that runs it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, Optional, Tuple

import observe_machine
import smoke_groups
import smoke_host
import smoke_lines
import smoke_shm

SCHEMA = "envlock-probe/1"
ROOM_BYTES = 3 << 30
"""What two groups at a time need at most, with some to spare (seen: 1.2 GB)."""

Options = Dict[str, Any]
Ended = Tuple[List[Dict[str, Any]], Optional[str]]
"""The lines that a child wrote, and why it ended early if it did."""


def run_all(token: str, options: Options) -> None:
    """Run the groups and print the framed answer. Progress goes to standard error."""
    probes: Dict[str, Any] = {}
    report_progress(0, options)
    for done, (name, (lines, reason)) in enumerate(run_groups(token, options), 1):
        found = smoke_lines.collect(lines, reason)
        for probe in smoke_groups.GROUPS[name].probes:
            missing = {"status": "unavailable", "reason": reason or "it gave no figures"}
            probes[probe] = found.get(probe, missing)
        report_progress(done, options)
    noise = {}
    if options.get("repeat"):
        again = smoke_lines.collect(*run_group(token, "numerics", options))
        noise["repeat_equal"] = values_of(probes, "numerics") == values_of(again, "numerics")
    answer = {
        "schema": SCHEMA,
        "probe": "smoke",
        "result": "ok",
        "battery": smoke_groups.battery_digest(),
        "threads": smoke_groups.THREADS,
        "noise": noise,
        "probes": probes,
    }
    text = json.dumps(answer, sort_keys=True)
    sys.stdout.write("\nenvlock-begin %s\n%s\nenvlock-end %s\n" % (token, text, token))
    sys.stdout.flush()


def report_progress(done: int, options: Options) -> None:
    sys.stderr.write("envlock-progress %d %d\n" % (done, len(options["groups"])))
    sys.stderr.flush()


def values_of(probes: Dict[str, Any], name: str) -> Any:
    return probes.get(name, {}).get("values")


def run_child(token: str, group: str, options: Options) -> None:
    """Run one group, say how it ended, and end without taking torch apart, which takes a second."""
    smoke_host.die_with_parent()
    emit = smoke_lines.Emit(token)
    try:
        emit(state="import")
        import torch
        import torch.utils.checkpoint

        smoke_groups.GROUPS[group].run(torch, emit, options)
        emit(state="end")
    except Exception as error:
        emit(state="broken", reason=smoke_lines.describe(error))
    sys.stderr.flush()
    os._exit(0)


def run_groups(token: str, options: Options) -> Iterator[Tuple[str, Ended]]:
    """Two at a time where there is room: each uses one thread, and no figure is a time."""

    def run(name: str) -> Tuple[str, Ended]:
        return name, run_group(token, name, options)

    alone = [name for name in options["groups"] if smoke_groups.GROUPS[name].alone]
    others = [name for name in options["groups"] if not smoke_groups.GROUPS[name].alone]
    with ThreadPoolExecutor(max_workers=room(options["device"])) as pool:
        yield from pool.map(run, others)
    yield from map(run, alone)


def room(device: str) -> int:
    """How many groups at a time. A GPU is for one: its memory in use is one of the figures."""
    limit = observe_machine.cgroup_memory()
    if device != "cpu" or (isinstance(limit, int) and limit < ROOM_BYTES):
        return 1
    return min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def run_group(token: str, group: str, options: Options) -> Ended:
    limit = options.get("limit_s") or smoke_groups.GROUPS[group].limit_s
    program = globals()["PROGRAM"]  # all of this, which the host put there before it ran
    kills = smoke_shm.oom_kills()
    process = subprocess.Popen(  # noqa: S603 - this interpreter, fed with this program
        [
            sys.executable,
            # Bytecode only where the host gave it a folder that goes away.
            *([] if sys.pycache_prefix else ["-B"]),
            "-",
            token,
            json.dumps(options),
            group,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONHASHSEED="0"),
        start_new_session=True,
    )
    reason = None
    try:
        out, err = process.communicate(program.encode("ascii"), timeout=limit)
    except subprocess.TimeoutExpired:
        reason = "did not finish within %d s" % limit
        end_group(process)
        out, err = process.communicate()
    end_group(process)
    lines = smoke_lines.parse_lines(out, token)
    if lines and lines[-1]["state"] == "broken":
        reason = lines[-1]["reason"]
    elif reason is None and (not lines or lines[-1]["state"] != "end"):
        reason = ended_early(process.returncode, err) + killed_since(kills)
    return lines, reason


def end_group(process: Any) -> None:
    """The child and whatever it left running, such as data loader workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def ended_early(code: int, err: bytes) -> str:
    if code < 0:
        return "the process was ended by %s" % signal.Signals(-code).name
    tail = err.decode("utf-8", "replace").strip().splitlines()[-1:]
    return smoke_lines.scrub("the process ended with code %d: %s" % (code, " ".join(tail)))


def killed_since(before: Optional[int]) -> str:
    """Whether the memory limit did it: the only trace that such a kill leaves."""
    after = smoke_shm.oom_kills()
    if before is None or after is None or after == before:
        return ""
    return " (the memory limit of this control group killed %d)" % (after - before)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        run_child(sys.argv[1], sys.argv[3], json.loads(sys.argv[2]))
    else:
        run_all(sys.argv[1], json.loads(sys.argv[2]))
