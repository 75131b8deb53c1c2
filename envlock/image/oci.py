"""OCI image layouts, written so that the same input gives the same bytes.

Follows image-spec 1.1 (image-layout.md, manifest.md, config.md, layer.md). Layers are stored without
compression: the digest of such a blob is the layer's diff id, and no compressor's version takes
part in the manifest's digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from envlock.errors import InputError

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"

_CHUNK = 1 << 20
_XATTR = "SCHILY.xattr."


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """An uncompressed layer tar on disk."""

    path: Path
    digest: str
    """``sha256:…`` of the tar: its diff id, and its blob digest as it is stored uncompressed."""
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageConfig:
    """What an image says about itself. Everything else of the config file follows from the layers."""

    architecture: str
    """As Go names it: ``amd64``, ``arm64``."""
    epoch: int
    """The only time in the image, seconds since 1970: its ``created`` and every file's mtime."""
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    cmd: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A layout folder with one image in it."""

    folder: Path
    manifest_digest: str
    manifest: bytes

    def blob(self, digest: str) -> Path | None:
        """The file of a blob, or None when the layout has no such blob."""
        algorithm, _, value = digest.partition(":")
        if algorithm != "sha256" or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
            return None
        path = self.folder / "blobs" / "sha256" / value
        return path if path.is_file() else None


def canonical_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def write_layer(
    path: Path, entries: Iterable[tuple[tarfile.TarInfo, IO[bytes] | None]], *, epoch: int
) -> Layer:
    """Write a layer tar: one mtime, no user names, PAX headers only for extended attributes.

    The order is the caller's: it has to be a function of the content, with parents before children
    and a file before the hard links to it.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("w+b") as file:
        # Records of 512 bytes: the end of the tar then depends on nothing but its entries.
        with tarfile.open(
            fileobj=file, mode="w", format=tarfile.PAX_FORMAT, bufsize=tarfile.BLOCKSIZE
        ) as tar:
            for info, data in entries:
                tar.addfile(_canonical(info, epoch), data)
        file.seek(0)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Layer(path=path, digest=f"sha256:{digest.hexdigest()}", size_bytes=size)


def _canonical(info: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    clean = tarfile.TarInfo(info.name)
    clean.type, clean.linkname = info.type, info.linkname
    clean.size = info.size if info.isreg() else 0
    clean.mode, clean.uid, clean.gid = info.mode & 0o7777, info.uid, info.gid
    clean.mtime = epoch
    clean.pax_headers = {k: v for k, v in info.pax_headers.items() if k.startswith(_XATTR)}
    return clean


def write_layout(folder: Path, layers: Sequence[Layer], config: ImageConfig) -> str:
    """Write the image as an OCI layout and return its manifest digest.

    The layers' files are moved into the layout where that is possible, copied otherwise.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for layer in layers:
        shutil.move(layer.path, blobs / layer.digest.removeprefix("sha256:"))
    config_blob = canonical_json(_config_file(layers, config))
    manifest = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _descriptor(CONFIG_TYPE, sha256(config_blob), len(config_blob)),
            "layers": [_descriptor(LAYER_TYPE, one.digest, one.size_bytes) for one in layers],
        }
    )
    for blob in (config_blob, manifest):
        (blobs / sha256(blob).removeprefix("sha256:")).write_bytes(blob)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [
            _descriptor(MANIFEST_TYPE, sha256(manifest), len(manifest))
            | {"platform": {"architecture": config.architecture, "os": "linux"}}
        ],
    }
    (folder / "index.json").write_bytes(canonical_json(index))
    (folder / "oci-layout").write_bytes(canonical_json({"imageLayoutVersion": "1.0.0"}))
    return sha256(manifest)


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _config_file(layers: Sequence[Layer], config: ImageConfig) -> dict[str, Any]:
    created = datetime.fromtimestamp(config.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "architecture": config.architecture,
        "os": "linux",
        "created": created,
        "config": {
            "Env": [f"{name}={value}" for name, value in sorted(config.env.items())],
            "Labels": dict(config.labels),
            "Cmd": list(config.cmd) or None,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        "history": [{"created": created, "created_by": "envlock"} for _ in layers],
    }


def read_layout(folder: Path) -> Layout:
    """Open a layout that holds exactly one image manifest, whose bytes have the digest they claim.

    Raises InputError.
    """
    hint = "make one with images/base/build.py, or give a registry reference instead"
    with _as_input_error(folder, hint):
        index = json.loads((folder / "index.json").read_bytes())
        manifests = [m for m in index["manifests"] if m["mediaType"] == MANIFEST_TYPE]
        if len(manifests) != 1:
            raise InputError(
                f"{folder} holds {len(manifests)} image manifests; exactly one is needed", hint=hint
            )
        digest = str(manifests[0]["digest"])
        path = Layout(folder=folder, manifest_digest=digest, manifest=b"").blob(digest)
        manifest = path.read_bytes() if path else b""
        if sha256(manifest) != digest:
            raise InputError(f"{folder}: the manifest {digest} is missing or altered", hint=hint)
        return Layout(folder=folder, manifest_digest=digest, manifest=manifest)


@contextlib.contextmanager
def _as_input_error(folder: Path, hint: str) -> Any:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{folder} is not a readable OCI layout: {error}", hint=hint) from error
