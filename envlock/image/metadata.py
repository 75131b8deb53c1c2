"""What a build says about itself in a file: ``envlock build --metadata FILE``."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from envlock.lock.fields import Bytes, Count, Digest
from envlock.lock.shape import Model, Within


class LayerReport(Model):
    name: str
    diff_id: Digest
    size_bytes: Bytes | None
    """Of the tar, uncompressed; None where an engine made it and does not say."""
    reused: bool | None
    """Found as an earlier build wrote it; None where an engine made it."""


class BaseReport(Model):
    reference: str
    digest: Digest
    layers: list[Digest]
    entrypoint: list[str]
    user: str
    env: dict[str, str]
    """As the base's config has them, escaped and without secrets that can be told."""


class SizesReport(Model):
    """As known before the build: in bytes, with the number of files that nobody knows it of."""

    fetch_bytes: Bytes
    fetch_unknown: Count
    unpacked_bytes: Bytes
    unpacked_unknown: Count
    layers_bytes: Bytes | None
    """Of all layers upon the base, uncompressed; None where one is not known."""


class BuildReport(Model):
    """Every field is written, whatever its value."""

    schema_: Literal["envlock-build/1"]
    way: Literal["assembler", "dockerfile"]
    why: str
    engine: str
    flavour: Literal["runtime", "devel"]
    flavour_why: str
    cuda_twice: str | None
    """Where the base and the wheels both bring CUDA: what was said about it."""
    image_id: Digest
    lock_id: str
    base: BaseReport
    layers: list[LayerReport]
    """Upon the base, from below."""
    sizes: SizesReport
    outputs: list[str]
    verified: bool | None
    """None: nothing was run."""
    seconds: dict[str, Annotated[float, Within(0)]]
    """By step."""

    def as_json(self) -> str:
        """Raises ShapeError for a report that nobody could read again."""
        data = self.plain()
        BuildReport.read(data)
        return json.dumps(data, indent=1) + "\n"
