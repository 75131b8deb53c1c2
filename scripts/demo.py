"""The main job, end to end, on real input: ``make demo``.

Captures an environment with a real torch, builds a pinned image from the lock, verifies it inside,
diffs it against a second environment, and then plants one fault per rule family to show that
verify sees it. Prints every command it runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.environments import (
    BUILD,
    ROOT,
    TORCH,
    Environment,
    check,
    ensure_base,
    ensure_engine,
    ensure_environment,
    say,
)
from scripts.faults import FAULTS, Fault, build_fault

TAG = "envlock-demo:good"
SECOND = Environment(
    name="second",
    requirements=("torch==2.13.0+cpu", "numpy==1.26.4"),
    fallback=TORCH.fallback,
)
ENVLOCK = Path(sys.executable).parent / "envlock"
LEAST_CHECKED = 40


def main() -> int:
    started = time.monotonic()
    ensure_engine()
    ensure_base()
    python = ensure_environment(TORCH)
    second = ensure_environment(SECOND)
    folder = BUILD / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lock = folder / "pylock.env.toml"

    envlock("capture", "--python", python, "--deep", "--smoke", "-o", lock)
    envlock("show", lock)
    envlock("build", lock, "-t", TAG, "--report", f"json={folder / 'verify.json'}")
    expect_clean(json.loads((folder / "verify.json").read_text()))

    title("the same lock against another environment")
    envlock("diff", lock, "--python", second, "--fail-on", "warning", expect=1)

    title("one planted fault per rule family: verify has to see each")
    wrong = [fault.name for fault in FAULTS if not seen(fault, lock, folder)]
    for tag in (TAG, *(fault.tag for fault in FAULTS)):
        subprocess.run(["docker", "rmi", "--force", tag], check=False, capture_output=True)
    print(f"\ndemo took {time.monotonic() - started:.0f} s")
    if wrong:
        sys.exit(f"not seen as they should be: {', '.join(wrong)}")
    return 0


def envlock(*arguments: str | Path, expect: int = 0) -> None:
    """Run a command as a person would, and stop when it does not end as expected."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ envlock {' '.join(words)}".replace(f"{ROOT}/", ""), flush=True)
    done = subprocess.run([ENVLOCK, *words], cwd=ROOT, check=False)
    if done.returncode != expect:
        sys.exit(f"exit code {done.returncode}, expected {expect}")


def expect_clean(report: dict[str, object]) -> None:
    findings = report["findings"]
    assert isinstance(findings, list)
    loud = [f["code"] for f in findings if f["severity"] in {"error", "warning"}]
    checked = report["checked"]
    assert isinstance(checked, int)
    if loud or checked < LEAST_CHECKED:
        sys.exit(f"verify of the fresh image: {loud} and {checked} checks")
    print(f"verified: {checked} checks, no error, no warning; not decided: ", end="")
    print(", ".join(map(str, report["unknown_subjects"])) or "nothing")  # type: ignore[call-overload]


def seen(fault: Fault, lock: Path, folder: Path) -> bool:
    """Whether verify refuses the image and names the right cause first."""
    with tempfile.TemporaryDirectory(prefix="envlock-fault-") as context:
        build_fault(fault, TAG, Path(context))
    out = folder / f"{fault.name}.json"
    options = ["--lock", str(lock), "--format", "json", "-o", str(out)]
    done = subprocess.run(
        [str(ENVLOCK), "verify", fault.tag, *options, *([] if fault.smoke else ["--no-smoke"])],
        cwd=ROOT,
        check=False,
        capture_output=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    report = json.loads(out.read_text()) if out.exists() else {"findings": []}
    lead = report["findings"][0] if report["findings"] else {"code": "none", "message": ""}
    right = done.returncode == 1 and fault.matches(lead)
    verdict = "seen" if right else f"NOT SEEN (exit {done.returncode})"
    print(f"{fault.name:18} {verdict:10} {lead['code']}  {lead['message'][:100]}", flush=True)
    if not right:
        say(done.stderr.decode(errors="replace")[-600:])
    return right


def title(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    check([sys.executable, "--version"])
    sys.exit(main())
