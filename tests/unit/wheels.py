"""Small wheels made on the spot: sound ones, and ones that lie."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.pylock import PackageWheel

from envlock.image.plan import Artifact

PLAIN = {"demo/__init__.py": b"x = 1\n"}


def hash_of(data: bytes) -> str:
    value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={value}"


def make_wheel(
    folder: Path,
    files: Mapping[str, bytes] = PLAIN,
    *,
    name: str = "demo",
    version: str = "1.0",
    filename: str | None = None,
    metadata: str | None = None,
    tag: str = "py3-none-any",
    record: Mapping[str, tuple[str, str] | None] | None = None,
    modes: Mapping[str, int] | None = None,
    order: int = 1,
) -> Artifact:
    """Write a wheel and return the lock's entry for it. ``record`` replaces rows; None removes one."""
    info = f"{name}-{version}.dist-info"
    notes = metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content = {
        **files,
        f"{info}/METADATA": notes.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    rows: dict[str, tuple[str, str] | None] = {
        path: (hash_of(data), str(len(data))) for path, data in content.items()
    }
    rows.update(record or {})
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [*((path, *row) for path, row in rows.items() if row), (f"{info}/RECORD", "", "")]
    )
    content[f"{info}/RECORD"] = text.getvalue().encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (filename or f"{name}-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in list(content.items())[::order]:
            one = zipfile.ZipInfo(member)
            one.external_attr = (modes or {}).get(member, 0o100644) << 16
            archive.writestr(one, data)
    return artifact(path, name=name, version=version)


def artifact(path: Path, **fields: Any) -> Artifact:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    wheel = PackageWheel(path=path.name, hashes={"sha256": digest})
    return Artifact(**{"name": "demo", "version": "1.0", **fields}, wheel=wheel)
