"""Build and verify the images of ``images/``, and compare them with what is expected of each.

    python -m scripts.images                      all that this machine has room for
    python -m scripts.images torch-2.13.0-cpu     this one
    python -m scripts.images --record torch-2.13.0-cpu --python build/torch-cpu/bin/python

``--record`` makes a folder's lock from an environment, builds it, and writes what is then expected.
Exits 1 where an image is not what is expected, or none could be built.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from envlock.diff.requires import requirements
from envlock.lock.io import load_lock, render_lock, wheelhouse_form
from envlock.lock.machine import System
from envlock.lock.model import Lock
from envlock.lock.observation import NOT_RECORDED, Absent, Observation, Unknown
from scripts.environments import BUILD, ROOT, check, ensure_base, ensure_engine

IMAGES = ROOT / "images"
LOCK = "pylock.env.toml"
EXPECTED = "expected.json"
ENVLOCK = Path(sys.executable).parent / "envlock"
MARK = "<!-- Below: written by scripts/images.py. -->"
_TIMES_ITS_SIZE = 4
"""Room that a build takes: wheels, layers, the engine's copy, and some to spare."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    lock_id: str
    base: str
    """Reference and digest. Upon another base the image has another id."""
    image_id: str
    size_bytes: int
    """Of the layers upon the base, uncompressed."""
    findings: tuple[str, ...]
    """Codes that verify reports, less what it only remarks of behaviour: other CPUs, other kernels."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and verify the images of images/.")
    parser.add_argument("names", nargs="*", metavar="NAME", default=names(), help="a folder's name")
    parser.add_argument("--record", action="store_true", help="write what is expected")
    parser.add_argument("--python", type=Path, help="with --record: the environment's interpreter")
    parser.add_argument("--publish", type=Path, metavar="DIR", help="folder for what each is")
    parser.add_argument("--keep", action="store_true", help="keep the images in the engine")
    arguments = parser.parse_args()
    ensure_engine()
    ensure_base()
    if arguments.record:
        (name,) = arguments.names
        record(IMAGES / name, arguments.python)
        return 0
    verdicts = {
        name: judged(IMAGES / name, keep=arguments.keep, publish=arguments.publish)
        for name in arguments.names
    }
    for name, verdict in verdicts.items():
        print(f"{name:20} {verdict or 'as expected'}")
    wrong = [verdict for verdict in verdicts.values() if verdict and verdict[:9] != "not built"]
    return 1 if wrong or all(verdicts.values()) else 0


def names() -> list[str]:
    return sorted(lock.parent.name for lock in IMAGES.glob(f"*/{LOCK}"))


def judged(folder: Path, *, keep: bool, publish: Path | None = None) -> str:
    """What is not as expected; empty where all is. ``publish``: a folder for what was built."""
    expected = read_expected(folder)
    BUILD.mkdir(exist_ok=True)
    free, needed = shutil.disk_usage(BUILD).free, expected.size_bytes * _TIMES_ITS_SIZE
    if free < needed:
        return f"not built: {free >> 30} GiB of disk are free, {needed >> 30} are needed"
    got = built(folder.name, folder / LOCK, keep=keep, publish=publish)
    if got is None:
        return "could not be built"
    if got.base != expected.base:
        print(f"the base here is {got.base}; the expected id is upon {expected.base}")
    return differing(got, expected)


def differing(got: Expected, expected: Expected) -> str:
    """Upon another base the same lock has another id, and only the rest can be compared."""
    if got.base != expected.base:
        expected = replace(expected, base=got.base, image_id=got.image_id)
    pairs = ((key, value, asdict(expected)[key]) for key, value in asdict(got).items())
    return "; ".join(f"{key} is {one}, not {other}" for key, one, other in pairs if one != other)


def built(name: str, lock: Path, *, keep: bool, publish: Path | None = None) -> Expected | None:
    """Build, which verifies in the end; the lock itself is not written to."""
    tag = f"envlock-images:{name}"
    with tempfile.TemporaryDirectory(prefix="envlock-images-") as scratch:
        copy, metadata, report = (
            Path(scratch) / one for one in (LOCK, "built.json", "report.json")
        )
        shutil.copyfile(lock, copy)
        wheels = BUILD / "wheels" / name
        check([ENVLOCK, "fetch", copy, "-d", wheels])
        command: list[str | Path] = [ENVLOCK, "build", copy, "--wheelhouse", wheels, "--offline"]
        command += ["-t", tag, "--metadata", metadata, "--report", f"json={report}"]
        subprocess.run(command, cwd=ROOT, check=False)
        if not (metadata.exists() and report.exists()):
            return None
        facts, verdict = json.loads(metadata.read_text()), json.loads(report.read_text())
        if publish is not None:
            publish.mkdir(parents=True, exist_ok=True)
            for path in (metadata, report):
                shutil.copyfile(path, publish / f"{name}.{path.name}")
            with (publish / "summary.md").open("a") as file:
                file.write(summary(name, facts, verdict))
    if not keep:
        check(["docker", "rmi", "--force", tag])
    return expected_of(facts, verdict)


def summary(name: str, facts: dict[str, Any], verdict: dict[str, Any]) -> str:
    rows = [
        ("image", facts["image_id"]),
        ("lock", facts["lock_id"]),
        ("base", facts["base"]["digest"]),
    ]
    rows += [(f"layer {layer['name']}", layer["diff_id"]) for layer in facts["layers"]]
    lines = [f"| {title} | `{value}` |" for title, value in rows]
    head = f"### {name}: {verdict['result']}, {verdict['checked']} checks"
    return "\n".join([head, "", "| | |", "| --- | --- |", *lines, "", ""])


def expected_of(facts: dict[str, Any], verdict: dict[str, Any]) -> Expected:
    return Expected(
        lock_id=facts["lock_id"],
        base=f"{facts['base']['reference']}@{facts['base']['digest']}",
        image_id=facts["image_id"],
        size_bytes=sum(layer["size_bytes"] for layer in facts["layers"]),
        findings=tuple(
            finding["code"]
            for finding in verdict["findings"]
            if finding["severity"] == "error" or not finding["code"].startswith("EL8")
        ),
    )


def read_expected(folder: Path) -> Expected:
    raw = json.loads((folder / EXPECTED).read_text())
    return Expected(**{**raw, "findings": tuple(raw["findings"])})


def record(folder: Path, python: Path | None) -> None:
    folder.mkdir(exist_ok=True)
    lock = folder / LOCK
    if python is not None:
        check([ENVLOCK, "capture", "--python", python, "--smoke", "-o", lock])
        check([ENVLOCK, "fetch", lock, "-d", BUILD / "wheels" / folder.name])
        lock.write_text(render_lock(of_no_machine(wheelhouse_form(load_lock(lock)))))
    expected = built(folder.name, lock, keep=False)
    if expected is None:
        sys.exit(f"{folder.name} could not be built")
    (folder / EXPECTED).write_text(json.dumps(asdict(expected), indent=1) + "\n")
    write_readme(folder)


def of_no_machine(lock: Lock) -> Lock:
    """Without the machine that it was captured on: an image has none. The id stays."""
    observed = lock.observed
    system = observed.system
    if not isinstance(system, Absent | Unknown):
        kept = ("os", "arch", "glibc", "glibcxx", "libstdcxx")
        system = System(**{name: getattr(system, name) for name in kept})
    machine = ("toolkit", "driver", "gpus", "limits", "indexes", "preflight")
    bare: Observation = observed.changed(
        **dict.fromkeys(machine, NOT_RECORDED),
        system=system,
        exhaustive=[name for name in observed.exhaustive if name not in machine],
        read_from={},
    )
    return replace(lock, table=lock.table.changed(observed=bare, machine_id=NOT_RECORDED))


def write_readme(folder: Path) -> None:
    """What a person wrote stays; what stands below the mark is made from lock and expectations."""
    path = folder / "README.md"
    own = path.read_text().partition(MARK)[0] if path.exists() else f"# {folder.name}\n\n"
    path.write_text(f"{own}{MARK}\n\n{facts_of(folder)}")


def facts_of(folder: Path) -> str:
    lock, expected, name = load_lock(folder / LOCK), read_expected(folder), folder.name
    rows = {
        "lock": expected.lock_id,
        "image": expected.image_id,
        "upon": expected.base,
        "size upon the base": f"{expected.size_bytes / 1e9:.2f} GB",
        "findings of verify": ", ".join(expected.findings) or "none",
    }
    lines = [
        "## What a machine must have",
        "",
        *(f"- {note.message}" for note in requirements(lock.observed)),
        "",
        "## What it is",
        "",
        "| | |",
        "|---|---|",
        *(f"| {title} | `{value}` |" for title, value in rows.items()),
        "",
        "## How to build it",
        "",
        "```sh",
        f"envlock fetch images/{name}/{LOCK} -d wheels/",
        f"envlock build images/{name}/{LOCK} --wheelhouse wheels/ -t team/{name}",
        "```",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
