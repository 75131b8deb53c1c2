"""Run tiers of tests, set up what each needs, and print what each took.

    python -m scripts.test lint unit torch engine

A tier whose need cannot be met fails; it never skips.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.environments import (
    CUDA_TORCH,
    NEWER_CUDA_TORCH,
    TORCH,
    ensure_base,
    ensure_engine,
    ensure_environment,
)

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
WORKFLOWS = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
ACTIONS = sorted(map(str, (ROOT / ".github" / "actions").glob("*/action.yml")))


def main() -> int:
    tiers = sys.argv[1:]
    unknown = [tier for tier in tiers if tier not in TIERS]
    if unknown or not tiers:
        sys.exit(f"tiers are: {', '.join(TIERS)}")
    times: dict[str, float] = {}
    failed: list[str] = []
    for tier in tiers:
        print(f"== {tier}", flush=True)
        started = time.monotonic()
        if not TIERS[tier]():
            failed.append(tier)
        times[tier] = time.monotonic() - started
    for tier, seconds in times.items():
        print(f"{tier:12} {seconds:7.1f} s  {'FAILED' if tier in failed else 'ok'}")
    return 1 if failed else 0


def lint() -> bool:
    return all(
        run([BIN / tool, *arguments])
        for tool, *arguments in (
            ("ruff", "check", "."),
            ("ruff", "format", "--check", "."),
            ("mypy",),
            ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS),
            ("check-jsonschema", "--builtin-schema", "vendor.github-actions", *ACTIONS),
            ("zizmor", "--offline", "--no-progress", "--quiet", ".github"),
        )
    )


def unit() -> bool:
    return pytest("tests/unit", workers=2)


def process() -> bool:
    return pytest("tests/process")


def torch() -> bool:
    python = ensure_environment(TORCH)
    return pytest("tests/torch", env={"ENVLOCK_TEST_TORCH_PYTHON": str(python)})


def engine() -> bool:
    ensure_engine()
    ensure_base()
    python = ensure_environment(TORCH)
    return pytest("tests/engine", env={"ENVLOCK_TEST_TORCH_PYTHON": str(python)})


def faults() -> bool:
    """Interrupted builds, killed saves and random locks once more, more of each."""
    ensure_engine()
    ensure_base()
    more = {
        "tests/engine/test_build_faults.py": {"ENVLOCK_TEST_MOMENTS": "20"},
        "tests/engine/test_random_locks.py": {"ENVLOCK_TEST_LOCKS": "50"},
        "tests/process/test_save.py": {"ENVLOCK_TEST_KILLS": "200"},
    }
    return all(pytest(path, env=env) for path, env in more.items())


def cuda_image() -> bool:
    ensure_engine()
    ensure_base()
    interpreters = {
        "ENVLOCK_TEST_CUDA_TORCH_PYTHON": str(ensure_environment(CUDA_TORCH)),
        "ENVLOCK_TEST_NEWER_CUDA_TORCH_PYTHON": str(ensure_environment(NEWER_CUDA_TORCH)),
    }
    return pytest("tests/cuda_image", env=interpreters)


def gpu() -> bool:
    if shutil.which("nvidia-smi") is None:
        print("gpu: skipped: this machine has no NVIDIA driver")
        return True
    script: list[str | Path] = ["sh", "scripts/gpu-tier.sh", ROOT / "build" / "gpu-tier"]
    return run([*script, ensure_environment(CUDA_TORCH)], {"ENVLOCK_PYTHON": sys.executable})


TIERS: Mapping[str, Callable[[], bool]] = {
    "lint": lint,
    "unit": unit,
    "process": process,
    "torch": torch,
    "engine": engine,
    "faults": faults,
    "cuda-image": cuda_image,
    "gpu": gpu,
}


def pytest(folder: str, *, env: Mapping[str, str] | None = None, workers: int = 0) -> bool:
    """Run a folder's tests in a temporary folder of their own, so that nothing depends on what
    other runs left behind in the shared one."""
    parallel = ["-n", str(workers)] if workers else []
    with tempfile.TemporaryDirectory(prefix="envlock-", ignore_cleanup_errors=True) as temporary:
        own = f"--basetemp={temporary}/t"
        command = [sys.executable, "-m", "pytest", "-q", "--durations=10", own, *parallel, folder]
        return run(command, env=env)


def run(command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> bool:
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
