"""The three ways to an image, from one plan: by assembling, by a Dockerfile with Docker or Buildah."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from envlock.image import buildah, buildkit
from envlock.image.assemble import ENGINE, Assembled, Sources, assemble
from envlock.image.base import Search, assembly_base, chosen_base
from envlock.image.base_export import from_engine
from envlock.image.choices import Flavour
from envlock.image.dockerfile import explained, temporary_context
from envlock.image.engines import Way
from envlock.image.fetch import cache_folder, gather, scratch_folder
from envlock.image.flavour import check_flavour, twice
from envlock.image.foundation import Foundation
from envlock.image.layers import layer_store
from envlock.image.metadata import LayerReport
from envlock.image.options import BuildOptions, Clock, Say
from envlock.image.output import ImageFiles, Kind, Output, packed
from envlock.image.plan import Base, BuildPlan, make_plan, python_version
from envlock.image.project import PLACE, read_project
from envlock.image.render import embedded_lock
from envlock.image.reproduce import compare
from envlock.image.unpack import Entry
from envlock.lock.model import Lock
from envlock.targets.engine import Engine, ImageInfo


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """An image before it is anywhere."""

    image_id: str
    plan: BuildPlan
    engine: str
    """What a lock and a report call it."""
    layers: Sequence[LayerReport]
    files: ImageFiles | None
    """None: the Docker Engine alone has it, which is where it was to go."""
    in_engine: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One build on its way."""

    lock: Lock
    options: BuildOptions
    output: Output
    engine: Engine | None
    """Where a base may be had from, and an image put."""
    flavour: Flavour
    say: Say
    scratch: contextlib.ExitStack
    """What has to stay until the image is delivered."""
    clock: Clock = field(default_factory=Clock)

    def plan(self, base: Base) -> BuildPlan:
        self.say(f"base {base.name}@{base.digest}: {base.origin}")
        for line in base.settings.lines():
            self.say(line)
        plan = make_plan(
            self.lock, base, self.options.os_packages, allow_source=self.options.allow_source
        )
        for note in (check_flavour(self.flavour, base, self.lock), twice(plan)):
            if note is not None:
                self.say(note)
        return replace(plan, workdir=PLACE) if self.options.project else plan

    def project(self) -> Mapping[str, Entry]:
        return read_project(self.options.project) if self.options.project else {}

    def search(self, engine: Engine | None) -> Search:
        return Search(
            python=python_version(self.lock),
            engine=engine,
            shelves=self.options.shelves,
            say=self.say,
        )

    def foundation(self) -> Foundation:
        with self.clock.step("base"):
            return assembly_base(self.options.base, self.search(self.engine))

    def wheels(self, plan: BuildPlan) -> Mapping[str, Path]:
        with self.clock.step("gather"):
            return gather(plan.artifacts, self.options.shelves, self.say)


def make(job: Job, way: Way) -> Made:
    """Raises BuildError, InputError for a wheel that is refused, TargetError for the engine."""
    return {Way.ASSEMBLER: _assembled, Way.DOCKER: _by_docker, Way.BUILDAH: _by_buildah}[way](job)


def _assembled(job: Job) -> Made:
    foundation = job.foundation()
    plan = job.plan(foundation.base)
    project = job.project()
    kept = not (job.options.no_cache or job.options.check_reproducible)

    def once() -> Assembled:
        store = job.scratch.enter_context(layer_store(kept=kept))
        sources = Sources(
            foundation=foundation, shelves=job.options.shelves, store=store, project=project
        )
        return assemble(plan, embedded_lock(job.lock), sources, job.say)

    with job.clock.step("layers"):
        image = once()
    if job.options.check_reproducible:
        with job.clock.step("again"):
            compare(image, once(), ids=True)
        job.say("built twice without cache: the same layers and the same id")
    rows = [
        LayerReport(
            name=one.name,
            diff_id=one.layer.digest,
            size_bytes=one.layer.size_bytes,
            reused=one.reused,
        )
        for one in image.layers
    ]
    return Made(image_id=image.image_id, plan=plan, engine=ENGINE, layers=rows, files=image)


def _by_docker(job: Job) -> Made:
    options, engine = job.options, job.engine or Engine.connect()
    with job.clock.step("base"):
        base = job.scratch.enter_context(chosen_base(options.base, job.search(engine)))
    plan = job.plan(base)
    with _context(job, plan) as context:

        def once() -> str:
            with explained():
                return buildkit.build(
                    context,
                    tag=None,
                    secrets=_secrets(options),
                    network="host" if plan.os_packages else "none",
                    no_cache=options.no_cache or options.check_reproducible,
                    on_progress=job.say,
                )

        with job.clock.step("build"):
            image_id = once()
        if options.check_reproducible:
            with job.clock.step("again"):
                _check_docker(job, engine, image_id, once())
    info = engine.resolve(image_id)
    files = None if job.output.kind is Kind.DOCKER else _exported(job, engine, info)
    sizes = {blob.diff_id: blob.size_bytes for blob in files.blobs} if files else {}
    own = info.layers[len(plan.base.layers) :]
    return Made(
        image_id=info.image_id,
        plan=plan,
        engine=engine.describe(),
        layers=_rows(plan, [(one, sizes.get(one)) for one in own]),
        in_engine=True,
        files=files,
    )


def _check_docker(job: Job, engine: Engine, first: str, second: str) -> None:
    infos = [engine.resolve(one) for one in (first, second)]
    try:
        if infos[0].layers != infos[1].layers:
            compare(*(_exported(job, engine, info) for info in infos))
    finally:
        if second != first:
            engine.remove(second)
    job.say("built twice without cache: the same layers")


def _exported(job: Job, engine: Engine, info: ImageInfo) -> ImageFiles:
    folder = job.scratch.enter_context(scratch_folder(".export-"))
    return packed(from_engine(engine, info, folder))


def _by_buildah(job: Job) -> Made:
    found = job.foundation()
    foundation = replace(found, base=replace(found.base, reference=buildah.BASE))
    plan = job.plan(foundation.base)
    builder = job.scratch.enter_context(buildah.opened(cache_folder()))
    with _context(job, plan) as context:

        def once() -> ImageFiles:
            with explained():
                return builder.build(context, foundation, _secrets(job.options), job.say)

        with job.clock.step("build"):
            image = once()
        if job.options.check_reproducible:
            with job.clock.step("again"):
                compare(image, once())
            job.say("built twice without cache: the same layers")
    own = image.blobs[len(foundation.layers) :]
    return Made(
        image_id=image.image_id,
        plan=plan,
        engine=buildah.describe(),
        layers=_rows(plan, [(blob.diff_id, blob.size_bytes) for blob in own]),
        files=image,
    )


@contextlib.contextmanager
def _context(job: Job, plan: BuildPlan) -> Iterator[Path]:
    with temporary_context(job.lock, plan, job.wheels(plan), job.project()) as context:
        yield context


def _secrets(options: BuildOptions) -> Mapping[str, Path]:
    return {"ca_bundle": options.ca_bundle} if options.ca_bundle else {}


def _rows(plan: BuildPlan, layers: Sequence[tuple[str, int | None]]) -> list[LayerReport]:
    """From below, as the Dockerfile makes them; ``WORKDIR`` is an empty layer of BuildKit's."""
    names = [
        *(["os-packages"] if plan.os_packages else []),
        *(layer.name for layer in plan.layers),
        *(["project", "workdir"] if plan.workdir else []),
    ]
    return [
        LayerReport(name=name, diff_id=diff_id, size_bytes=size_bytes, reused=None)
        for name, (diff_id, size_bytes) in zip(names, layers, strict=False)
    ]
