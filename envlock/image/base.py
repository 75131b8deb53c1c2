"""Which image is built upon: exactly the lock's Python, pinned by digest, or a clear error."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envlock.errors import BuildError, InputError, TargetError
from envlock.image.fetch import cache_folder
from envlock.image.oci import Layout, read_layout
from envlock.image.plan import Base, python_version
from envlock.image.registry import LoopbackRegistry
from envlock.lock.model import Lock
from envlock.lock.references import check_reference
from envlock.targets.engine import Engine, ImageInfo

OFFICIAL = "docker.io/library/python:{version}-slim"
PYTHON_ON_PATH = "python3"
"""Both the official images and distributions have it on the PATH of their config."""
LAYOUT_PREFIX = "oci:"
BOOTSTRAPPED = "bootstrapped"
PYTHON_LABEL, PYTHON_VERSION_LABEL = "org.envlock.base.python", "org.envlock.base.python-version"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseChoice:
    """What the person said about the base."""

    reference: str | None = None
    """An image, or ``oci:FOLDER``. None: chosen by the lock's Python."""
    allow_tag: bool = False
    """Take an image that has no digest in any registry, by its tag."""
    allow_onbuild: bool = False


@contextlib.contextmanager
def chosen_base(
    choice: BaseChoice, python: str, engine: Engine, say: Callable[[str], None]
) -> Iterator[Base]:
    """The base for ``python`` (``3.11.2``); a bootstrapped one is served while this is entered.

    Raises BuildError when there is none, with the ways to get one.
    """
    if choice.reference is not None and choice.reference.startswith(LAYOUT_PREFIX):
        folder = Path(choice.reference.removeprefix(LAYOUT_PREFIX))
        with _served(read_layout(folder), "given with --base") as base:
            yield base
        return
    if choice.reference is not None:
        yield _from_engine(choice.reference, "given with --base", choice, engine)
        return
    official = OFFICIAL.format(version=python)
    try:
        yield _from_engine(official, f"the official image of Python {python}", choice, engine)
    except TargetError as error:
        why = error.message
    else:
        return
    layout = _bootstrapped(python)
    if layout is None:
        raise BuildError(
            f"there is no base image with Python {python}: {official}: {why}",
            hint=f"pull {official}, or make a base of this machine's own Python with "
            "images/base/build.py, or name one with --base",
        )
    say(f"{official} is not to be had; taking the bootstrapped base")
    with _served(layout, f"bootstrapped, with Python {python}") as base:
        yield base


def named_base(reference: str | None, lock: Lock) -> Base:
    """The base of a plan that is only rendered: named, recorded, or the official image's tag.

    Nothing is asked of a registry, so a tag stays a tag.
    """
    recorded = lock.table.image.base
    if reference is None and recorded is not None and recorded.reference != BOOTSTRAPPED:
        reference = f"{recorded.reference}@{recorded.digest}"
    chosen = reference or OFFICIAL.format(version=python_version(lock))
    name, _, digest = check_reference(chosen, "image.base").partition("@")
    return Base(
        reference=chosen, name=name, digest=digest, python=PYTHON_ON_PATH, origin="not resolved"
    )


def _from_engine(reference: str, origin: str, choice: BaseChoice, engine: Engine) -> Base:
    check_reference(reference, "image.base")
    info = engine.resolve(reference, pull=True)
    if info.onbuild and not choice.allow_onbuild:
        raise InputError(
            f"image.base: {reference} has ONBUILD instructions, which would run in this build",
            hint="take a base without them, or allow them with --allow-onbuild",
        )
    pinned = _pinned(reference, info, choice)
    return Base(
        reference=pinned,
        name=pinned.partition("@")[0],
        digest=pinned.partition("@")[2] or info.image_id,
        python=_checked_path(info.labels.get(PYTHON_LABEL, PYTHON_ON_PATH)),
        layers=info.layers,
        origin=origin,
    )


def _pinned(reference: str, info: ImageInfo, choice: BaseChoice) -> str:
    if "@" in reference:
        return reference
    if info.repo_digests:
        return check_reference(info.repo_digests[0], "image.base")
    if choice.allow_tag:
        return reference
    raise InputError(
        f"image.base: {reference} has no digest in a registry, so a build could not be repeated",
        hint="push it to a registry first, or allow the tag with --allow-tag",
    )


def _checked_path(path: str) -> str:
    if not re.fullmatch(r"(?:/[A-Za-z0-9._-]+)+|python3", path, re.ASCII):
        raise InputError(f"image.base: label {PYTHON_LABEL}: not a path of an interpreter")
    return path


def _bootstrapped(python: str) -> Layout | None:
    folder = cache_folder() / "base"
    if not folder.is_dir():
        return None
    layout = read_layout(folder)
    return layout if _labels(layout).get(PYTHON_VERSION_LABEL) == python else None


@contextlib.contextmanager
def _served(layout: Layout, origin: str) -> Iterator[Base]:
    with LoopbackRegistry(layout) as registry:
        yield Base(
            reference=registry.reference,
            name=BOOTSTRAPPED,
            digest=layout.manifest_digest,
            python=_checked_path(_labels(layout).get(PYTHON_LABEL, PYTHON_ON_PATH)),
            layers=tuple(_config(layout)["rootfs"]["diff_ids"]),
            origin=origin,
        )


def _labels(layout: Layout) -> dict[str, Any]:
    return _config(layout).get("config", {}).get("Labels") or {}


def _config(layout: Layout) -> dict[str, Any]:
    path = layout.blob(json.loads(layout.manifest)["config"]["digest"])
    if path is None:
        raise InputError(f"{layout.folder}: the config blob is missing")
    config: dict[str, Any] = json.loads(path.read_bytes())
    return config
