"""The files of a lock's packages: found or downloaded, and never used without their hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import requests

from envlock.errors import BuildError, InputError
from envlock.image.plan import Artifact
from envlock.redact import redact

_CHUNK = 1 << 20
_TIMEOUT_S = (20, 120)
"""To connect, and between two chunks."""
_PARALLEL = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Shelves:
    """Where files may already be."""

    folders: Sequence[Path]
    """A wheelhouse, pip's find-links folders, the lock's own folder."""
    cache: Path
    """``<sha256>/<file name>``: what was downloaded before."""
    offline: bool = False


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "envlock"


def gather(
    artifacts: Sequence[Artifact], shelves: Shelves, say: Callable[[str], None]
) -> dict[str, Path]:
    """Package name -> a file whose hashes were checked just now.

    Raises BuildError that names the package, and what was looked for where.
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
        if missing:
            say(f"fetching {len(missing)} of {len(artifacts)} wheels")
        downloads = pool.map(lambda a: _download(a, shelves, say), missing)
        paths.update(zip((a.name for a in missing), downloads, strict=True))
    return paths


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
            try:
                os.link(path, target)
            except OSError:
                shutil.copyfile(path, target)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error


def _find(artifact: Artifact, shelves: Shelves) -> Path | None:
    name = artifact.wheel.filename
    own = shelves.cache / artifact.wheel.hashes.get("sha256", "none") / name
    wrong = None
    for path in (*(folder / name for folder in shelves.folders), own):
        if path.is_file():
            if _matches(path, artifact):
                return path
            wrong = path
    if wrong is not None and (shelves.offline or artifact.wheel.url is None):
        raise BuildError(
            f"{artifact.name}: {wrong} is not the file that the lock names (its hash differs)",
            hint="get the file again from where the lock came from; do not build from this one",
        )
    return None


def _download(artifact: Artifact, shelves: Shelves, say: Callable[[str], None]) -> Path:
    url, name = artifact.wheel.url, artifact.wheel.filename
    if url is None or shelves.offline:
        looked = ", ".join(str(folder) for folder in shelves.folders) or "no folder"
        raise BuildError(
            f"{artifact.name}: {name} is in none of the given folders ({looked})",
            hint="give the folder that holds it: --wheelhouse DIR",
        )
    target = shelves.cache / artifact.wheel.hashes.get("sha256", "none") / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".part-", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                _receive(url, file.write)
            if not _matches(Path(temporary), artifact):
                raise BuildError(
                    f"{artifact.name}: what {urlsplit(url).hostname} sent is not the file that "
                    "the lock names (its hash differs)",
                    hint="do not build from it; tell whoever sent the lock",
                )
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{target.parent}: cannot be written: {error.strerror}") from error
    say(f"fetched {name}")
    return target


def _receive(url: str, write: Callable[[bytes], object]) -> None:
    try:
        with requests.get(url, stream=True, timeout=_TIMEOUT_S) as answer:
            answer.raise_for_status()
            for chunk in answer.iter_content(_CHUNK):
                write(chunk)
    except requests.RequestException as error:
        raise BuildError(
            f"{urlsplit(url).hostname} did not send a file: {redact(str(error))}",
            hint="check the network, or build from files: --wheelhouse DIR",
        ) from error


def _matches(path: Path, artifact: Artifact) -> bool:
    """Whether every hash that the lock has for it is the file's."""
    digests = {kind: hashlib.new(kind) for kind in artifact.wheel.hashes}
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            for digest in digests.values():
                digest.update(chunk)
    return all(digests[kind].hexdigest() == value for kind, value in artifact.wheel.hashes.items())
