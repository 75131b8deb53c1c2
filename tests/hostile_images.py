"""Hostile wheels and bases, built from the sentence that describes them, through ``envlock build``."""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

from envlock.image import oci
from envlock.image.plan import Artifact
from envlock.lock.io import render_lock, with_end
from envlock.lock.model import Lock
from tests.hostile_inputs import Input
from tests.hostile_routes import Line, call, check
from tests.hostile_sample import Sample
from tests.unit.base_layouts import base_layout, changed_base
from tests.unit.locks import lock, observation, packages
from tests.unit.wheels import PLAIN, artifact, make_wheel


def wheel_archives(item: Input, folder: Path) -> Iterator[Line]:
    """Each archive that the sentence describes; and a sound one, which has to be built."""
    sentence = item.sentence or ""
    listed = re.search(r"entries (.+)", sentence)
    names = [name.strip() for name in listed[1].split(",")] if listed else []
    twice = re.findall(r"(\w+) twice", sentence)
    zeros = [int(n.replace(",", "")) for n in re.findall(r"([0-9][0-9,]*) zero bytes", sentence)]
    if not (names or twice or zeros):
        yield Line(input=item.id, route="-", faults=[f"no archive from {sentence!r}"])
        return
    for number, name in enumerate(names):
        one = make_wheel(folder / f"entry-{number}", {**PLAIN, name: b"x"})
        yield _built(item, f"entry {name}", folder / f"entry-{number}", one, refused=True)
    if twice or zeros:
        where = folder / "whole"
        files = {**PLAIN, **{f"zeros-{size}": bytes(size) for size in zeros}}
        one = make_wheel(where, files)
        with zipfile.ZipFile(where / one.wheel.filename, "a") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in twice:
                archive.writestr(f"demo-1.0.dist-info/{name}", b"Name: other\n")
        one = artifact(where / one.wheel.filename)
        yield _built(item, "archive", where, one, refused=True)
    sound = make_wheel(folder / "sound")
    yield _built(item, "a sound archive", folder / "sound", sound, refused=False)


def base_with_onbuild(item: Input, folder: Path) -> Iterator[Line]:
    """The trigger of the sentence in a base: refused, unless a flag takes it; and never carried on."""
    trigger = re.search(r"ONBUILD (.+?)\"", item.sentence or "")
    one = make_wheel(folder / "wheels")
    ran = trigger[1] if trigger else "RUN touch /pwned"
    inside = base_layout(folder / "plain").config()["config"]
    changed_base(folder / "base", {"config": {**inside, "OnBuild": [ran]}})
    yield _built(item, "base", folder / "wheels", one, refused=True)
    allowed = _built(
        item, "allowed", folder / "wheels", one, refused=False, more=("--allow-onbuild",)
    )
    out = oci.read_layout(folder / "wheels" / "out").config() if not allowed.faults else {}
    carried = ["the image carries it on"] if out.get("config", {}).get("OnBuild") else []
    yield replace(allowed, faults=[*allowed.faults, *carried])


def _built(
    item: Input,
    route: str,
    wheels: Path,
    one: Artifact,
    *,
    refused: bool,
    more: tuple[str, ...] = (),
) -> Line:
    base = wheels.parent / "base"
    if not base.exists():
        base_layout(base)
    path = wheels / "sample.lock"
    path.write_text(render_lock(_lock_of(one)))
    options = (
        "--engine",
        "none",
        "--offline",
        "--wheelhouse",
        str(wheels),
        "--base",
        f"oci:{base}",
    )
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(wheels / "cache")}):
        outcome = call(["build", str(path), *options, "-o", f"oci:{wheels}/out", *more])
    sample = Sample(label=route, data=b"", refused=refused, words=tuple(item.words))
    # A build talks, and writes to its cache, before it comes to an archive.
    error = outcome.stderr[max(0, outcome.stderr.find("error: ")) :]
    faults = list(check(item, sample, replace(outcome, events=(), stderr=error)))
    if refused and (wheels / "out").exists():
        faults.append("an image was written")
    return Line(input=item.id, route=f"{route}: build", faults=faults)


def _lock_of(one: Artifact) -> Lock:
    entry = {
        "name": one.name,
        "version": one.version,
        "wheels": [{"path": one.wheel.filename, "hashes": dict(one.wheel.hashes)}],
    }
    seen = observation(
        packages={one.name: {"version": one.version, "record": "sha256:" + "0" * 64}}
    )
    made = lock(seen)
    entries = packages([entry])
    return replace(made, packages=entries, table=with_end(made.table, entries))
