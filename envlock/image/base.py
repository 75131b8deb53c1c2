"""Which image is built upon: exactly the lock's Python, pinned by digest, or a clear error."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from envlock.errors import BuildError, InputError, TargetError
from envlock.image.base_export import from_engine, from_registry
from envlock.image.choices import Flavour
from envlock.image.fetch import Shelves, cache_folder
from envlock.image.flavour import devel_base
from envlock.image.foundation import PYTHON_LABEL, PYTHON_VERSION_LABEL, Foundation, read_foundation
from envlock.image.managed_python import find_managed, managed_layout
from envlock.image.mirror import check_mirror, full_name, mirrored
from envlock.image.oci import Layout, read_layout
from envlock.image.plan import Base, BaseSettings, python_version
from envlock.image.registry import LoopbackRegistry
from envlock.lock.model import Lock, ManagedPython
from envlock.lock.references import check_reference
from envlock.targets.engine import Engine, ImageInfo
from envlock.targets.engine_errors import EngineGoneError
from envlock.targets.image_info import split_tag

T = TypeVar("T")
_PLAN = """
2. if the tag is gone or has moved: name another, or an image by its digest (NAME@sha256:...);
   the lock's [tool.envlock.image] has the digest of its first build
3. if its registry cannot be reached from here: --base-mirror PREFIX; or, where it can be reached,
   'skopeo copy docker://{reference} oci:DIR', and here --base oci:DIR
4. without any registry: 'images/base/build.py DIR', and --base oci:DIR"""
OFFICIAL = "docker.io/library/python:{version}-slim"
PYTHON_ON_PATH = "python3"
"""Both the official images and distributions have it on the PATH of their config."""
LAYOUT_PREFIX = "oci:"
BOOTSTRAPPED = "bootstrapped"
MANAGED = "managed-python"
SYSTEM = "docker.io/library/debian:12-slim"
"""What a standalone Python stands upon where this machine has no bootstrapped base."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseChoice:
    """What the person said about the base."""

    reference: str | None = None
    """An image, or ``oci:FOLDER``. None: chosen by the lock's Python."""
    python: ManagedPython | None = None
    """What the first build put upon a base, as none had the lock's Python."""
    allow_tag: bool = False
    """Take an image that has no digest in any registry, by its tag."""
    allow_onbuild: bool = False
    mirror: str | None = None
    """What stands in for Docker Hub, by ``mirror.check_mirror``; None: nothing does."""
    offline: bool = False
    """Take only what this machine has."""

    def settled(self, lock: Lock, flavour: Flavour) -> BaseChoice:
        """Where nothing was said, with the base of the lock's first build, if that had the flavour.

        Else with the devel flavour's; raises BuildError where that is not known.
        """
        if self.reference is not None:
            return self
        image = lock.table.image
        base = image.base if (image.flavour or "runtime") == flavour.value else None
        if base is not None and base.reference == MANAGED:
            return replace(self, python=image.python)
        if base is not None and base.reference != BOOTSTRAPPED:
            return replace(self, reference=f"{base.reference}@{base.digest}")
        return replace(self, reference=devel_base(lock)) if flavour is Flavour.DEVEL else self


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """For which Python a base is looked for, and where."""

    python: str
    """``3.11.2``"""
    engine: Engine | None
    shelves: Shelves
    """Where a Python that is put upon a base may lie."""
    say: Callable[[str], None]


@contextlib.contextmanager
def chosen_base(choice: BaseChoice, search: Search) -> Iterator[Base]:
    """The base for an engine; one from a folder is served while this is entered.

    Raises BuildError when there is none, with the ways to get one.
    """
    engine = search.engine or Engine.connect()
    found = _decided(choice, search, lambda name, why: _from_engine(name, why, choice, engine))
    if isinstance(found, Base):
        yield found
        return
    with LoopbackRegistry(found.layout) as registry:
        yield found.base(registry.reference)


def assembly_base(choice: BaseChoice, search: Search) -> Foundation:
    """The same base as files, for building without an engine; one may serve as its source.

    Raises BuildError when there is none, with the ways to get one.
    """
    engine = search.engine
    found = _decided(choice, search, lambda name, why: _named_files(name, why, choice, engine))
    if isinstance(found, Foundation):
        return found
    return read_foundation(found.layout, found.base(f"{found.name}@{found.layout.manifest_digest}"))


@dataclass(frozen=True, kw_only=True, slots=True)
class _OnDisk:
    layout: Layout
    origin: str
    managed: ManagedPython | None = None

    @property
    def name(self) -> str:
        return MANAGED if self.managed else BOOTSTRAPPED

    def base(self, reference: str) -> Base:
        """``reference``: what the layout is called where it is served or read."""
        base = _of_layout(self.layout, reference, self.origin)
        return replace(base, name=self.name, managed=self.managed)


def _decided(choice: BaseChoice, search: Search, named: Callable[[str, str], T]) -> T | _OnDisk:
    """The base that was given, else the official image, else the bootstrapped one, else any with uv's.

    ``named`` gets an image by its reference and origin. Raises BuildError when there is none.
    """
    reference, python = choice.reference, search.python
    if choice.python is not None:
        return _managed(choice, search, choice.python)
    if choice.mirror is not None:
        check_mirror(choice.mirror)
    if reference is not None and reference.startswith(LAYOUT_PREFIX):
        layout = read_layout(Path(reference.removeprefix(LAYOUT_PREFIX)))
        return _on_disk(layout, "given with --base", choice)
    if reference is not None:
        with _planned(reference):
            return named(reference, "given with --base or recorded")
    official = OFFICIAL.format(version=python)
    try:
        return named(official, f"the official image of Python {python}")
    except TargetError as error:
        why = error.message
    bootstrapped = _bootstrapped(python)
    if bootstrapped is not None:
        search.say(f"{official} is not to be had; taking the bootstrapped base")
        return _on_disk(bootstrapped, f"bootstrapped, with Python {python}", choice)
    try:
        return _managed(choice, search, None)
    except (BuildError, TargetError) as error:
        raise _no_base(python, official, why, error.message) from error


def _managed(choice: BaseChoice, search: Search, recorded: ManagedPython | None) -> _OnDisk:
    """uv's Python upon the system that is recorded, else the bootstrapped base's, else Debian's."""
    system = recorded.system if recorded else None
    layout = None if system else _bootstrapped(None)
    if layout is None:
        if recorded is not None and system is None:
            raise BuildError(
                "the bootstrapped base that this lock was first built upon is not on this machine",
                hint="make one with images/base/build.py, or name another base with --base",
            )
        found = _named_files(system or SYSTEM, "", choice, search.engine)
        layout, system = read_layout(found.folder), f"{found.base.name}@{found.base.digest}"
    _check_onbuild(system or BOOTSTRAPPED, layout.config()["config"].get("OnBuild"), choice)
    python = recorded or find_managed(search.python, search.shelves, search.say, system)
    return _OnDisk(
        layout=managed_layout(python, search.python, layout, search.shelves, search.say),
        origin=f"Python {search.python} as uv has it, upon the system of {system or BOOTSTRAPPED}",
        managed=python,
    )


def _on_disk(layout: Layout, origin: str, choice: BaseChoice) -> _OnDisk:
    _check_onbuild(BOOTSTRAPPED, layout.config()["config"].get("OnBuild"), choice)
    return _OnDisk(layout=layout, origin=origin)


def _named_files(
    reference: str, origin: str, choice: BaseChoice, engine: Engine | None
) -> Foundation:
    check_reference(reference, "image.base")
    exports = cache_folder() / "bases"
    if engine is not None:
        base = _from_engine(reference, origin, choice, engine)
        layout = from_engine(engine, engine.resolve(base.reference), exports)
        return read_foundation(layout, base)
    if choice.offline:
        raise TargetError(
            f"{reference} is not on this machine", hint="leave --offline away, or start an engine"
        )
    place = mirrored(reference, choice.mirror)
    digest, layout = from_registry(place, exports)
    _check_onbuild(reference, layout.config()["config"].get("OnBuild"), choice)
    name = reference.partition("@")[0] if place == reference else _true_name(reference)
    origin = _from_where(origin, reference, place)
    base = replace(_of_layout(layout, f"{name}@{digest}", origin), name=name, digest=digest)
    return read_foundation(layout, base)


def named_base(reference: str | None, lock: Lock, flavour: Flavour = Flavour.RUNTIME) -> Base:
    """The base of a plan that is only rendered: named, recorded, or the flavour's by its tag.

    Nothing is asked of a registry, so a tag stays a tag.
    """
    given = BaseChoice(reference=reference).settled(lock, flavour).reference
    chosen = given or OFFICIAL.format(version=python_version(lock))
    name, _, digest = check_reference(chosen, "image.base").partition("@")
    return Base(
        reference=chosen, name=name, digest=digest, python=PYTHON_ON_PATH, origin="not resolved"
    )


def _from_engine(reference: str, origin: str, choice: BaseChoice, engine: Engine) -> Base:
    check_reference(reference, "image.base")
    place = mirrored(reference, choice.mirror)
    info = engine.resolve(place, pull=not choice.offline)
    _check_onbuild(reference, info.onbuild, choice)
    pinned = _pinned(place, info, choice)
    return Base(
        reference=pinned,
        name=pinned.partition("@")[0] if place == reference else _true_name(reference),
        digest=pinned.partition("@")[2] or info.image_id,
        python=_checked_path(info.labels.get(PYTHON_LABEL, PYTHON_ON_PATH)),
        layers=info.layers,
        settings=BaseSettings(entrypoint=info.entrypoint, user=info.user, env=info.env),
        origin=_from_where(origin, reference, place),
    )


def _true_name(reference: str) -> str:
    """Of an image that came from a mirror: what it is called everywhere, without tag and digest."""
    return split_tag(full_name(reference).partition("@")[0])[0]


def _from_where(origin: str, reference: str, place: str) -> str:
    return origin if place == reference else f"{origin}; found as {place}"


@contextlib.contextmanager
def _planned(reference: str) -> Iterator[None]:
    """With a plan where a base that was named is not to be had. Its cause comes with its own hint."""
    try:
        yield
    except TargetError as error:
        if not isinstance(error, EngineGoneError):
            first = error.hint or "see what the registry says"
            error.hint = f"one of these\n1. {first}{_PLAN.format(reference=reference)}"
        raise


def _pinned(reference: str, info: ImageInfo, choice: BaseChoice) -> str:
    if "@" in reference:
        return reference
    if info.repo_digests:
        own = full_name(split_tag(reference)[0])
        same = [one for one in info.repo_digests if full_name(one.partition("@")[0]) == own]
        return check_reference((same or info.repo_digests)[0], "image.base")
    if choice.allow_tag:
        return reference
    raise InputError(
        f"image.base: {reference} has no digest in a registry, so a build could not be repeated",
        hint="push it to a registry first, or allow the tag with --allow-tag",
    )


def _checked_path(path: str) -> str:
    if not re.fullmatch(r"(?:/[A-Za-z0-9._-]+)+|python3", path, re.ASCII):
        raise InputError(
            f"image.base: label {PYTHON_LABEL}: not a path of an interpreter",
            hint="name another --base",
        )
    return path


def _bootstrapped(python: str | None) -> Layout | None:
    """The one of this machine, if its Python is the one that is wanted; None: whatever it is."""
    folder = cache_folder() / "base"
    if not folder.is_dir():
        return None
    layout = read_layout(folder)
    return layout if python in (None, _labels(layout).get(PYTHON_VERSION_LABEL)) else None


def _of_layout(layout: Layout, reference: str, origin: str) -> Base:
    return Base(
        reference=reference,
        name=BOOTSTRAPPED,
        digest=layout.manifest_digest,
        python=_checked_path(_labels(layout).get(PYTHON_LABEL, PYTHON_ON_PATH)),
        layers=tuple(layout.config()["rootfs"]["diff_ids"]),
        settings=_settings(layout.config()["config"]),
        origin=origin,
    )


def _settings(config: Mapping[str, Any]) -> BaseSettings:
    return BaseSettings(
        entrypoint=tuple(config.get("Entrypoint") or ()),
        user=config.get("User") or "",
        env=dict(item.partition("=")[::2] for item in config.get("Env") or ()),
    )


def _check_onbuild(reference: str, onbuild: object, choice: BaseChoice) -> None:
    if onbuild and not choice.allow_onbuild:
        raise InputError(
            f"image.base: {reference} has ONBUILD instructions, which would run in this build",
            hint="take a base without them, or allow them with --allow-onbuild",
        )


def _no_base(python: str, official: str, why: str, no_managed: str) -> BuildError:
    return BuildError(
        f"there is no base image with Python {python}: {official}: {why}\n"
        f"nor a standalone build of it to put upon a base: {no_managed}",
        hint=f"pull {official}, or make a base of this machine's own Python with "
        "images/base/build.py, or name one with --base",
    )


def _labels(layout: Layout) -> Mapping[str, str]:
    return layout.config()["config"].get("Labels") or {}
