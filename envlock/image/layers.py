"""Layers of an assembled image: written from wheels once, then found again by what is in them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from envlock.errors import BuildError
from envlock.image import oci
from envlock.image.fetch import cache_folder, cannot_write, scratch_folder
from envlock.image.kept import MOST_LAYERS_BYTES, STRAY, mark_used, prune, sweep
from envlock.image.plan import EPOCH, FORMAT, Artifact
from envlock.image.unpack import Entry, Link, Places, Tree, clashes, tar_entries, unpack
from envlock.image.wheel import open_wheel
from envlock.lock.fields import Bytes, Digest
from envlock.lock.shape import Model, ShapeError

T = TypeVar("T")
Stopped = Callable[[], bool]
"""Whether somebody wants the work to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedLayer:
    name: str
    artifacts: Sequence[Artifact]
    files: Mapping[str, Entry] = field(default_factory=dict)
    """What is not of a wheel, by absolute path."""
    places: Places

    @property
    def key(self) -> str:
        """Equal for equal contents, whatever the base and the other layers are."""
        content = {
            "format": FORMAT,
            "prefix": self.places.prefix,
            "python": self.places.python,
            "wheels": [[a.name, a.version, sorted(a.wheel.hashes.items())] for a in self.artifacts],
            "files": {path: _described(entry) for path, entry in self.files.items()},
        }
        return hashlib.sha256(oci.canonical_json(content)).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltLayer:
    name: str
    layer: oci.Layer
    reused: bool
    seconds: float
    contested: Sequence[str] = ()


class _Note(Model):
    """What is kept beside a layer, to know it again without reading it."""

    digest: Digest
    size_bytes: Bytes
    mtime_ns: int
    contested: list[str]


class LayerStore:
    """A folder of layers by their key; each appears there in one step, whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, wanted: WantedLayer) -> BuiltLayer | None:
        """A layer that was written before, and that nobody has touched since."""
        place = self._folder / wanted.key
        path = place / "layer.tar"
        try:
            note = _Note.read(json.loads((place / "layer.json").read_bytes()))
            info = path.stat()
        except (OSError, ValueError, ShapeError):
            return None
        if (info.st_size, info.st_mtime_ns) != (note.size_bytes, note.mtime_ns):
            return None
        mark_used(place)
        layer = oci.Layer(path=path, digest=note.digest, size_bytes=note.size_bytes)
        return BuiltLayer(
            name=wanted.name, layer=layer, reused=True, seconds=0.0, contested=note.contested
        )

    def add(
        self, wanted: WantedLayer, wheels: Mapping[str, Path], stopped: Stopped = lambda: False
    ) -> BuiltLayer:
        """Write a layer. Raises InputError for a wheel that is refused, and for the disk."""
        place = self._folder / wanted.key
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            sweep(self._folder)
            with tempfile.TemporaryDirectory(prefix=STRAY, dir=self._folder) as name:
                new = Path(name) / "layer"
                new.mkdir()
                built = write(wanted, wheels, new / "layer.tar", stopped)
                note = _Note(
                    digest=built.layer.digest,
                    size_bytes=built.layer.size_bytes,
                    mtime_ns=built.layer.path.stat().st_mtime_ns,
                    contested=list(built.contested),
                )
                (new / "layer.json").write_text(json.dumps(note.plain()), "utf-8")
                if place.exists():  # it was found wanting
                    place.rename(Path(name) / "old")
                try:
                    new.rename(place)
                except OSError:
                    if self.find(wanted) is None:  # else another build was quicker
                        raise
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        found = self.find(wanted)
        assert found is not None
        return replace(found, reused=False, seconds=built.seconds)


def write(
    wanted: WantedLayer,
    wheels: Mapping[str, Path],
    target: Path,
    stopped: Stopped = lambda: False,
) -> BuiltLayer:
    """Write the tar of a layer. Raises InputError that names a wheel which is refused."""
    started = time.monotonic()
    tree = Tree()
    with contextlib.ExitStack() as opened:
        for artifact in wanted.artifacts:
            wheel = opened.enter_context(open_wheel(wheels[artifact.name], artifact))
            unpack(wheel, wanted.places, tree)
        for path, entry in wanted.files.items():
            tree.add(path, entry)
        for clash in clashes(tree.entries):
            owner = tree.entries[clash].owner
            raise BuildError(
                f"{owner}: {clash} is a file, where another package has a folder",
                hint="these packages cannot stand in one environment; leave one out",
            )
        layer = oci.write_layer(target, _until(stopped, tar_entries(tree.entries)), epoch=EPOCH)
    return BuiltLayer(
        name=wanted.name,
        layer=layer,
        reused=False,
        seconds=round(time.monotonic() - started, 2),
        contested=tree.contested,
    )


def _until(stopped: Stopped, entries: Iterable[T]) -> Iterator[T]:
    for entry in entries:
        if stopped():
            raise BuildError("stopped")  # nobody hears it: what stopped it is what is told
        yield entry


@contextlib.contextmanager
def layer_store(*, kept: bool) -> Iterator[LayerStore]:
    """The store of all builds, which holds at most MOST_LAYERS_BYTES; or, not ``kept``, an empty one for the time of one build."""
    if kept:
        folder = cache_folder() / "layers"
        yield LayerStore(folder)
        prune(folder, MOST_LAYERS_BYTES)
        return
    with scratch_folder(".build-") as folder:
        yield LayerStore(folder)


def _described(entry: Entry) -> list[str]:
    if isinstance(entry.content, Link):
        return ["link", entry.content.target]
    assert isinstance(entry.content, bytes)
    kind = "program" if entry.executable else "file"
    return [kind, hashlib.sha256(entry.content).hexdigest()]


def describe(built: BuiltLayer) -> str:
    """One line for the person who waits."""
    how = "unchanged" if built.reused else f"written in {built.seconds:g} s"
    return f"layer {built.name}: {built.layer.size_bytes >> 20} MiB, {how}"
