"""The files of a lock's packages: found or downloaded, and never used without their hash."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from envlock.errors import BuildError, InputError
from envlock.image.download import continued, receive
from envlock.image.kept import MOST_FILES_BYTES, mark_used, prune
from envlock.image.plan import Artifact

_CHUNK = 1 << 20
_PARALLEL = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Shelves:
    """Where files may already be."""

    folders: Sequence[Path]
    """pip's find-links folders, the lock's own folder."""
    cache: Path
    """``<sha256>/<file name>``: what was downloaded before."""
    offline: bool = False
    wheelhouse: Path | None = None
    """Given for this lock: a file in it that is not the lock's is a fault, not another build."""

    @property
    def all_folders(self) -> tuple[Path, ...]:
        return (*([self.wheelhouse] if self.wheelhouse else []), *self.folders)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "envlock"


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder among what envlock keeps, gone afterwards. Raises InputError when there is no room."""
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=prefix, dir=cache)
    except OSError as error:
        raise cannot_write(cache, error) from error
    with scratch as folder:
        yield Path(folder)


Locate = Callable[[Sequence[str]], Mapping[str, str]]
"""From names of packages to URLs of their wheels, for those that can be had."""


def gather(
    artifacts: Sequence[Artifact],
    shelves: Shelves,
    say: Callable[[str], None],
    locate: Locate | None = None,
) -> dict[str, Path]:
    """Package name -> a file whose hashes were checked just now.

    ``locate`` is asked for wheels that are not here and for which the lock names no place. Raises
    BuildError that names the package, and what was looked for where.
    """
    paths: dict[str, Path] = {}
    missing: list[Artifact] = []
    with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
        for artifact, found in zip(
            artifacts, pool.map(lambda a: _find(a, shelves), artifacts), strict=True
        ):
            if found is None:
                missing.append(artifact)
            else:
                paths[artifact.name] = found
        if missing and locate is not None and not shelves.offline:
            missing = _located(missing, locate)
        if missing:
            say(f"fetching {len(missing)} of {len(artifacts)} wheels")
        stopped = threading.Event()
        downloads = pool.map(lambda a: _download(a, shelves, say, stopped.is_set), missing)
        try:
            paths.update(zip((a.name for a in missing), downloads, strict=True))
        except BaseException:
            stopped.set()  # the others end at their next chunk, and keep what they have
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for path in paths.values():
        if path.parent.parent == shelves.cache:
            mark_used(path.parent)
    prune(shelves.cache, MOST_FILES_BYTES)
    return paths


def _located(artifacts: Sequence[Artifact], locate: Locate) -> list[Artifact]:
    homeless = [artifact.name for artifact in artifacts if artifact.wheel.url is None]
    urls = locate(homeless) if homeless else {}
    return [
        replace(artifact, wheel=replace(artifact.wheel, url=urls[artifact.name]))
        if artifact.name in urls
        else artifact
        for artifact in artifacts
    ]


def gather_known(artifacts: Sequence[Artifact], shelves: Shelves) -> None:
    """For files that are not needed: raises BuildError where one at hand is not what the lock names.

    Whoever altered a wheelhouse should hear of it from every build, also from one that has the
    layer already.
    """
    with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
        list(pool.map(lambda a: _find(a, shelves), artifacts))


def place(paths: Iterable[Path], folder: Path) -> None:
    """Put files into a folder: by hard link where that works, else as copies.

    Raises InputError when it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            target = folder / path.name
            if target.exists() and target.samefile(path):
                continue
            target.unlink(missing_ok=True)
            place_file(path, target)
    except OSError as error:
        raise cannot_write(folder, error) from error


def place_file(source: Path, target: Path) -> None:
    """By hard link where that works, else as a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def cannot_write(place: Path, error: OSError) -> InputError:
    return InputError(
        f"{place}: cannot be written: {error.strerror or error}",
        hint="make room there and check who may write; XDG_CACHE_HOME moves what envlock keeps",
    )


def has_hashes(file: BinaryIO, hashes: Mapping[str, str]) -> bool:
    """Whether a file, from where it stands to its end, has every one of these hashes, and one."""
    digests = {kind: hashlib.new(kind) for kind in hashes}
    while chunk := file.read(_CHUNK):
        for digest in digests.values():
            digest.update(chunk)
    return bool(hashes) and all(digests[kind].hexdigest() == hashes[kind] for kind in hashes)


def _find(artifact: Artifact, shelves: Shelves) -> Path | None:
    wrong = None
    for path in places(artifact, shelves):
        try:
            if path.is_file():
                if _matches(path, artifact):
                    return path
                wrong = wrong or path
        except OSError as error:
            raise InputError(
                f"{artifact.name}: {path}: cannot be read: {error.strerror}",
                hint="check who may read it, or give another folder with it: --wheelhouse DIR",
            ) from error
    given = wrong is not None and wrong.parent == shelves.wheelhouse
    if wrong is not None and (given or shelves.offline or artifact.wheel.url is None):
        raise BuildError(
            f"{artifact.name}: {wrong} is not the file that the lock names (its hash differs)",
            hint="get the file again from where the lock came from; do not build from this one",
        )
    return None


def places(artifact: Artifact, shelves: Shelves) -> Sequence[Path]:
    """Where the file of a package may be, in the order in which it is looked for."""
    name = artifact.wheel.filename
    return [*(folder / name for folder in shelves.all_folders), cached(artifact, shelves)]


def cached(artifact: Artifact, shelves: Shelves) -> Path:
    folder = artifact.wheel.hashes.get("sha256", "none")
    return shelves.cache / folder / artifact.wheel.filename


def _download(
    artifact: Artifact,
    shelves: Shelves,
    say: Callable[[str], None],
    stopped: Callable[[], bool],
) -> Path:
    url, name = artifact.wheel.url, artifact.wheel.filename
    if url is None or shelves.offline:
        looked = ", ".join(str(folder) for folder in shelves.all_folders) or "no folder"
        raise BuildError(
            f"{artifact.name}: {name} is in none of the given folders ({looked})",
            hint="give the folder that holds it: --wheelhouse DIR; envlock fetch LOCK -d DIR looks "
            "for it in the package indexes",
        )
    target = cached(artifact, shelves)
    try:
        with continued(target) as own:
            begun = own.stat().st_size > 0
            receive(url, own, say, stopped)
            if begun and not _matches(own, artifact):  # what was begun was of another file
                own.write_bytes(b"")
                receive(url, own, say, stopped)
            if not _matches(own, artifact):
                own.unlink()
                raise BuildError(
                    f"{artifact.name}: what {urlsplit(url).hostname} sent is not the file that "
                    "the lock names (its hash differs)",
                    hint="do not build from it; tell whoever sent the lock",
                )
            own.replace(target)
    except OSError as error:
        raise cannot_write(target.parent, error) from error
    say(f"fetched {name}")
    return target


def _matches(path: Path, artifact: Artifact) -> bool:
    """Whether every hash that the lock has for it is the file's."""
    with path.open("rb") as file:
        return has_hashes(file, artifact.wheel.hashes)
