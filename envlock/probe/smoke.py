"""Run the smoke test inside the target and answer with raw figures, never with a verdict.

The host feeds this file together with its siblings ``smoke_*.py`` on standard input (see
``envlock/targets/smoke.py``), so nothing needs to be written in the target. This process never
imports torch: each group of probes runs in a child of its own, fed with the same source, under its
own time limit. A group that crashes, hangs or is killed for memory costs its own figures and leaves
a reason; a probe that cannot run is ``unavailable`` with a reason, never a pass.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import smoke_host
import smoke_memory
import smoke_numerics
import smoke_workloads

SCHEMA = "envlock-probe/1"
REASON_LENGTH = 300
THREADS = 1


class Emit:
    """One line per step, flushed: a kill loses whatever is still in a buffer."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, **line: Any) -> None:
        sys.stdout.write(self.token + " " + json.dumps(line, sort_keys=True) + "\n")
        sys.stdout.flush()

    def step(self, place: str, measure: Callable[[], Any]) -> None:
        """Announce, measure, report: a failure is that item's reason, not the group's end.

        ``place`` is where the result belongs: ``probe/values/workload``.
        """
        self(place=place, state="start")
        start = time.monotonic()
        try:
            values = measure()
        except Exception as error:
            self.skip(place, describe(error))
            return
        seconds = round(time.monotonic() - start, 3)
        self(place=place, state="done", values=values, seconds=seconds)

    def skip(self, place: str, reason: str) -> None:
        self(place=place, state="failed", reason=reason)


def describe(error: BaseException) -> str:
    return scrub("%s: %s" % (type(error).__name__, error))


def scrub(text: str) -> str:
    """One line without paths: reasons are written into locks, which name no people."""
    text = re.sub(r"(?:/[^\s/:'\",()]+){2,}", "<path>", " ".join(str(text).split()))
    return text[:REASON_LENGTH]


def run_env(torch: Any, emit: Emit, _: Dict[str, Any]) -> None:
    emit.step("env/values", lambda: smoke_host.environment(torch))


def run_numerics(torch: Any, emit: Emit, options: Dict[str, Any]) -> None:
    smoke_host.pin(torch)
    workloads = smoke_workloads.Workloads(torch, options["device"])
    each(
        emit,
        workloads,
        "numerics/values/",
        smoke_workloads.NUMERIC_WORKLOADS,
        lambda name: smoke_numerics.numerics(workloads, name),
    )
    emit.step(
        "numerics/control/lr_x2",
        lambda: smoke_numerics.numerics(workloads, "lm_fp32", steps=2, lr=2e-3),
    )


def run_memory(torch: Any, emit: Emit, options: Dict[str, Any]) -> None:
    smoke_host.pin(torch)
    workloads = smoke_workloads.Workloads(torch, options["device"])

    def measure(name: str) -> Any:
        workloads.build(name).step()  # first use allocates what later uses find in place
        return smoke_memory.tensor_peak(torch, workloads, name)

    each(emit, workloads, "tensor_peak/values/", smoke_workloads.MEMORY_WORKLOADS, measure)


def run_leak(torch: Any, emit: Emit, options: Dict[str, Any]) -> None:
    smoke_host.pin(torch)
    workloads = smoke_workloads.Workloads(torch, options["device"])
    loop = workloads.build("lm_fp32")
    kept: List[Any] = []
    emit.step("leak/values", lambda: smoke_memory.leak_slopes(torch, loop))
    emit.step("leak/control", lambda: smoke_memory.leak_slopes(torch, loop, kept.append))
    if smoke_memory.malloc_counter()[0] is None:
        emit.skip("leak/values/malloc", str(smoke_memory.malloc_counter()[1]))


def each(
    emit: Emit, workloads: Any, place: str, names: Sequence[str], measure: Callable[[str], Any]
) -> None:
    for name in names:
        reason = workloads.unavailable(name)
        if reason:
            emit.skip(place + name, reason)
        else:
            emit.step(place + name, lambda name=name: measure(name))


GROUPS = {
    "env": (run_env, 60),
    "numerics": (run_numerics, 180),
    "memory": (run_memory, 180),
    "leak": (run_leak, 120),
}
"""Group -> what runs it in a child, and its time limit in seconds (20 times what it takes)."""
PROBES_OF = {
    "env": ("env",),
    "numerics": ("numerics",),
    "memory": ("tensor_peak",),
    "leak": ("leak",),
}


def child(token: str, group: str, options: Dict[str, Any]) -> None:
    """What a child process is told to do. Runs one group and ends."""
    emit = Emit(token)
    emit(state="import")
    try:
        import torch
        import torch.utils.checkpoint
    except Exception as error:
        emit(state="broken", reason="torch cannot be imported: " + describe(error))
        return
    run, _ = GROUPS[group]
    try:
        run(torch, emit, options)
    except Exception as error:
        emit(state="broken", reason=describe(error))
        return
    emit(state="end")


def run_group(
    program: str, token: str, group: str, options: Dict[str, Any]
) -> Tuple[List[Dict[str, Any]], Optional[str]]:
    """Lines that the child wrote, and why it ended if not well."""
    limit = GROUPS[group][1]
    process = subprocess.Popen(  # noqa: S603 - this interpreter, fed with this program
        [sys.executable, "-B", "-", token, json.dumps(options), group],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONHASHSEED="0"),
        start_new_session=True,
    )
    reason = None
    try:
        out, err = process.communicate(program.encode(), timeout=limit)
    except subprocess.TimeoutExpired:
        reason = "did not finish within %d s" % limit
        end_group(process)
        out, err = process.communicate()
    end_group(process)
    lines = parse_lines(out, token)
    if lines and lines[-1]["state"] == "broken":
        reason = lines[-1]["reason"]
    elif reason is None and (not lines or lines[-1]["state"] != "end"):
        reason = ended_early(process.returncode, err)
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
    return scrub("the process ended with code %d: %s" % (code, " ".join(tail)))


def parse_lines(out: bytes, token: str) -> List[Dict[str, Any]]:
    """Only whole lines of ours: torch and sitecustomize may print too."""
    start = token.encode() + b" "
    return [json.loads(line[len(start) :]) for line in out.splitlines() if line.startswith(start)]


def collect(lines: List[Dict[str, Any]], reason: Optional[str]) -> Dict[str, Any]:
    """Probe -> its figures, from the lines of one group that may have ended early."""
    probes: Dict[str, Any] = {}
    open_step = None
    for line in lines:
        if "place" not in line:
            continue
        name, *keys = line["place"].split("/")
        probe = probes.setdefault(name, {"status": "ok", "seconds": 0.0, "skipped": {}})
        open_step = line["place"] if line["state"] == "start" else None
        if line["state"] == "failed":
            probe["skipped"][keys[-1]] = line["reason"]
        elif line["state"] == "done":
            probe["seconds"] = round(probe["seconds"] + line["seconds"], 3)
            put(probe, keys, line["values"])
    if reason and open_step:
        name, *keys = open_step.split("/")
        probes[name]["skipped"][keys[-1]] = reason
    return {name: complete(probe) for name, probe in probes.items()}


def put(table: Dict[str, Any], keys: List[str], values: Any) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
    table[keys[-1]] = values


def complete(probe: Dict[str, Any]) -> Dict[str, Any]:
    """A probe without figures is unavailable, for the first reason there was."""
    if "values" in probe:
        return probe if probe["skipped"] else {k: v for k, v in probe.items() if k != "skipped"}
    reasons = [*probe["skipped"].values(), "it gave no figures"]
    return {"status": "unavailable", "reason": reasons[0]}


def main(arguments: List[str], program: str) -> None:
    """``TOKEN OPTIONS`` runs the groups in order and prints the framed answer; with a third
    argument this is the child that runs that group. Progress goes to standard error."""
    token, options = arguments[0], json.loads(arguments[1])
    if len(arguments) > 2:
        child(token, arguments[2], options)
        return
    probes: Dict[str, Any] = {}
    for group in options["groups"]:
        sys.stderr.write("smoke: %s\n" % group)
        sys.stderr.flush()
        lines, reason = run_group(program, token, group, options)
        found = collect(lines, reason)
        for name in PROBES_OF[group]:
            probes[name] = found.get(name) or {
                "status": "unavailable",
                "reason": reason or "it gave no figures",
            }
    answer = {
        "schema": SCHEMA,
        "probe": "smoke",
        "result": "ok",
        "battery": smoke_workloads.battery_digest(
            smoke_numerics.NUMERIC_STEPS,
            smoke_memory.MEMORY_STEPS,
            smoke_memory.LEAK_WARM_UP,
            smoke_memory.LEAK_STEPS,
        ),
        "threads": THREADS,
        "probes": probes,
    }
    text = json.dumps(answer, sort_keys=True)
    sys.stdout.write("\nenvlock-begin %s\n%s\nenvlock-end %s\n" % (token, text, token))
    sys.stdout.flush()
