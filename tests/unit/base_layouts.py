"""A base of a few bytes, with what the assembler looks for in one."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envlock.image.base import Search
from envlock.image.fetch import Shelves
from envlock.image.oci import (
    CONFIG_TYPE,
    ImageConfig,
    Layout,
    canonical_json,
    descriptor,
    read_layout,
    sha256,
    write_index,
    write_layer,
    write_layout,
)
from envlock.targets.engine import Engine

EPOCH = 1_577_836_800
LABELS = {
    "org.envlock.base.python": "/usr/bin/python3",
    "org.envlock.base.python-version": "3.11.2",
}
FILES = {
    "bin": "-> usr/bin",
    "usr/bin/python3": "-> python3.11",
    "usr/bin/python3.11": "program",
}


def search(
    engine: Engine | None = None, *, python: str = "3.11.2", cache: Path = Path("/nonexistent")
) -> Search:
    """As a build asks for a base, with nothing on any shelf."""
    shelves = Shelves(folders=[], cache=cache, offline=True)
    return Search(python=python, engine=engine, shelves=shelves, say=lambda _: None)


def base_layout(
    folder: Path,
    files: Mapping[str, str] = FILES,
    *,
    labels: Mapping[str, str] = LABELS,
    env: Mapping[str, str] | None = None,
) -> Layout:
    entries = []
    for name, content in sorted(files.items()):
        info = tarfile.TarInfo(name)
        if content.startswith("-> "):
            info.type, info.linkname = tarfile.SYMTYPE, content.removeprefix("-> ")
        info.size = 0 if info.issym() else len(content)
        entries.append((info, io.BytesIO(content.encode())))
    folder.parent.mkdir(parents=True, exist_ok=True)
    layer = write_layer(folder.with_suffix(".tar"), entries, epoch=EPOCH)
    config = ImageConfig(
        architecture="amd64",
        epoch=EPOCH,
        env=env or {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        labels=labels,
        cmd=["python3"],
    )
    write_layout(folder, [layer], config)
    return read_layout(folder)


def changed_base(folder: Path, change: Mapping[str, Any], **of_layer: Any) -> Layout:
    """A base whose config, and whose manifest's rows of layers, say something else."""
    return with_config(base_layout(folder), change, **of_layer)


def derived(layout: Layout, folder: Path, change: Mapping[str, Any]) -> Layout:
    """The image of another layout with ``change`` in the ``config`` of its containers."""
    shutil.copytree(layout.folder, folder, copy_function=os.link)
    copy = read_layout(folder)
    return with_config(copy, {"config": {**copy.config()["config"], **change}})


def with_config(layout: Layout, change: Mapping[str, Any], **of_layer: Any) -> Layout:
    """The layout, altered where it lies."""
    data = canonical_json({**layout.config(), **change})
    blobs = layout.folder / "blobs" / "sha256"
    (blobs / sha256(data).removeprefix("sha256:")).write_bytes(data)
    rows = [{**row, **of_layer} for row in json.loads(layout.manifest)["layers"]]
    for name in ("index.json", "oci-layout"):  # a copy shares its files with the first one
        (layout.folder / name).unlink(missing_ok=True)
    write_index(layout.folder, descriptor(CONFIG_TYPE, sha256(data), len(data)), rows)
    return read_layout(layout.folder)
