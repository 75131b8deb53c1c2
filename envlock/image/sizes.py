"""How much a build will fetch and unpack, as far as that is known before it starts."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envlock.image.fetch import Shelves, places
from envlock.image.plan import Artifact


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    files: int
    to_fetch: int
    """Files that are in no folder. Of a layer that is kept none is needed: this is the most."""
    fetch_bytes: int
    fetch_unknown: int
    """Files to fetch whose size the lock does not say."""
    unpacked_bytes: int
    unpacked_unknown: int
    """Files that are not here, or cannot be read: what is in them is not known."""

    def line(self) -> str:
        fetch = f"{self.fetch_bytes >> 20} MiB" + _unknown(self.fetch_unknown)
        unpacked = f"{self.unpacked_bytes >> 20} MiB" + _unknown(self.unpacked_unknown)
        what = f"to fetch {self.to_fetch} of {self.files} wheels"
        return f"sizes: {what}, at most {fetch}; unpacked {unpacked}"


def measure_sizes(artifacts: Sequence[Artifact], shelves: Shelves) -> Sizes:
    """By names, sizes that the lock states and the wheels' own lists: no file is hashed for it."""
    here = [next((p for p in places(one, shelves) if p.is_file()), None) for one in artifacts]
    unpacked = [None if path is None else _unpacked(path) for path in here]
    missing = [one.wheel.size for one, path in zip(artifacts, here, strict=True) if path is None]
    return Sizes(
        files=len(artifacts),
        to_fetch=len(missing),
        fetch_bytes=sum(size for size in missing if size is not None),
        fetch_unknown=sum(size is None for size in missing),
        unpacked_bytes=sum(size for size in unpacked if size is not None),
        unpacked_unknown=sum(size is None for size in unpacked),
    )


def _unpacked(path: Path) -> int | None:
    """None for a file that is no wheel; what is wrong with it is said where it is opened."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return None


def _unknown(files: int) -> str:
    return f" and {files} of unknown size" if files else ""
