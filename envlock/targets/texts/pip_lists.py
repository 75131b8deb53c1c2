"""``pip freeze``, ``pip list`` and requirements files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envlock.errors import InputError
from envlock.lock.strict import shown
from envlock.redact import redact
from envlock.targets.texts import torch_facts
from envlock.targets.texts.choices import Choices, holds
from envlock.targets.texts.tree import ABSENT, MAX_PACKAGES, Packages, Tree, unknown

FREEZE, LIST, REQUIREMENTS = "pip freeze", "pip list", "requirements file"

_PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9._, -]*\])? *===? *(?P<rest>[^ ].*)$"
)
_AT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9._, -]*\])? +@ +(?P<url>[^ ]+)"
)
_LOOSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9._, -]*\])? *(?:[<>~!]=?|;|$)")
_OPEN = re.compile(r"[A-Za-z0-9._-]+(?:\[[^\]]*\])? *== *[0-9A-Za-z.!+]+(?:\.\*| *,)")
"""``==2.3.*`` and ``==2.3,!=...`` look pinned and are not."""
_EDITABLE = re.compile(r"(?:-e|--editable)[ =](?P<what>.+)$")
_OPTION = re.compile(
    r"(?P<name>-i|--index-url|--extra-index-url|-f|--find-links|--[a-z][a-z-]+|-[cr])(?:[ =]|$)(?P<value>.*)$"
)
_HASH = re.compile(r" --hash[ =][a-z0-9]+:[0-9a-f]+", re.ASCII)
_COMMENT = re.compile(r"(?:^|(?<= ))#.*$")
_COMMIT = re.compile(r"@(?P<commit>[0-9a-f]{40}|[0-9a-f]{64})(?:#|$)", re.ASCII)
_EGG = re.compile(r"#(?:[^ ]*&)?egg=(?P<name>[A-Za-z0-9._-]+)")
_RULE = re.compile(r" *-{3,}(?: +-{3,})+ *$")
_FEEDSTOCK = re.compile(r"/(?:feedstock_root|croot|conda-bld|bld/rattler-build_)")
"""Where conda's build machines unpacked what they built; pip repeats it as the package's origin."""

_SEEDS = ("pip", "setuptools", "wheel")
"""A list does not tell which of them something requires, and pip freeze leaves them out."""


# --- freeze and requirements ------------------------------------------------------------------


def is_requirements(lines: Sequence[str]) -> bool:
    """At least half of the lines that say something are requirements or options."""
    said = [line for line in _logical(lines) if not line.startswith(("$ ", "WARNING", "[notice]"))]
    matching = sum(_is_one(line) for line in said)
    pinned = any(_PINNED.match(line) or _AT.match(line) or _EDITABLE.match(line) for line in said)
    return pinned and matching * 2 >= len(said)


def _is_one(line: str) -> bool:
    patterns = (_PINNED, _AT, _LOOSE, _EDITABLE, _OPTION)
    return any(pattern.match(line) for pattern in patterns)


def read_requirements(lines: Sequence[str]) -> Tree:
    """What pins one version; the rest (ranges, constraints) says nothing about an environment."""
    logical = list(_logical(lines))
    if len(logical) > 2 * MAX_PACKAGES:
        raise InputError(f"{REQUIREMENTS}: too many packages (at most {MAX_PACKAGES})")
    hashed = [line for line in logical if _HASH.search(line)]
    where = REQUIREMENTS if hashed or not _all_pinned(logical) else FREEZE
    packages, choices = Packages(where), Choices()
    hosts: set[str] = set()
    links = loose = False
    for line in logical:
        option = _OPTION.match(line)
        if _EDITABLE.match(line):
            _add_editable(packages, line)
        elif option:
            host = _host(option["value"])
            links = links or option["name"] in {"-f", "--find-links"}
            if option["name"] in {"-i", "--index-url", "--extra-index-url"} and host:
                hosts.add(host)
        elif _OPEN.match(line):
            loose = True
        elif _PINNED.match(line) or _AT.match(line):
            _add_requirement(packages, choices, line)
        else:
            loose = loose or bool(_LOOSE.match(line))
    for name in choices.names():
        packages.add(name, choices.version(name))
    return _finish(packages, hosts, links=links, complete=not loose)


def _all_pinned(lines: Sequence[str]) -> bool:
    """As pip freeze prints it: no ranges, no markers, no options."""
    return not any(
        (_LOOSE.match(line) and not _PINNED.match(line)) or _OPTION.match(line) or " ;" in line
        for line in lines
        if not _EDITABLE.match(line) and _is_one(line)
    )


def _logical(lines: Sequence[str]) -> Iterator[str]:
    """Lines without comments, continued ones joined, as pip reads requirements files."""
    held: list[str] = []
    for raw in [*lines, ""]:
        line = _COMMENT.sub("", raw.strip()).strip()
        if line.endswith("\\"):
            held.append(line[:-1].rstrip())
            continue
        whole = " ".join([*held, line]).strip()
        held.clear()
        if whole:
            yield whole


def _add_requirement(packages: Packages, choices: Choices, line: str) -> None:
    text = _HASH.sub("", line)
    at = _AT.match(text)
    if at:
        version, source = _from_url(at["url"])
        packages.add(at["name"], version, source=source)
        return
    found = _PINNED.match(text)
    assert found is not None
    pinned, semicolon, marker = (part.strip() for part in found["rest"].partition(";"))
    if not semicolon:
        packages.add(found["name"], pinned)
        return
    packages.check_version(found["name"], pinned)
    answer = holds(marker)
    if answer is not False:
        choices.add(packages.key(found["name"]), pinned, certain=answer is True)


def _add_editable(packages: Packages, line: str) -> None:
    found = _EDITABLE.match(line)
    assert found is not None
    egg = _EGG.search(found["what"])
    if egg:
        _, source = _from_url(found["what"].strip())
        packages.add(
            egg["name"], unknown("an editable install"), source=source | {"kind": "editable"}
        )


def _from_url(url: str) -> tuple[str | Tree, Tree]:
    """Version and source of ``name @ url``: only wheels carry their version in the name."""
    shown_url = redact(url.partition("#")[0])
    if url.startswith("file:") or "://" not in url:
        kind = "conda" if _FEEDSTOCK.search(url) else "archive"
        return unknown("installed from a path of another machine"), {"kind": kind}
    commit = _COMMIT.search(url)
    if re.match(r"(?:git|hg|svn|bzr)\+", url):
        source: Tree = {"kind": "vcs", "url": shown_url}
        version: str | Tree = unknown("installed from a repository")
        return version, source | ({"commit": commit["commit"]} if commit else {})
    try:
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        version = str(parse_wheel_filename(name)[1])
    except (InvalidWheelFilename, ValueError):
        version = unknown("installed from a URL that does not tell the version")
    return version, {"kind": "archive", "url": shown_url}


def _host(url: str) -> str | None:
    try:
        host = urlsplit(url.strip()).hostname
    except ValueError:
        return None
    # As the probe does: an address says where somebody's network is.
    return "ip-address" if host and re.fullmatch(r"[0-9.]+|.*:.*", host) else host


def _finish(packages: Packages, hosts: set[str], *, links: bool, complete: bool) -> Tree:
    tree: Tree = {}
    if hosts or links:
        tree["indexes"] = {"hosts": sorted(hosts) or dict(ABSENT), "find_links": links}
    complete = complete and packages.looks_complete()
    return with_torch(tree, packages, complete=complete)


def with_torch(tree: Tree, packages: Packages, *, complete: bool) -> Tree:
    """The tree with its packages, what they say about torch, and whether they are all."""
    version = packages.get("torch")
    if version:
        tree["torch"] = torch_facts.from_version(version)
    elif complete and "torch" not in packages:
        tree["torch"] = dict(ABSENT)
    seeds = {name: seed for name in _SEEDS if (seed := packages.take(name))}
    return {
        **tree,
        **({"seeds": seeds} if seeds else {}),
        "packages": packages.tree(),
        "exhaustive": ["packages"] if complete else [],
    }


# --- list -------------------------------------------------------------------------------------


def is_columns(lines: Sequence[str]) -> bool:
    return any(
        line.split()[:2] == ["Package", "Version"] and _RULE.match(following)
        for line, following in itertools.pairwise(lines)
    )


def read_columns(lines: Sequence[str]) -> Tree:
    """The table of ``pip list`` and ``uv pip list``, up to the first line that is not of it."""
    packages = Packages(LIST)
    header: list[str] = []
    inside = False
    for line in lines:
        parts = line.split()
        if _RULE.match(line):
            inside = True
        elif not inside:
            header = parts
        elif not parts:
            break
        elif len(parts) >= 2 and any(digit in parts[1] for digit in "0123456789"):
            installer = {"installer": parts[-1]} if header[-1:] == ["Installer"] else {}
            packages.add(parts[0], parts[1], **installer)
    # --outdated prints the columns Latest and Type: a selection.
    complete = "Latest" not in header and packages.looks_complete()
    return with_torch({}, packages, complete=complete)


def is_json(tree: Any) -> bool:
    return (
        isinstance(tree, list)
        and bool(tree)
        and all(isinstance(entry, dict) and {"name", "version"} <= entry.keys() for entry in tree)
    )


def read_json(entries: Sequence[Mapping[str, Any]]) -> Tree:
    packages = Packages(LIST)
    for entry in entries:
        name, version = entry["name"], entry["version"]
        if not isinstance(name, str) or not isinstance(version, str):
            raise InputError(f"{LIST}: {shown(dict(entry))} is not an entry of pip list")
        packages.add(name, version)
    complete = not any("latest_version" in entry for entry in entries)
    return with_torch({}, packages, complete=complete and packages.looks_complete())
