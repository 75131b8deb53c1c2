"""A mirror of standalone Pythons that uv asks in place of the real one, with one build in it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

RELEASES = "https://github.com/astral-sh/python-build-standalone/releases"
"""Where uv's own list has them, and the only start that its mirrors stand in for."""
_DAY = "20240713"


@dataclass(frozen=True, kw_only=True)
class Mirror:
    archive: Path
    place: str
    """How the URL ends that the list has for the archive; uv knows more than one host of it."""
    environment: dict[str, str]
    """What makes uv ask here."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.archive.read_bytes()).hexdigest()


def make_mirror(folder: Path, version: str, fill: Callable[[tarfile.TarFile], None]) -> Mirror:
    """``fill`` puts the files of the one build into its archive."""
    name = f"cpython-{version}+{_DAY}-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"
    archive = folder / "mirror" / _DAY / name
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        fill(tar)
    major, minor, patch = map(int, version.split("."))
    mirror = Mirror(
        archive=archive,
        place=f"/download/{_DAY}/{quote(name)}",
        environment={
            "UV_PYTHON_DOWNLOADS_JSON_URL": str(folder / "list.json"),
            "UV_PYTHON_INSTALL_MIRROR": f"file://{folder}/mirror",
        },
    )
    row = {
        "name": "cpython",
        "arch": {"family": "x86_64", "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": major,
        "minor": minor,
        "patch": patch,
        "prerelease": "",
        "url": f"{RELEASES}{mirror.place}",
        "sha256": mirror.sha256,
        "variant": None,
        "build": _DAY,
    }
    listed = {f"cpython-{version}-linux-x86_64-gnu": row}
    (folder / "list.json").write_text(json.dumps(listed))
    return mirror
