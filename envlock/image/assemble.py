"""Assemble an image from wheel files and a base's layers: no engine, no root, nothing executed.

Every byte is a function of the embedded lock, the base and ``plan.FORMAT``: not of the machine, the
day, the user or the Python that envlock runs on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envlock.image import oci
from envlock.image.fetch import Shelves, gather, gather_known
from envlock.image.foundation import BaseLayer, Foundation
from envlock.image.layers import BuiltLayer, LayerStore, WantedLayer, describe
from envlock.image.plan import EPOCH, FORMAT, BuildPlan
from envlock.image.unpack import Entry, Places

ENGINE = f"assembler (format {FORMAT})"
"""What a lock records as the engine of an assembled image."""
_CREATED = oci.timestamp(EPOCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class Assembled:
    """An image whose parts are files of this machine."""

    image_id: str
    """Digest of the config."""
    config: bytes
    base_layers: Sequence[BaseLayer]
    layers: Sequence[BuiltLayer]
    """What stands upon the base, from below."""

    @property
    def diff_ids(self) -> tuple[str, ...]:
        return tuple(built.layer.digest for built in self.layers)

    @property
    def blobs(self) -> tuple[BaseLayer, ...]:
        """All layers from below."""
        own = (
            BaseLayer(
                path=built.layer.path,
                digest=built.layer.digest,
                size_bytes=built.layer.size_bytes,
                media_type=oci.LAYER_TYPE,
                diff_id=built.layer.digest,
            )
            for built in self.layers
        )
        return (*self.base_layers, *own)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Where layers come from."""

    foundation: Foundation
    shelves: Shelves
    store: LayerStore
    project: Mapping[str, Entry] = field(default_factory=dict)
    """The user's own files, by absolute path."""


def assemble(
    plan: BuildPlan, embedded: bytes, sources: Sources, say: Callable[[str], None]
) -> Assembled:
    """Raises InputError for a wheel that is refused and for the disk, BuildError for the base."""
    wanted = wanted_layers(plan, embedded, sources.foundation)
    if sources.project:
        places = wanted[-1].places
        files = sources.project
        wanted.append(WantedLayer(name="project", artifacts=[], files=files, places=places))
    found = [sources.store.find(layer) for layer in wanted]
    missing = [layer for layer, built in zip(wanted, found, strict=True) if built is None]
    wheels = _wheels(plan, missing, sources.shelves, say)

    layers = _written(wanted, found, wheels, sources.store, say)
    for built in layers:
        for contested in built.contested:
            say(f"contested: {contested} is taken")
    config = config_file(plan, sources.foundation, layers)
    return Assembled(
        image_id=oci.sha256(config),
        config=config,
        base_layers=sources.foundation.layers,
        layers=layers,
    )


def _written(
    wanted: Sequence[WantedLayer],
    found: Sequence[BuiltLayer | None],
    wheels: Mapping[str, Path],
    store: LayerStore,
    say: Callable[[str], None],
) -> list[BuiltLayer]:
    """All layers; the missing ones written side by side, for unpacking and hashing release the lock.

    When one fails, or the person interrupts, the others end at their next file.
    """
    layers = {number: built for number, built in enumerate(found) if built is not None}
    for built in layers.values():
        say(describe(built))
    stopped = threading.Event()
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        running = {
            pool.submit(store.add, layer, wheels, stopped.is_set): number
            for number, layer in enumerate(wanted)
            if number not in layers
        }
        try:
            for done in as_completed(running):
                layers[running[done]] = done.result()
                say(describe(done.result()))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [layers[number] for number in sorted(layers)]


def wanted_layers(plan: BuildPlan, embedded: bytes, foundation: Foundation) -> list[WantedLayer]:
    """The plan's layers; the last one also makes the environment and carries the lock."""
    python = f"python{plan.python_version.rpartition('.')[0]}"
    places = Places(prefix=plan.prefix, python=python)
    artifacts = {artifact.name: artifact for artifact in plan.artifacts}
    last = {
        **foundation.environment(places, plan.python_version),
        plan.lock_path: Entry(content=embedded),
    }
    return [
        WantedLayer(
            name=layer.name,
            artifacts=[artifacts[name] for name in layer.packages],
            files=last if layer is plan.layers[-1] else {},
            places=places,
        )
        for layer in plan.layers
    ]


def _wheels(
    plan: BuildPlan,
    missing: Sequence[WantedLayer],
    shelves: Shelves,
    say: Callable[[str], None],
) -> dict[str, Path]:
    """The files that are needed; of the others, that the ones at hand are what the lock names."""
    needed = {artifact.name for layer in missing for artifact in layer.artifacts}
    gather_known([a for a in plan.artifacts if a.name not in needed], shelves)
    return gather([a for a in plan.artifacts if a.name in needed], shelves, say)


def config_file(plan: BuildPlan, foundation: Foundation, layers: Sequence[BuiltLayer]) -> bytes:
    """The image's config: the base's, with what the plan sets, as the Dockerfile sets it."""
    base = foundation.config
    inherited: Mapping[str, Any] = base["config"]
    env = foundation.env
    path = env.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    env.update({"PATH": f"{plan.prefix}/bin:{path}", **dict(plan.env)})
    # Neither the container that a base was made in, nor instructions for images upon it.
    kept = {key: value for key, value in inherited.items() if key not in ("Image", "OnBuild")}
    diff_ids = [layer.diff_id for layer in foundation.layers]
    ours = [{"created": _CREATED, "created_by": f"envlock: {one.name}"} for one in layers]
    return oci.canonical_json(
        {
            "architecture": base["architecture"],
            "os": base["os"],
            "created": _CREATED,
            "config": {
                **kept,
                "Env": [f"{name}={value}" for name, value in env.items()],
                "Labels": {**(inherited.get("Labels") or {}), **dict(plan.labels)},
                "User": plan.user,
                "Entrypoint": None,
                "Cmd": ["python"],
                **({"WorkingDir": plan.workdir} if plan.workdir else {}),
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": [*diff_ids, *(one.layer.digest for one in layers)],
            },
            "history": [*_history(base, len(diff_ids)), *ours],
        }
    )


def _history(base: Mapping[str, Any], layers: int) -> list[Mapping[str, Any]]:
    """The base's own where it fits its layers: engines refuse one that does not."""
    rows = list(base.get("history") or ())
    if sum(not row.get("empty_layer") for row in rows) == layers:
        return rows
    return [{"created": _CREATED, "created_by": "base"} for _ in range(layers)]
