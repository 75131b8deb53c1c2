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
from typing import IO, Any, cast

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

    def config(self) -> dict[str, Any]:
        """The config file, whose bytes are those that the manifest names. Raises InputError.

        What is read of one has the types of image-spec 1.1, config.md; ``config`` is always there.
        """
        hint = "make or fetch the image anew"
        try:
            digest = str(json.loads(self.manifest)["config"]["digest"])
            path = self.blob(digest)
            data = path.read_bytes() if path else b""
            if sha256(data) != digest:
                raise InputError(
                    f"{self.folder}: the config {digest} is missing or altered", hint=hint
                )
            config: dict[str, Any] = json.loads(data)
            inside = config.get("config") or {}
            fault = _config_fault(config, inside)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{self.folder} has no readable config: {error}", hint=hint) from error
        if fault:
            raise InputError(f"{self.folder}: {fault}", hint=hint)
        return {**config, "config": inside}


def _config_fault(config: Mapping[str, Any], inside: Mapping[str, Any]) -> str | None:
    labels = inside.get("Labels") or {}
    if not isinstance(labels, dict) or not _is_texts([*labels.values()]):
        return "labels of the image are not a table of texts"
    for key in ("Env", "Entrypoint"):
        if not _is_texts(inside.get(key) or []):
            return f"{key} of the image is not a list of texts"
    if not isinstance(inside.get("User") or "", str):
        return "User of the image is not a text"
    if not _is_texts(config["rootfs"]["diff_ids"]):
        return "layers of the image are not a list of digests"
    history = config.get("history") or []
    fits = isinstance(history, list) and all(isinstance(row, dict) for row in history)
    return None if fits else "the history of the image is not a list of tables"


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def canonical_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def timestamp(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_layer(
    path: Path, entries: Iterable[tuple[tarfile.TarInfo, IO[bytes] | None]], *, epoch: int
) -> Layer:
    """Write a layer tar: one mtime, no user names, PAX headers only for extended attributes.

    The order is the caller's: it has to be a function of the content, with parents before children
    and a file before the hard links to it.
    """
    with path.open("wb") as file:
        hashing = _Hashing(file)
        with tarfile.TarFile(
            fileobj=cast("IO[bytes]", hashing),
            mode="w",
            format=tarfile.PAX_FORMAT,
            encoding="utf-8",
            copybufsize=_CHUNK,
        ) as tar:
            for info, data in entries:
                tar.addfile(_canonical(info, epoch), data)
    return Layer(path=path, digest=hashing.value, size_bytes=hashing.tell())


class _Hashing:
    """Just enough of a file for tarfile to write to, hashed on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest, self._size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self._size += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._size

    @property
    def value(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


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
    (blobs / sha256(config_blob).removeprefix("sha256:")).write_bytes(config_blob)
    return write_index(
        folder,
        descriptor(CONFIG_TYPE, sha256(config_blob), len(config_blob)),
        [descriptor(LAYER_TYPE, one.digest, one.size_bytes) for one in layers],
        architecture=config.architecture,
    )


def write_index(
    folder: Path,
    config: Mapping[str, Any],
    layers: Sequence[Mapping[str, Any]],
    *,
    architecture: str = "amd64",
    name: str | None = None,
) -> str:
    """Add the manifest of blobs that are there, and the index; returns the manifest's digest."""
    manifest = canonical_json(
        {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
    )
    blob = folder / "blobs" / "sha256" / sha256(manifest).removeprefix("sha256:")
    blob.write_bytes(manifest)
    entry = descriptor(MANIFEST_TYPE, sha256(manifest), len(manifest))
    entry["platform"] = {"architecture": architecture, "os": "linux"}
    if name is not None:
        entry["annotations"] = {"org.opencontainers.image.ref.name": name}
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry]}
    (folder / "index.json").write_bytes(canonical_json(index))
    (folder / "oci-layout").write_bytes(canonical_json({"imageLayoutVersion": "1.0.0"}))
    return sha256(manifest)


def descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _config_file(layers: Sequence[Layer], config: ImageConfig) -> dict[str, Any]:
    created = timestamp(config.epoch)
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
