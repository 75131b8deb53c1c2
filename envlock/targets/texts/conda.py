"""``conda list`` in its four forms and ``conda env export``.

conda's names are not those of distributions (pytorch, py-opencv). A package that was built for a
Python is entered under its name in ``packages`` as well, and never makes that table complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envlock.errors import InputError
from envlock.lock.strict import shown
from envlock.redact import redact
from envlock.targets.texts import torch_facts
from envlock.targets.texts.tree import MAX_PACKAGES, Packages, Tree, unknown

WHAT = "conda list"

_ALIASES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!]{0,127}", re.ASCII)
_BUILD = re.compile(r"[A-Za-z0-9_.+]{1,128}", re.ASCII)
_FOR_PYTHON = re.compile(r"(?:^|_)(?:py[0-9]|pyh|py_)|(?<=[0-9])py[0-9]{2,3}h", re.ASCII)
"""``py310h1234567_0``, ``pyhd8ed1ab_0``, ``py_0``, ``py3.10_cuda12.1_...``, ``cuda118py310h...``."""
_TRANSITIVE = frozenset({"ca-certificates", "openssl", "libgcc", "libgcc-ng", "vc"})
"""Nobody writes these into an environment file by hand; every export of an environment has one."""
_CUT = "the file may be written by hand, where =3.10 stands for any 3.10"


@dataclass(slots=True)
class Gathered:
    what: str
    tree: Tree = field(default_factory=lambda: {"conda": {}})
    packages: Packages = field(init=False)
    python: str | None = None

    def __post_init__(self) -> None:
        self.packages = Packages(self.what)

    def add(self, name: str, version: str, build: str, channel: str | None) -> None:
        """One entry. Raises InputError when it is outside conda's grammar."""
        if not _NAME.fullmatch(name) or not (build == "" or _BUILD.fullmatch(build)):
            words = shown(redact(f"{name} {build}"))
            raise InputError(f"{self.what}: {words} is not a package of conda")
        if not _VERSION.fullmatch(version):
            raise InputError(f"{self.what}: {name}: {shown(redact(version))} is not a version")
        if channel == "pypi":
            self.packages.add(name, version, installer="pip")
            return
        if len(self.tree["conda"]) >= MAX_PACKAGES:
            raise InputError(f"{self.what}: too many packages (at most {MAX_PACKAGES})")
        self.tree["conda"][name] = _entry(version, build, channel)
        if name == "python":
            self.python = version
        if name in _ALIASES:
            torch, cudnn = torch_facts.from_conda(version, build)
            self.tree["torch"] = {**self.tree.get("torch", {}), **torch}
            if cudnn:
                self.tree["cudnn"] = cudnn

    def finish(self, *, complete: bool) -> Tree:
        for name, entry in self.tree["conda"].items():
            build = entry.get("build")
            if isinstance(build, str) and _FOR_PYTHON.search(build):
                self._add_distribution(_ALIASES.get(name, name), entry["version"])
        tree = {**self.tree, "packages": self.packages.tree()}
        if self.python:
            tree["python"] = _python(self.python)
        listed = self.packages.get("torch")
        if listed and "torch" not in tree:
            tree["torch"] = torch_facts.from_version(listed)
        tree["exhaustive"] = ["conda"] if complete else []
        return tree

    def _add_distribution(self, name: str, version: str) -> None:
        if name not in self.packages:
            self.packages.add(name, version, installer="conda")
        elif self.packages.get(name) != version:
            # pip installed over conda's: both sets of metadata are there.
            pip = self.packages.get(name)
            self.tree.setdefault("duplicates", {})[name] = [str(pip), version]


def _entry(version: str, build: str, channel: str | None) -> Tree:
    entry: Tree = {"version": version}
    if build:
        entry["build"] = build
    if channel:
        entry["channel"] = redact(channel)
    return entry


def _python(version: str) -> Tree:
    parts = version.split(".")
    facts: Tree = {"version": version, "environment": "conda"}
    if len(parts) >= 2 and parts[0].isdecimal() and parts[1].isdecimal():
        old = "m" if (int(parts[0]), int(parts[1])) < (3, 8) else ""
        facts["abi"] = f"cp{parts[0]}{parts[1]}{old}"
    return facts


# --- the forms --------------------------------------------------------------------------------


def is_columns(lines: Sequence[str]) -> bool:
    return any(
        line.startswith("# packages in environment at")
        or line.lstrip().startswith("List of packages in environment")
        or re.match(r"#? *Name +Version +Build", line)
        for line in lines
    )


def read_columns(lines: Iterable[str], what: str = WHAT) -> Gathered:
    """``name version build channel``, as conda, mamba and micromamba print it.

    Old releases leave out the default channel; what is not shaped like this is not of the list.
    """
    gathered = Gathered(what)
    for line in lines:
        parts = line.split()
        if 2 <= len(parts) <= 4 and _NAME.fullmatch(parts[0]) and parts[1][0] in "0123456789":
            channel = parts.pop() if "/" in parts[-1] or len(parts) == 4 else None
            gathered.add(parts[0], parts[1], parts[2] if len(parts) == 3 else "", channel)
    return gathered


def read_list(lines: Iterable[str]) -> Tree:
    return read_columns(lines).finish(complete=True)


def is_export(lines: Sequence[str]) -> bool:
    """``conda list --export`` or ``--explicit``."""
    return any(line.strip() == "@EXPLICIT" or line.startswith("# platform: ") for line in lines)


def read_export(lines: Iterable[str]) -> Tree:
    gathered = Gathered(WHAT)
    for raw in lines:
        line = raw.strip()
        if line.startswith(("https://", "http://", "file://")):
            _add_url(gathered, line)
        elif line and not line.startswith(("#", "@")):
            name, _, rest = line.partition("=")
            version, _, build = rest.partition("=")
            if version and build:
                channel = "pypi" if build.startswith("pypi") else None
                gathered.add(name, version, build, channel)
    return gathered.finish(complete=True)


def _add_url(gathered: Gathered, url: str) -> None:
    path = url.partition("#")[0].split("/")
    name = re.sub(r"\.(?:conda|tar\.bz2)$", "", path[-1])
    parts = name.rsplit("-", 2)
    if len(parts) == 3:
        gathered.add(parts[0], parts[1], parts[2], path[-3] if len(path) > 3 else None)


def is_json(tree: Any) -> bool:
    return (
        isinstance(tree, list)
        and bool(tree)
        and isinstance(tree[0], dict)
        and "dist_name" in tree[0]
    )


def read_json(entries: Sequence[Mapping[str, Any]]) -> Tree:
    gathered = Gathered(WHAT)
    for entry in entries:
        values = [entry.get(key) for key in ("name", "version", "build_string", "channel")]
        if not all(isinstance(value, str) for value in values):
            raise InputError(f"{WHAT}: {shown(entry)[:80]} is not an entry of conda list --json")
        name, version, build, channel = (str(value) for value in values)
        gathered.add(name, version, build, channel)
    return gathered.finish(complete=True)


# --- conda env export ---------------------------------------------------------------------------

_YAML_ITEM = re.compile(r"(?P<indent> *)- +[\"']?(?P<item>[^\"'#]+?)[\"']? *(?:#.*)?$")


def is_env_file(lines: Sequence[str]) -> bool:
    return any(line.rstrip() == "dependencies:" for line in lines)


def read_env_file(lines: Sequence[str]) -> Tree:
    """The two lists that an environment file holds; YAML of this shape needs no YAML reader."""
    conda, pip = _items(lines)
    names = {re.split(r"[=<> ]", item.rpartition("::")[2])[0] for item in conda}
    exported = bool(names & _TRANSITIVE)
    gathered = Gathered("conda environment file")
    for item in conda:
        channel, _, spec = item.rpartition("::")
        parts = spec.replace("==", "=").split("=")
        if len(parts) == 3 or (len(parts) == 2 and exported):
            build = parts[2] if len(parts) == 3 else ""
            gathered.add(parts[0].strip(), parts[1].strip(), build, channel or None)
        elif len(parts) == 2 and _NAME.fullmatch(parts[0].strip()):
            gathered.tree["conda"][parts[0].strip()] = {"version": unknown(_CUT)}
    for item in pip:
        name, pinned, version = item.partition("==")
        if pinned and _NAME.fullmatch(name.strip()):
            gathered.packages.add(name.strip(), version.partition(";")[0].strip(), installer="pip")
    return gathered.finish(complete=exported)


def _items(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    conda: list[str] = []
    pip: list[str] = []
    section, depth = "", -1
    for line in lines:
        if line[:1].isalpha():
            section, depth = line.partition(":")[0], -1
            continue
        found = _YAML_ITEM.match(line)
        if section != "dependencies" or not found:
            continue
        indent = len(found["indent"])
        if found["item"].rstrip() == "pip:":
            depth = indent
        elif depth >= 0 and indent > depth:
            pip.append(found["item"].strip())
        else:
            depth = -1
            conda.append(found["item"].strip())
    return conda, pip
