"""What an engine says of an image, and the grammar of images' names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envlock.errors import UsageError

# Reference grammar of the distribution project (reference.go), without its length subtleties.
_REFERENCE = re.compile(
    r"(?=.{1,512}$)"
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?/)?"  # host
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"  # path
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"  # tag
    r"(?:@sha256:[0-9a-f]{64})?"  # digest
    r"|sha256:[0-9a-f]{64}|[0-9a-f]{12,64}"  # image id
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageInfo:
    """An image, resolved once: whatever its tag does later, ``image_id`` is this image."""

    reference: str
    """As it was asked for."""
    image_id: str
    """``sha256:…`` of the image's config."""
    repo_digests: tuple[str, ...]
    """``name@sha256:…`` of manifests that this image was pulled from or pushed as."""
    layers: tuple[str, ...]
    """Diff ids, the base's first."""
    os: str
    architecture: str
    size_bytes: int
    user: str
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    onbuild: tuple[str, ...]
    volumes: tuple[str, ...]


def check_reference(reference: str) -> None:
    """Raises UsageError for what cannot be an image's name: it goes into URLs and argument lists."""
    if not _REFERENCE.fullmatch(reference):
        raise UsageError(
            f"not an image reference: {reference!r}",
            hint="write it as name:tag, registry.example/name@sha256:…, or an image id",
        )


def split_tag(reference: str) -> tuple[str, str]:
    """Name and tag, which is ``latest`` where none is written."""
    name, colon, tag = reference.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (reference, "latest")


def image_info(reference: str, raw: Mapping[str, Any]) -> ImageInfo:
    config = raw.get("Config") or {}
    env = [str(item).partition("=") for item in config.get("Env") or ()]
    return ImageInfo(
        reference=reference,
        image_id=str(raw["Id"]),
        repo_digests=tuple(raw.get("RepoDigests") or ()),
        layers=tuple((raw.get("RootFS") or {}).get("Layers") or ()),
        os=str(raw.get("Os", "")),
        architecture=str(raw.get("Architecture", "")),
        size_bytes=int(raw.get("Size", 0)),
        user=str(config.get("User") or ""),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        cmd=tuple(config.get("Cmd") or ()),
        env={name: value for name, _, value in env},
        labels=dict(config.get("Labels") or {}),
        onbuild=tuple(config.get("OnBuild") or ()),
        volumes=tuple(config.get("Volumes") or ()),
    )
