"""What only a GPU can settle, within ten minutes: ``python -m scripts.gpu_tier OUT PYTHON``.

Captures the environment with the whole battery, measures it again for its noise, records snapshots
of our own training loops, replays them in the allocator model, and leaves in OUT:

    pylock.gpu.toml        the observation and both behaviour records, redacted as every capture is
    smoke-cuda.json        the second record, to see what moves from run to run
    snapshot-MODE.json.gz  events and segments of each loop without frames and times, as fixtures
    memory-MODE.json       what the model says of it
    summary.json           what ran, how long, and how often the model decided as the card did

A step that fails or has no time left costs its own figures, and the summary says so. The exit code
is 0 if all ran and the model agreed with the card, 1 if not, 5 where no GPU is.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envlock.allocator.unpickle import load_plain

BUDGET_S = 570.0
MOST_FIXTURE = 1 << 20
"""Bytes of a fixture, packed; a larger one stays out of a repository."""
WORKLOADS = Path(__file__).resolve().parent / "gpu_workloads.py"
MODES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "capped": {},
    "streams": {},
}
_EVENT = ("action", "addr", "size", "stream", "device_free")
_BLOCK = ("size", "requested_size", "state")
_SEGMENT = (
    *("device", "address", "total_size", "stream", "segment_type", "segment_pool_id"),
    "is_expandable",
)
_LOOK = "import torch; torch.cuda.init(); print(torch.__version__, torch.cuda.get_device_name())"


@dataclass
class Tier:
    """One run and what became of its steps."""

    out: Path
    python: Path
    began: float = field(default_factory=time.monotonic)
    steps: dict[str, Any] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        return BUDGET_S - (time.monotonic() - self.began)

    def run(
        self, name: str, command: Sequence[str | Path], most_s: float, **environment: str
    ) -> str | None:
        """Standard output, or None where the step failed; either way it is in the summary."""
        limit = min(most_s, self.left_s)
        if limit < 5:
            self.steps[name] = {"ran": False, "reason": "no time was left"}
            return None
        print(f"{name}: at most {limit:.0f} s", file=sys.stderr, flush=True)
        began = time.monotonic()
        output = ""
        try:
            done = subprocess.run(
                [str(part) for part in command],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
            code, said, output = done.returncode, done.stderr[-2000:], done.stdout
        except subprocess.TimeoutExpired:
            code, said = -1, f"did not end within {limit:.0f} s"
        seconds = round(time.monotonic() - began, 1)
        self.steps[name] = {"ran": code == 0, "seconds": seconds}
        if code:
            self.steps[name] |= {"code": code, "reason": said}
            return None
        return output


def main(arguments: list[str] | None = None) -> int:
    out, python = map(Path, sys.argv[1:] if arguments is None else arguments)
    tier = Tier(out, python)
    seen = tier.run("GPU", [python, "-c", _LOOK], 120)
    if seen is None:
        reason = tier.steps["GPU"]["reason"].strip().splitlines()
        print(
            f"gpu-tier: torch of {python.name} sees no GPU here: {reason[-1] if reason else '?'}",
            file=sys.stderr,
        )
        return 5
    envlock: list[str | Path] = [sys.executable, "-c", "from envlock.cli import main; main()"]
    target: list[str | Path] = ["--python", python]
    lock = out / "pylock.gpu.toml"
    capture: list[str | Path] = [
        *envlock,
        "capture",
        *target,
        "--deep",
        "--smoke",
        "--offline",
        "-o",
        lock,
    ]
    tier.run("capture", capture, 300)
    record = out / "smoke-cuda.json"
    options: list[str | Path] = [
        "--device",
        "cuda",
        "--record",
        record,
        "--lock",
        lock,
        "--fail-on",
        "never",
    ]
    tier.run("smoke", [*envlock, "smoke", *target, *options, "-f", "json"], 150)
    agreed = [_mode(tier, mode, envlock) for mode in MODES]
    complete = all(step["ran"] for step in tier.steps.values())
    summary = {
        "gpu": seen.strip(),
        "seconds": round(time.monotonic() - tier.began, 1),
        "complete": complete,
        "model_agreed": all(agreed),
        "steps": tier.steps,
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=1))
    return 0 if complete and all(agreed) else 1


def _mode(tier: Tier, mode: str, envlock: Sequence[str | Path]) -> bool:
    """Record one loop, reduce its snapshot, ask the model. Says whether the model agreed."""
    snapshot = tier.out / f"snapshot-{mode}.pickle"
    said = tier.run(f"record {mode}", [tier.python, WORKLOADS, mode, snapshot], 60, **MODES[mode])
    if said is None:
        return False
    stats = json.loads(said.splitlines()[-1])
    with snapshot.open("rb") as file:
        reduced = reduce_snapshot(load_plain(file))
    snapshot.unlink()
    packed = gzip.compress(json.dumps(reduced, separators=(",", ":")).encode(), mtime=0)
    fixture = tier.out / f"snapshot-{mode}.json.gz"
    fixture.write_bytes(packed)
    snapshot.write_bytes(pickle.dumps(reduced))
    ask = [*envlock, "memory", snapshot, "--torch", stats["torch"], "-f", "json"]
    answer = tier.run(f"replay {mode}", ask, 60)
    snapshot.unlink()
    if answer is None:
        return False
    (tier.out / f"memory-{mode}.json").write_text(answer, encoding="utf-8")
    found = compared(json.loads(answer)["cards"][0], stats)
    tier.steps[f"replay {mode}"] |= found | {"fixture_bytes": len(packed)}
    if len(packed) > MOST_FIXTURE:
        print(f"{fixture.name} is too large to commit", file=sys.stderr)
    return bool(found["agreed"])


def compared(card: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, Any]:
    """What the model decided next to what the card counted."""
    agreement = card["agreement"]
    right = agreement.get("decisions_right")
    # what a history of limited length has lost cannot be compared
    agreed = (
        agreement["compared"]
        and right == agreement["allocations"]
        and agreement["peak_reserved"] == stats["peak_reserved"]
    )
    return {"agreed": agreed, "agreement": agreement, "card": dict(stats)}


def reduce_snapshot(data: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes and events only: no frames, no times, no names, no settings but the allocator's."""
    settings = data.get("allocator_settings", {}).get("PYTORCH_CUDA_ALLOC_CONF", "")
    return {
        "segments": [
            {name: segment[name] for name in _SEGMENT if name in segment}
            | {"blocks": [_kept(block, _BLOCK) for block in segment["blocks"]]}
            for segment in data["segments"]
        ],
        "device_traces": [
            [_kept(event, _EVENT) for event in trace] for trace in data["device_traces"]
        ],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": settings},
    }


def _kept(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names if name in row}


if __name__ == "__main__":
    sys.exit(main())
