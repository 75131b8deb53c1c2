"""Bases as OCI layouts of our own: exported from an engine, or copied from a registry by skopeo.

Each is kept in the user's cache folder under the id of its config, and found there the next time.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from envlock.errors import InputError
from envlock.image import oci
from envlock.image.fetch import cannot_write
from envlock.image.kept import MOST_BASES_BYTES, STRAY, mark_used, prune, sweep
from envlock.lock.references import check_reference
from envlock.targets.engine import Engine
from envlock.targets.engine_errors import explain_pull
from envlock.targets.image_info import ImageInfo, split_tag
from envlock.targets.process import Limits, find_program, run

_CHUNK = 1 << 20
_COPY = Limits(timeout_s=3600, stdout_bytes=1 << 20)
_LOOK = Limits(timeout_s=90, stdout_bytes=1 << 20)
"""Longer than skopeo goes on asking a registry that refuses for now (62 s)."""
_MAGIC = {b"\x1f\x8b": "+gzip", b"\x28\xb5\x2f\xfd": "+zstd"}


def from_engine(engine: Engine, info: ImageInfo, cache: Path) -> oci.Layout:
    """Raises TargetError when the engine fails, InputError for an archive that is not one."""
    folder = cache / info.image_id.removeprefix("sha256:")
    if not folder.exists():
        with new_layout(folder) as scratch:
            _import(engine.save(info.image_id), scratch)
    mark_used(folder)
    return oci.read_layout(folder)


def from_registry(reference: str, cache: Path) -> tuple[str, oci.Layout]:
    """The digest of an image in a registry, and its layout. Raises TargetError."""
    hint = "install skopeo, or start a Docker Engine, or name a base that is here: --base oci:DIR"
    skopeo = find_program("skopeo", hint=hint)
    name, _, digest = reference.partition("@")
    verify = ["--tls-verify=false"] if is_loopback(reference) else []
    pinned = f"{split_tag(name)[0]}@{digest}" if digest else name
    folder = cache / digest.removeprefix("sha256:")
    if not digest or not folder.exists():
        # Also where the digest is known: a registry that is silent is found out before the long copy.
        look = ["inspect", *verify, "--no-tags", "--format", "{{.Digest}}", f"docker://{pinned}"]
        digest = _skopeo(skopeo, look, _LOOK, reference).strip()
        pinned = check_reference(f"{split_tag(name)[0]}@{digest}", "image.base")
        folder = cache / digest.removeprefix("sha256:")
    if not folder.exists():
        verify = ["--src-tls-verify=false"] if verify else []
        with new_layout(folder) as scratch:
            copy = ["copy", "--quiet", *verify, f"docker://{pinned}", f"oci:{scratch}"]
            platform = ["--override-os", "linux", "--override-arch", "amd64"]
            _skopeo(skopeo, [*platform, *copy], _COPY, reference)
    mark_used(folder)
    return digest, oci.read_layout(folder)


def is_loopback(reference: str) -> bool:
    """Whether a registry is this machine's own: those speak plain HTTP."""
    host = reference.partition("/")[0].partition(":")[0]
    return host == "localhost" or host.startswith("127.")


def _skopeo(skopeo: Path | str, arguments: list[str], limits: Limits, reference: str) -> str:
    done = run([skopeo, *arguments], limits=limits)
    if done.code != 0:
        raise explain_pull(done.stderr_tail(), reference)
    return done.stdout.decode("utf-8", "replace")


@contextmanager
def new_layout(folder: Path) -> Iterator[Path]:
    """A folder that appears whole or not at all."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent)
        with tempfile.TemporaryDirectory(prefix=STRAY, dir=folder.parent) as name:
            scratch = Path(name) / "layout"
            scratch.mkdir()
            yield scratch
            if not folder.exists():
                scratch.rename(folder)
        prune(folder.parent, MOST_BASES_BYTES)
    except OSError as error:
        raise cannot_write(folder.parent, error) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class _Blob:
    digest: str
    size: int
    start: bytes


def _import(chunks: Iterable[bytes], folder: Path) -> None:
    """Sort what ``docker save`` gives into a layout: layers stay the bytes that they are."""
    blobs_folder = folder / "blobs" / "sha256"
    blobs_folder.mkdir(parents=True)
    blobs: dict[str, _Blob] = {}
    links: dict[str, str] = {}
    stream = cast("IO[bytes]", _Stream(chunks))
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for info in tar:
                if info.issym() or info.islnk():
                    # Old engines write a layer that is in an image twice as a link.
                    base = posixpath.dirname(info.name) if info.issym() else ""
                    links[info.name] = posixpath.normpath(posixpath.join(base, info.linkname))
                elif info.isreg():
                    data = tar.extractfile(info)
                    assert data
                    blobs[info.name] = _keep(data.read, blobs_folder)

        def blob(name: str) -> _Blob:
            return blobs[links.get(name, name)]

        (image,) = json.loads(_content(blob("manifest.json"), blobs_folder))
        config = blob(image["Config"])
        diff_ids = json.loads(_content(config, blobs_folder))["rootfs"]["diff_ids"]
        layers = [
            _layer(blob(one), id_) for one, id_ in zip(image["Layers"], diff_ids, strict=True)
        ]
    except (tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"what the engine exports is not an image: {error}",
            hint="update the engine, or name a base that is here: --base oci:DIR",
        ) from error
    oci.write_index(folder, oci.descriptor(oci.CONFIG_TYPE, config.digest, config.size), layers)


def _keep(read: Callable[[int], bytes], folder: Path) -> _Blob:
    digest, size, start = hashlib.sha256(), 0, b""
    path = folder / ".incoming"
    with path.open("wb") as file:
        while chunk := read(_CHUNK):
            start = start or chunk[:4]
            digest.update(chunk)
            size += file.write(chunk)
    path.rename(folder / digest.hexdigest())
    return _Blob(digest=f"sha256:{digest.hexdigest()}", size=size, start=start)


def _content(blob: _Blob, folder: Path) -> bytes:
    return (folder / blob.digest.removeprefix("sha256:")).read_bytes()


def _layer(blob: _Blob, diff_id: str) -> dict[str, Any]:
    kind = next((k for magic, k in _MAGIC.items() if blob.start.startswith(magic)), "")
    if not kind and blob.digest != diff_id:
        raise ValueError(f"layer {blob.digest} is not {diff_id}")
    return oci.descriptor(oci.LAYER_TYPE + kind, blob.digest, blob.size)


class _Stream:
    """Chunks as a file that is read once."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._rest = iter(chunks), b""

    def read(self, size: int) -> bytes:
        parts = [self._rest]
        have = len(self._rest)
        while have < size and (chunk := next(self._chunks, b"")):
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]
