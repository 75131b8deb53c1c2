"""What earlier builds left for later ones: one folder an entry, the least recently used goes first."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

STRAY = ".new-"
"""Of an entry that is not whole yet, or no more."""
_STRAY_AGE_S = 86400
MOST_LAYERS_BYTES = 32 << 30
"""Six or so environments with CUDA."""
MOST_BASES_BYTES = 8 << 30
MOST_FILES_BYTES = 32 << 30
"""Downloaded wheels."""
IN_USE_S = 4 * 3600
"""Longer than a build and a push may take: whatever was used since may be some running build's."""


def mark_used(entry: Path) -> None:
    """The folder's own time says when it was used last."""
    with contextlib.suppress(OSError):  # it may be another user's, or be gone
        os.utime(entry)


def prune(folder: Path, limit_bytes: int) -> int:
    """Take away entries until the others fit; what was used lately stays. Returns bytes freed."""
    entries = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # another build may be taking it away
            if path.is_dir() and not path.name.startswith("."):
                entries.append((path.stat().st_mtime, _size(path), path))
    total, freed = sum(size for _, size, _ in entries), 0
    for used, size, path in sorted(entries):
        if total - freed <= limit_bytes or time.time() - used < IN_USE_S:
            break
        with contextlib.suppress(OSError):
            _remove(path)
            freed += size
    return freed


def _size(entry: Path) -> int:
    return sum(path.lstat().st_size for path in entry.rglob("*") if path.is_file())


def _remove(entry: Path) -> None:
    """In one step for whoever looks for it: never found half there."""
    with tempfile.TemporaryDirectory(prefix=STRAY, dir=entry.parent) as gone:
        entry.rename(Path(gone) / "entry")


def sweep(folder: Path, prefix: str = STRAY) -> None:
    """Take away what a killed build left, once no running one can own it."""
    for stray in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if time.time() - stray.stat().st_mtime > _STRAY_AGE_S:
                shutil.rmtree(stray) if stray.is_dir() else stray.unlink()
