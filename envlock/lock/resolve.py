"""From what is installed to what can be installed: one artifact with a hash per distribution.

uv resolves the observed versions, without their dependencies. What has no artifact is left out by
name, with the reason and the next step; never as a half-entry.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from packaging.pylock import Package, PackageSdist, PackageVcs, PackageWheel, Pylock
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envlock.errors import InputError, TargetError
from envlock.lock.model import LeftOut, Resolved
from envlock.lock.observation import Absent, Observation, Source, Unknown, value_of
from envlock.lock.observation import Package as Observed
from envlock.lock.pip_config import Sources
from envlock.lock.strict import parse_toml
from envlock.redact import redact
from envlock.targets.process import Limits, run

File = TypeVar("File", PackageWheel, PackageSdist)

PYTORCH_INDEX = "https://download.pytorch.org/whl"
"""Each local version (``cu121``, ``cpu``, ``rocm6.0``) has an index of its own below it."""

_TIMEOUT_S = 600.0
_UNSATISFIABLE = 1
"""uv's exit code where a version does not exist; 2 is everything else, such as no network."""
_NEWEST_MANYLINUX = 40
"""uv knows manylinux platforms up to this glibc 2.x."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pass:
    """One place to look, as options of uv and variables for what may hold credentials."""

    name: str
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    may_be_unreachable: bool = False


def resolve(observed: Observation, sources: Sources, say: Callable[[str], None]) -> Resolved:
    """Find an artifact for every observed distribution.

    Raises TargetError when uv or the indexes cannot be used.
    """
    installed = observed.packages
    if isinstance(installed, Absent | Unknown):
        raise InputError("the packages of this environment are unknown; nothing can be locked")
    packages: list[Package] = []
    left_out: list[LeftOut] = []
    wanted: dict[str, str] = {}
    for name, package in installed.items():
        match _requirement(name, package):
            case LeftOut() as reason:
                left_out.append(reason)
            case Package() as entry:
                packages.append(entry)
            case str() as requirement:
                wanted[name] = requirement
    found = look_up(wanted, observed, sources, say)
    packages += found.packages
    missing = [name for name in wanted if name not in {entry.name for entry in found.packages}]
    left_out += [_not_found(name, installed[name], found.unreachable) for name in missing]
    chosen, hosts = _choose(packages, installed)
    return Resolved(
        packages=chosen, left_out=tuple(sorted(left_out, key=lambda x: x.name)), hosts=hosts
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the places together have, every file of a version that fits the target."""

    packages: Sequence[Package]
    unreachable: Sequence[str]
    """Places that did not answer."""


def look_up(
    requirements: Mapping[str, str],
    observed: Observation,
    sources: Sources,
    say: Callable[[str], None],
) -> Found:
    """Ask one place after the other for requirements by name, until all are found."""
    wanted = dict(requirements)
    packages: list[Package] = []
    with tempfile.TemporaryDirectory(prefix="envlock-") as folder:
        uv = _Uv(observed, sources, Path(folder))
        for one in _passes(sources, wanted):
            if not wanted:
                break
            say(f"resolving {len(wanted)} packages: {one.name}")
            found = uv.solve(list(wanted.values()), one)
            packages += found
            for entry in found:
                wanted.pop(entry.name, None)
    return Found(packages=packages, unreachable=tuple(uv.unreachable))


def _requirement(name: str, package: Observed) -> str | Package | LeftOut:
    """A requirement for uv, an entry that needs none, or the reason why there is neither."""
    version = value_of(package.version)
    try:
        exact = Version(version or "")
    except InvalidVersion:
        return LeftOut(
            name=name,
            version=version or "unknown",
            reason="its version could not be read",
            next_step=f"reinstall it: pip install --force-reinstall {name}",
        )
    source = value_of(package.source)
    if source is not None:
        special = _special(name, str(exact), source)
        if special is not None:
            return special
    if value_of(package.installer) == "conda":
        return _conda(name, str(exact))
    return f"{name}=={exact}"


def _special(name: str, version: str, source: Source) -> str | Package | LeftOut | None:
    url, commit = value_of(source.url), value_of(source.commit)
    match source.kind:
        case "vcs" if url and commit and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
            vcs = PackageVcs(type="git", url=url, commit_id=commit)
            return Package(name=canonicalize_name(name), version=Version(version), vcs=vcs)
        case "vcs" | "editable" | "directory":
            return LeftOut(
                name=name,
                version=version,
                reason=f"installed from a {source.kind} source that others cannot fetch",
                next_step="build a wheel of it (pip wheel --no-deps PATH) and capture again "
                "with --wheelhouse DIR",
            )
        case "conda":
            return _conda(name, version)
        case "archive" if url and url.startswith("https://"):
            return f"{name} @ {url}"
        case _:
            return None


def _conda(name: str, version: str) -> LeftOut:
    torch = name in {"torch", "pytorch"}
    return LeftOut(
        name=name,
        version=version,
        reason="installed by conda; conda packages are no wheels",
        next_step=f"install the wheel set of the same build: pip install torch=={version} "
        f"--index-url {PYTORCH_INDEX}/cuNNN with the environment's CUDA as cuNNN"
        if torch
        else f"install it with pip instead: pip install {name}=={version}",
    )


def _not_found(name: str, package: Observed, unreachable: Sequence[str]) -> LeftOut:
    version = value_of(package.version) or "unknown"
    reason = "no index or wheelhouse has this version for this Python and platform"
    if unreachable and "+" in version:
        reason += f" ({', '.join(unreachable)} could not be reached)"
    return LeftOut(
        name=name,
        version=version,
        reason=reason,
        next_step=f"put its wheel into a folder and capture with --wheelhouse DIR, or install "
        f"a published version of {name}",
    )


def _passes(sources: Sources, wanted: Mapping[str, str]) -> list[_Pass]:
    """Places in the order in which they are tried: what others can reach comes first."""
    pip = sources.pip
    variables = {"UV_DEFAULT_INDEX": pip.index_url} if pip.index_url else {}
    remote = {**variables, "UV_INDEX": " ".join(pip.remote_indexes)}
    passes = []
    if sources.wheelhouse is not None:
        options = ("--no-index", "--find-links", str(sources.wheelhouse))
        passes.append(_Pass(name="in the wheelhouse", options=options))
    if not pip.no_index:
        passes.append(_Pass(name="in the package indexes", variables=remote))
    links = tuple(option for link in pip.find_links for option in ("--find-links", link))
    if links or pip.local_indexes:
        options = (*links, *(("--no-index",) if pip.no_index else ()))
        local = {**variables, "UV_INDEX": " ".join(pip.extra_index_urls)}
        passes.append(_Pass(name="with pip's local folders", options=options, variables=local))
    tags = sorted({m[1] for r in wanted.values() if (m := re.search(r"\+([a-z]+[0-9.]*)$", r))})
    if not pip.no_index:
        passes += [
            _Pass(
                name=f"in the PyTorch index of {tag}",
                variables={**variables, "UV_INDEX": f"{PYTORCH_INDEX}/{tag}"},
                may_be_unreachable=True,
            )
            for tag in tags
        ]
    return passes


class _Uv:
    """uv as a program, with the options that hold for every call of one resolution."""

    def __init__(self, observed: Observation, sources: Sources, folder: Path) -> None:
        from uv import find_uv_bin  # noqa: PLC0415  # only resolving needs it

        self.program = find_uv_bin()
        self.folder = folder
        self.unreachable: list[str] = []
        self.options = (
            "--no-deps",
            "--generate-hashes",
            "--no-header",
            "--no-config",
            "--no-python-downloads",
            "--python",
            sys.executable,
            *_platform(observed),
            "--index-strategy",
            "unsafe-best-match",  # pip's: the best version of all indexes
            *(o for host in sources.pip.trusted_hosts for o in ("--allow-insecure-host", host)),
        )
        self.cert = {"SSL_CERT_FILE": sources.pip.cert} if sources.pip.cert else {}

    def solve(self, requirements: Sequence[str], one: _Pass) -> list[Package]:
        """Entries for the requirements that this place has.

        uv answers for all or none, so a failing set is halved until the missing ones are alone.
        """
        done = self._compile(requirements, one)
        if done is not None:
            return done
        if len(requirements) == 1:
            return []
        half = len(requirements) // 2
        return self.solve(requirements[:half], one) + self.solve(requirements[half:], one)

    def _compile(self, requirements: Sequence[str], one: _Pass) -> list[Package] | None:
        if one.name in self.unreachable:
            return []
        wanted, answer = self.folder / "wanted.in", self.folder / "pylock.answer.toml"
        wanted.write_text("".join(f"{r}\n" for r in requirements), encoding="utf-8")
        answer.unlink(missing_ok=True)
        output = ("--format", "pylock.toml", "--quiet", "--output-file", answer)
        done = run(
            [self.program, "pip", "compile", *self.options, *one.options, *output, "--", wanted],
            limits=Limits(timeout_s=_TIMEOUT_S),
            env={**os.environ, **self.cert, **{k: v for k, v in one.variables.items() if v}},
            cwd=self.folder,
        )
        if done.code == 0:
            tree = parse_toml(answer.read_text(encoding="utf-8"), "uv's answer")
            return list(Pylock.from_dict(tree).packages)
        if done.code == _UNSATISFIABLE:
            return None
        if one.may_be_unreachable:
            self.unreachable.append(one.name)
            return []
        raise TargetError(
            f"uv could not resolve the packages ({one.name}): {redact(done.stderr_tail(3))}",
            hint="check the network and pip's index settings, or capture with --offline",
        )


def _platform(observed: Observation) -> tuple[str, ...]:
    """The target's Python and platform as uv's options; left out where they are unknown."""
    version = value_of(observed.find("python.version"))
    arch = value_of(observed.find("python.arch"))
    glibc = value_of(observed.find("system.glibc"))
    options: tuple[str, ...] = ("--python-version", str(version)) if version else ()
    minor = re.fullmatch(r"2\.([0-9]+)", str(glibc))
    if minor and arch in {"x86_64", "aarch64"}:
        newest = min(int(minor[1]), _NEWEST_MANYLINUX)
        known = max(n for n in (17, 28, *range(31, _NEWEST_MANYLINUX + 1)) if n <= max(newest, 17))
        options += ("--python-platform", f"{arch}-manylinux_2_{known}")
    return options


def _choose(
    packages: Sequence[Package], installed: Mapping[str, Observed]
) -> tuple[tuple[Package, ...], dict[str, str]]:
    """One wheel an entry, the one that is installed where its tags say so; no sdist beside it.

    Given an sdist, uv would build it on the host.
    """
    chosen: list[Package] = []
    hosts: dict[str, str] = {}
    for package in sorted(packages, key=lambda p: p.name):
        entry = package
        if package.wheels:
            wheel = _installed_wheel(package.wheels, installed.get(package.name))
            hosts[package.name] = _host(wheel.url)
            entry = replace(package, wheels=[_portable(wheel)], sdist=None, index=None)
        elif package.sdist:
            hosts[package.name] = _host(package.sdist.url)
            entry = replace(package, sdist=_portable(package.sdist), index=None)
        chosen.append(entry)
    return tuple(chosen), hosts


def _installed_wheel(wheels: Sequence[PackageWheel], observed: Observed | None) -> PackageWheel:
    tags = set(value_of(observed.tags) or []) if observed else set()
    for wheel in wheels:
        if tags & {str(tag) for tag in parse_wheel_filename(wheel.filename)[3]}:
            return wheel
    return wheels[0]


def _portable(file: File) -> File:
    """A file of this machine's disk is named by its name, not by a URL of this machine."""
    if file.url and urlsplit(file.url).scheme != "file":
        return replace(file, upload_time=None)
    name = file.filename if file.path or not file.url else unquote(file.url.rpartition("/")[2])
    return type(file)(path=name, hashes=file.hashes, size=file.size)


def _host(url: str | None) -> str:
    parts = urlsplit(url or "")
    return parts.hostname if parts.scheme == "https" and parts.hostname else "wheelhouse"
