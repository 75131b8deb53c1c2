"""Build an image from a lock: choose the way, make it, check against the first build, deliver, record."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envlock.errors import BuildError, InputError, TargetError
from envlock.image.assemble import ENGINE
from envlock.image.choices import EngineChoice, Flavour
from envlock.image.engines import Chosen, Machine, Way, check_sources, choose
from envlock.image.fetch import Shelves, cache_folder
from envlock.image.flavour import Flavoured, choose_flavour, twice
from envlock.image.metadata import BaseReport, BuildReport, LayerReport, SizesReport
from envlock.image.options import BuildOptions, Say
from envlock.image.output import Kind, load, push, store, write_archive, write_oci
from envlock.image.plan import BuildPlan, artifacts, check_buildable
from envlock.image.sizes import Sizes, measure_sizes
from envlock.image.ways import Job, Made, make
from envlock.lock.model import BaseImage, Lock
from envlock.lock.pip_config import read_pip_config
from envlock.targets.engine import Engine, check_reference


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    image_id: str
    plan: BuildPlan
    lock: Lock
    """With what this build recorded in ``[tool.envlock.image]``."""
    way: Way
    why: str
    flavoured: Flavoured
    sizes: Sizes
    engine: str
    layers: Sequence[LayerReport]
    outputs: Sequence[str]
    verified: bool | None
    """None: it was not run."""
    seconds: Mapping[str, float]

    def report(self) -> BuildReport:
        base, told = self.plan.base, self.plan.base.settings.told()
        return BuildReport(
            schema_="envlock-build/1",
            way="assembler" if self.way is Way.ASSEMBLER else "dockerfile",
            why=self.why,
            engine=self.engine,
            flavour="devel" if self.flavoured.flavour is Flavour.DEVEL else "runtime",
            flavour_why=self.flavoured.why,
            cuda_twice=twice(self.plan),
            image_id=self.image_id,
            lock_id=self.lock.table.id,
            base=BaseReport(
                reference=base.name,
                digest=base.digest,
                layers=list(base.layers),
                entrypoint=list(told.entrypoint),
                user=told.user,
                env=dict(told.env),
            ),
            layers=list(self.layers),
            sizes=SizesReport(
                fetch_bytes=self.sizes.fetch_bytes,
                fetch_unknown=self.sizes.fetch_unknown,
                unpacked_bytes=self.sizes.unpacked_bytes,
                unpacked_unknown=self.sizes.unpacked_unknown,
                layers_bytes=_total(self.layers),
            ),
            outputs=list(self.outputs),
            verified=self.verified,
            seconds=dict(self.seconds),
        )

    def summary(self) -> str:
        base = self.plan.base
        return (
            f"image  {self.image_id}\nlock   {self.lock.table.id}\n"
            f"base   {base.name}@{base.digest}\n"
        )


def _total(layers: Sequence[LayerReport]) -> int | None:
    known = [layer.size_bytes for layer in layers if layer.size_bytes is not None]
    return sum(known) if len(known) == len(layers) else None


def build_image(lock: Lock, options: BuildOptions, say: Say) -> Built:
    """Raises BuildError, or TargetError when the engine is down. Nothing is left of a failure."""
    check_buildable(lock)
    for reference in (options.tag, options.push):
        if reference is not None:
            check_reference(reference)
    flavoured = choose_flavour(options.flavour, lock, options.os_packages)
    say(flavoured.line())
    options = replace(options, base=options.base.settled(lock, flavoured.flavour))
    files = artifacts(lock, allow_source=options.allow_source)
    sources = [one.name for one in files if one.from_source]
    chosen = choose(options, _needs(options, flavoured.flavour, sources), Machine())
    say(f"{chosen.way.value}: {chosen.why}")
    if sources:
        check_sources(chosen.way, options.os_packages)
    sizes = measure_sizes(files, options.shelves)
    say(sizes.line())
    with contextlib.ExitStack() as scratch:
        engine = _engine(options, chosen)
        job = Job(
            lock=lock,
            options=options,
            output=chosen.output,
            engine=engine,
            flavour=flavoured.flavour,
            say=say,
            scratch=scratch,
        )
        made = make(job, chosen.way)
        if chosen.way is Way.ASSEMBLER and not options.project:
            _check_record(lock, made.plan, made.image_id, say)
        # A lock records the image of itself, which is not that of today's project.
        recorded = lock if options.project else _recorded(lock, made, flavoured.flavour)
        with job.clock.step("output"):
            outputs = [_put(made, job)]
        verified = None
        if options.verify is not None and (made.in_engine or chosen.output.kind is Kind.DOCKER):
            with job.clock.step("verify"):
                verified = options.verify(made.image_id, recorded)
        if options.push is not None and verified is False:
            say(f"not pushed to {options.push}: the image is not what the lock says")
        elif options.push is not None:
            with job.clock.step("push"):
                who = _push(made, options.push, engine)
            say(f"pushed {options.push} by {who}")
            outputs.append(f"registry:{options.push}")
    return Built(
        image_id=made.image_id,
        plan=made.plan,
        lock=recorded,
        way=chosen.way,
        why=chosen.why,
        flavoured=flavoured,
        sizes=sizes,
        engine=made.engine,
        layers=made.layers,
        outputs=outputs,
        verified=verified,
        seconds=job.clock.seconds,
    )


def _needs(options: BuildOptions, flavour: Flavour, sources: Sequence[str]) -> Sequence[str]:
    """What only a Dockerfile can do."""
    return [
        *([f"built from source: {', '.join(sources)}"] if sources else []),
        *(["the flavour is devel"] if flavour is Flavour.DEVEL else []),
        *(["packages of the distribution are asked for"] if options.os_packages else []),
    ]


def shelves_for(lock: Path, wheelhouse: Path | None, *, offline: bool) -> Shelves:
    """Where the files of a lock may already be: given, beside it, in pip's local folders."""
    if wheelhouse is not None and not wheelhouse.is_dir():
        raise InputError(f"{wheelhouse} is not a folder", hint="give the folder with the wheels")
    links = read_pip_config(None, os.environ).find_links
    local = [Path(link) for one in links if "://" not in (link := one.removeprefix("file://"))]
    folders = [lock.parent, *(folder for folder in local if folder.is_dir())]
    return Shelves(
        wheelhouse=wheelhouse, folders=folders, cache=cache_folder() / "wheels", offline=offline
    )


def _engine(options: BuildOptions, chosen: Chosen) -> Engine | None:
    """The Docker Engine, where one is wanted or may be of use."""
    if options.engine is EngineChoice.NONE:
        return None
    try:
        return Engine.connect()
    except TargetError as error:
        if chosen.way is not Way.DOCKER and chosen.output.kind is not Kind.DOCKER:
            return None
        raise TargetError(
            error.message,
            hint=f"{error.hint}; or build without one: --engine none -o oci:FOLDER",
        ) from error


def _put(made: Made, job: Job) -> str:
    """Write or load; a tag is set last."""
    output, tag, engine = job.output, job.options.tag, job.engine
    match output.kind:
        case Kind.DOCKER:
            assert engine is not None
            if made.files is not None:
                load(made.files, engine)
            if tag is not None:
                engine.tag(made.image_id, tag)
            return "docker"
        case Kind.STORAGE:
            assert made.files is not None
            assert tag is not None
            store(made.files, tag)
            return f"containers-storage:{tag}"
    assert made.files is not None
    assert output.path is not None
    write = write_oci if output.kind is Kind.OCI else write_archive
    write(made.files, output.path, tag)
    return f"{output.kind.value}:{output.path}"


def _push(made: Made, reference: str, engine: Engine | None) -> str:
    if made.files is not None:
        return push(made.files, reference, engine)
    assert engine is not None
    engine.tag(made.image_id, reference)
    engine.push(reference)
    return "the engine"


def _check_record(lock: Lock, plan: BuildPlan, image_id: str, say: Say) -> None:
    """Raises BuildError when the same lock upon the same base gave another image the first time."""
    first = lock.table.image
    if first.engine != ENGINE or first.base is None or first.id is None:
        return
    if first.base.digest != plan.base.digest:
        say(f"the first build was upon {first.base.digest}; upon another base the id is another")
    elif first.id != image_id:
        raise BuildError(
            f"this lock gave {first.id} when it was first built, and gives {image_id} now",
            hint="take [tool.envlock.image] out of the lock if it was changed on purpose; "
            "otherwise do not use the image",
        )
    else:
        say("the same id as the first build's")


def _recorded(lock: Lock, made: Made, flavour: Flavour) -> Lock:
    base = BaseImage(
        reference=made.plan.base.name,
        digest=made.plan.base.digest,
        layers=list(made.plan.base.layers),
    )
    layers = [layer.diff_id for layer in made.layers]
    image = lock.table.image.changed(
        base=base,
        python=made.plan.base.managed,
        id=made.image_id,
        layers=layers,
        engine=made.engine,
        flavour=flavour.value,
    )
    return replace(lock, table=lock.table.changed(image=image))
