"""Two observations next to each other: what people look for first, then all that differs."""

from __future__ import annotations

from collections.abc import Iterator

from envlock.diff.finish import shown
from envlock.findings import JsonValue, Side
from envlock.lock.observation import Observation
from envlock.rules.base import Env

FIRST = (
    *("torch.version", "torch.cuda", "cudnn.loaded", "nccl.loaded", "cublas.loaded"),
    *(
        "driver.version",
        "driver.cuda",
        "python.version",
        "system.distribution",
        "system.glibc",
        "system.kernel",
    ),
    *("system.cpu", "system.memory_bytes", "limits.shm_bytes"),
)
_FAMILY = ("torch", "torchvision", "torchaudio", "triton", "numpy")

Row = tuple[str, JsonValue, JsonValue]


def side_by_side(left: Observation, right: Observation) -> tuple[Row, ...]:
    """(path, left, right) in the form of a finding's values; facts that nobody has are left out."""
    envs = Env(left, Side.LEFT), Env(right, Side.RIGHT)
    paths = dict.fromkeys([*FIRST, *_gpus(*envs), *_variables(*envs), *_packages(*envs)])
    rows = ((path, shown(envs[0], path), shown(envs[1], path)) for path in paths)
    return tuple(row for row in rows if not (_is_nothing(row[1]) and _is_nothing(row[2])))


def _gpus(*envs: Env) -> list[str]:
    lists = [env.peek("gpus") for env in envs]
    count = max(len(gpus) if isinstance(gpus, list) else 0 for gpus in lists)
    return [f"gpus.{n}.{key}" for n in range(count) for key in ("name", "compute_capability")]


def _variables(*envs: Env) -> Iterator[str]:
    """Those that are set on a side."""
    tables = [env.peek_table("env") for env in envs]
    for name in sorted({name for table in tables for name in table}):
        if any(isinstance(table.get(name), str) for table in tables):
            yield f"env.{name}"


def _packages(*envs: Env) -> list[str]:
    """torch's family, and what differs."""
    names = sorted({name for env in envs for name in env.peek_table("packages")})
    paths = ((name, f"packages.{name}") for name in names if name not in _FAMILY)
    other = [name for name, path in paths if shown(envs[0], path) != shown(envs[1], path)]
    family = [name for name in _FAMILY if name in names]
    return [f"packages.{name}" for name in (*family, *other)]


def _is_nothing(value: JsonValue) -> bool:
    return value is None or value in ({"absent": True}, {"unknown": "not recorded"})
