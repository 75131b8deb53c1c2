"""Where an image's files go: a folder (OCI layout), an archive, an engine, a registry."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from envlock.errors import BuildError, InputError, TargetError, UsageError
from envlock.image import oci
from envlock.image.base_export import is_loopback
from envlock.image.fetch import place_file, scratch_folder
from envlock.image.foundation import BaseLayer, read_layers
from envlock.image.plan import EPOCH, LABEL
from envlock.targets.engine import Engine
from envlock.targets.process import Limits, find_program, run

_CHUNK = 1 << 20
_PUSH = Limits(timeout_s=7200, stdout_bytes=1 << 20)


class ImageFiles(Protocol):
    """An image whose parts are files of this machine, whatever made them."""

    @property
    def image_id(self) -> str:
        """Digest of the config."""

    @property
    def config(self) -> bytes: ...

    @property
    def blobs(self) -> Sequence[BaseLayer]:
        """All layers from below."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    """ImageFiles that an engine made."""

    image_id: str
    config: bytes
    blobs: Sequence[BaseLayer]


def packed(layout: oci.Layout) -> Packed:
    """Raises InputError for a layout whose parts do not fit each other."""
    layers = read_layers(layout)
    digest = json.loads(layout.manifest)["config"]["digest"]
    path = layout.blob(digest)
    assert path  # which read_layers has read
    return Packed(image_id=digest, config=path.read_bytes(), blobs=layers)


class Kind(Enum):
    DOCKER = "docker"
    STORAGE = "containers-storage"
    """Where Buildah, Podman and skopeo keep images; the name is the image's tag."""
    OCI = "oci"
    ARCHIVE = "docker-archive"


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    kind: Kind
    path: Path | None = None


def parse_output(text: str) -> Output:
    """``docker``, ``containers-storage``, ``oci:DIR``, ``docker-archive:FILE``; raises UsageError."""
    name, colon, path = text.partition(":")
    if text in (Kind.DOCKER.value, Kind.STORAGE.value):
        return Output(kind=Kind(text))
    if colon and path and name in (Kind.OCI.value, Kind.ARCHIVE.value):
        return Output(kind=Kind(name), path=Path(path))
    raise UsageError(
        f"--output {text}: not a place for an image",
        hint="give docker, containers-storage, oci:FOLDER or docker-archive:FILE",
    )


def write_oci(image: ImageFiles, folder: Path, name: str | None = None) -> str:
    """Write an OCI layout in one step and return its manifest's digest.

    What is there is replaced only when it is an image of envlock's. Raises InputError.
    """
    _check_replaceable(folder)
    with _beside(folder) as scratch:
        blobs = scratch / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        for blob in image.blobs:
            target = blobs / blob.digest.removeprefix("sha256:")
            if not target.exists():
                place_file(blob.path, target)
        (blobs / image.image_id.removeprefix("sha256:")).write_bytes(image.config)
        digest = oci.write_index(
            scratch,
            oci.descriptor(oci.CONFIG_TYPE, image.image_id, len(image.config)),
            [oci.descriptor(one.media_type, one.digest, one.size_bytes) for one in image.blobs],
            name=name,
        )
        if folder.exists():
            folder.rename(scratch.with_name("replaced"))
        scratch.rename(folder)
    return digest


def write_archive(image: ImageFiles, path: Path, tag: str | None) -> None:
    """Write what ``docker save`` would have written, in one step. Raises InputError."""
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint="name a file: docker-archive:image.tar")
    with _beside(path) as scratch:
        with scratch.open("wb") as file:
            for chunk in archive(image, tag):
                file.write(chunk)
        scratch.replace(path)


def load(image: ImageFiles, engine: Engine) -> None:
    """Put an image into an engine, under its own id. Raises TargetError when that is another.

    Layers that the engine has, in the same order upon the same base, are not sent.
    """
    diff_ids = [blob.diff_id for blob in image.blobs]
    known = max((_common(diff_ids, stack) for stack in engine.stacks(f"{LABEL}.format")), default=0)
    try:
        engine.load_stream(archive(image, None, left_out=known), "the image")
    except (InputError, TargetError):
        if not known:
            raise
        engine.load_stream(archive(image, None), "the image")
    try:
        found = engine.resolve(image.image_id)
    except TargetError as error:
        raise TargetError(
            f"the engine does not have the image under its id {image.image_id}",
            hint="an engine with the containerd image store gives ids of its own: "
            "write the image to a folder (-o oci:DIR) and copy it from there",
        ) from error
    if found.layers != tuple(diff_ids):
        raise BuildError(
            f"the engine holds other layers than {image.image_id} has",
            hint="remove that image from the engine (docker rmi) and build again",
        )


def push(image: ImageFiles, reference: str, engine: Engine | None) -> str:
    """Push to a registry: by skopeo where it is, else by the engine. Returns who did.

    Raises TargetError with what the registry said, or when nobody can push.
    """
    if engine is not None and shutil.which("skopeo") is None:
        load(image, engine)
        engine.tag(image.image_id, reference)
        engine.push(reference)
        return "the engine"
    loopback = ["--dest-tls-verify=false"] if is_loopback(reference) else []
    fault = _copy(image, f"docker://{reference}", loopback)
    if fault is not None:
        raise TargetError(
            f"{reference} could not be pushed: {fault}",
            hint="log in with 'skopeo login' or 'docker login', and check the name",
        )
    return "skopeo"


def store(image: ImageFiles, tag: str) -> None:
    """Put an image where Buildah and Podman keep theirs, under its own id. Raises TargetError."""
    fault = _copy(image, f"containers-storage:{tag}", [])
    if fault is not None:
        raise TargetError(
            f"{tag} could not be put into containers-storage: {fault}",
            hint="write it to a folder (-o oci:DIR); podman and buildah can pull from there",
        )


def _copy(image: ImageFiles, target: str, options: Sequence[str]) -> str | None:
    """What skopeo said when it could not copy; raises TargetError without it."""
    skopeo = find_program("skopeo", hint="install skopeo, or start a Docker Engine")
    with scratch_folder(".push-") as folder:
        layout = folder / "layout"
        write_oci(image, layout)
        command: list[str | Path] = [skopeo, "copy", "--quiet", *options, f"oci:{layout}", target]
        done = run(command, limits=_PUSH)
    return done.stderr_tail() if done.code != 0 else None


def archive(image: ImageFiles, tag: str | None, *, left_out: int = 0) -> Iterator[bytes]:
    """A ``docker save`` archive as it goes; the lowest ``left_out`` layers are only named."""
    config = f"{image.image_id.removeprefix('sha256:')}.json"
    names = [
        f"{number:03}-{blob.digest.removeprefix('sha256:')[:32]}/layer.tar"
        for number, blob in enumerate(image.blobs)
    ]
    manifest = [{"Config": config, "RepoTags": [tag] if tag else None, "Layers": names}]
    for blob, name in list(zip(image.blobs, names, strict=True))[left_out:]:
        yield _header(name, blob.size_bytes)
        with blob.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
        yield _padding(blob.size_bytes)
    for name, data in ((config, image.config), ("manifest.json", json.dumps(manifest).encode())):
        yield _header(name, len(data)) + data + _padding(len(data))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, EPOCH, 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _common(left: list[str], right: tuple[str, ...]) -> int:
    """How many of the lowest layers are the same."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _check_replaceable(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        labels = oci.read_layout(folder).config().get("config", {}).get("Labels") or {}
    except InputError:
        labels = {}
    if f"{LABEL}.format" not in labels:
        raise InputError(
            f"{folder} is there, and is not an image that envlock wrote",
            hint="name another folder with -o oci:DIR",
        )


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A place on the same file system, gone afterwards with what is still in it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".envlock-", dir=target.parent) as name:
            yield Path(name) / "new"
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written: {error.strerror or error}",
            hint="make room, or name another place with -o",
        ) from error
