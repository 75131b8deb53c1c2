"""From a plan to the files of a build context. Pure: the same lock gives the same bytes.

The only module that renders a template of an image. Values come from typed objects, never from
text that is rendered twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from envlock.errors import InputError
from envlock.image.plan import BuildPlan
from envlock.lock.io import canonical, render_lock
from envlock.lock.model import Lock
from envlock.lock.references import check_reference
from envlock.lock.strict import shown


def templates_folder() -> Path:
    """In the wheel beside the modules; in a checkout at its top."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def render_context(lock: Lock, plan: BuildPlan, *, wheels: bool) -> Mapping[str, bytes]:
    """File name -> content. ``wheels``: the build has the files in ``wheels/``; else it fetches.

    Raises InputError for a value that its place cannot hold.
    """
    folder = templates_folder() / "image"
    files = {
        "Dockerfile": render_dockerfile(plan).encode("utf-8"),
        "install.py": (folder / "install.py").read_bytes(),
        "plan.json": _plan_json(plan),
        "requirements.txt": _requirements(plan, wheels=wheels).encode("ascii"),
        "embedded.toml": embedded_lock(lock),
    }
    if plan.sources:
        files["build_sources.py"] = (folder / "build_sources.py").read_bytes()
    if plan.os_packages:
        files["os_packages.py"] = (folder / "os_packages.py").read_bytes()
        files["os-packages.txt"] = "".join(f"{pin}\n" for pin in plan.os_packages).encode("ascii")
    return files


def embedded_lock(lock: Lock) -> bytes:
    """The lock as an image carries it."""
    return render_lock(canonical(lock)).encode("utf-8")


def render_dockerfile(plan: BuildPlan) -> str:
    return _environment().get_template("Dockerfile.j2").render(plan=plan)


def dockerfile_quote(value: str) -> str:
    """A value between double quotes, with nothing left that the builder would read."""
    if not value.isprintable():
        raise InputError(
            f"a control character in {shown(value)}", hint="take it out of the lock or the option"
        )
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(templates_folder() / "image"),
        undefined=StrictUndefined,
        autoescape=False,  # no HTML; each place has its own quoting filter
        keep_trailing_newline=True,
        finalize=_no_none,
    )
    environment.filters["dockerfile_quote"] = dockerfile_quote
    environment.filters["image_reference"] = lambda r: check_reference(r, "image.base")
    return environment


def _no_none(value: object) -> object:
    if value is None:
        _refuse_none()
    return value


def _refuse_none() -> NoReturn:
    raise TypeError("a template printed None")


def _plan_json(plan: BuildPlan) -> bytes:
    content = {
        "python": plan.python_version,
        "prefix": plan.prefix,
        "lock_path": plan.lock_path,
        "workdir": plan.workdir,
        "sources": [
            {"name": one.name, "version": one.version, "file": one.wheel.filename}
            for one in plan.sources
        ],
        "layers": [{"name": layer.name, "packages": layer.packages} for layer in plan.layers],
    }
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("ascii")


def _requirements(plan: BuildPlan, *, wheels: bool) -> str:
    """One line each, ending in hashes: nothing that is not pinned by content is installed."""
    lines = []
    for artifact in (one for one in plan.artifacts if not one.from_source):
        wheel = artifact.wheel
        hashes = "".join(f" --hash={kind}:{value}" for kind, value in sorted(wheel.hashes.items()))
        fetched = f" @ {wheel.url}" if wheel.url and not wheels else f"=={artifact.version}"
        lines.append(f"{artifact.name}{fetched}{hashes}\n")
    return "".join(lines)
