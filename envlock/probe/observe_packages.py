"""Every distribution on sys.path, from its metadata folder alone, without importing anything.

``importlib.metadata`` is not used: it parses whole METADATA files, hides duplicates, and answers
None for the name of a broken one. Here a broken folder is a fact like any other.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator

import observe_common

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown

_HEADER = re.compile(r"^(Name|Version|Requires-Dist):[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE)
_EXTRA = re.compile(r";.*\bextra\b")
_HEADERS = re.compile(r"include/(?:site/)?(?:python|pypy)\d[\d.]*[a-z]?/")
_SHARED_LIBRARY = re.compile(r"\.(?:so(?:\.\d+)*|dll|pyd|dylib)$")
_ELF_NAME = re.compile(r"\.so(?:\.\d+)*$")
# Written by the installer, different for each: not part of what the wheel holds.
_BY_INSTALLER = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")


class Site:
    """A folder of sys.path that holds distributions."""

    def __init__(self, folder: str, path_class: str) -> None:
        self.folder, self.path_class = folder, path_class
        self.owner = {}  # path below the folder -> name of the distribution that claims it
        self.entries = {}  # the same -> (hash, size) of that claim


class Dist:
    """One metadata folder that names a distribution."""

    def __init__(self, site: Site, folder: str, name: str, version: str) -> None:
        self.site, self.folder, self.name, self.version = site, folder, name, version
        self.requires = []
        self.files = {}  # path below the site folder, as RECORD has it -> (hash, size)
        self.record = ABSENT
        self.installer = ABSENT
        self.tags = ABSENT
        self.source = unknown("no direct_url.json, and the installer keeps no other note")
        self.editable = False

    def fact(self) -> dict[str, object]:
        return {
            "version": observe_common.text_fact(self.version),
            "record": self.record,
            "installer": self.installer,
            "source": self.source,
            "path_class": "source" if self.editable else self.site.path_class,
            "tags": self.tags,
        }

    def libraries(self) -> list[str]:
        """Absolute paths of the shared libraries in RECORD."""
        return [
            os.path.normpath(os.path.join(self.site.folder, path))
            for path in self.files
            if ".so" in path and _ELF_NAME.search(path)
        ]


class Packages:
    """The result of the scan: the copies that win, and what is wrong with the others."""

    def __init__(self) -> None:
        self.sites = []
        self.dists = {}  # normalised name -> Dist that import finds first
        self.duplicates = {}
        self.broken = []
        self.contested = {}

    def claim_of(self, path: str) -> tuple[str, str] | None:
        """(name of the distribution whose RECORD claims a path, the size it says), or None."""
        for site in self.sites:
            if path.startswith(site.folder + os.sep):
                below = path[len(site.folder) + 1 :].replace(os.sep, "/")
                if below in site.owner:
                    return site.owner[below], site.entries[below][1]
        return None


def normalised(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def scan(folders: list[tuple[str, str]]) -> Packages:
    """All distributions of these folders (realpath, path class), in the order of sys.path."""
    found = Packages()
    for folder, path_class in folders:
        site = Site(folder, path_class)
        dists = sorted(_read_site(site, found.broken), key=lambda dist: dist.folder)
        if not dists:
            continue
        found.sites.append(site)
        for dist in _best_first(dists):
            _claim(found, dist)
            first = found.dists.setdefault(dist.name, dist)
            if first is not dist:
                versions = found.duplicates.setdefault(dist.name, [first.version])
                versions.append(dist.version)
    return found


def _best_first(dists: list[Dist]) -> list[Dist]:
    """Of two copies in one folder, the one whose files are there: import knows no other order."""
    names = [dist.name for dist in dists]
    twins = {name for name in names if names.count(name) > 1}
    if not twins:
        return dists
    return sorted(dists, key=lambda dist: -_present(dist) if dist.name in twins else 0)


def _present(dist: Dist) -> float:
    """The share of the first hundred files of RECORD that have their size on disk."""
    entries = [item for item in dist.files.items() if item[1][1]][:100]
    return sum(_on_disk(dist.site, *item) for item in entries) / len(entries) if entries else 0.0


def _read_site(site: Site, broken: list[dict[str, object]]) -> Iterator[Dist]:
    try:
        entries = list(os.scandir(site.folder))
    except OSError:
        return
    for entry in entries:
        name = entry.name
        if name.endswith((".dist-info", ".egg-info")) or (
            name.endswith(".egg") and os.path.isdir(os.path.join(entry.path, "EGG-INFO"))
        ):
            try:
                yield _read_dist(site, entry)
            except _BrokenError as error:
                broken.append({"folder": name, "reason": str(error)})
            except Exception as error:
                reason = "%s while reading it" % type(error).__name__
                broken.append({"folder": name, "reason": reason})


class _BrokenError(Exception):
    """Why a metadata folder names no usable distribution."""


def _read_dist(site: Site, entry: os.DirEntry[str]) -> Dist:
    if entry.name.startswith("~"):
        raise _BrokenError("left over from an uninstall that pip did not finish")
    folder = os.path.join(entry.path, "EGG-INFO") if entry.name.endswith(".egg") else entry.path
    fields, requires = _headers(folder)
    missing = [key for key in ("Name", "Version") if not fields.get(key)]
    if missing:
        raise _BrokenError("its metadata has no %s" % " and no ".join(missing))
    if not re.match(r"^[A-Za-z0-9][A-Za-z0-9._\-]*$", fields["Name"]):
        raise _BrokenError("its metadata has no valid name")
    dist = Dist(site, entry.name, normalised(fields["Name"]), fields["Version"])
    dist.requires = requires
    if os.path.isdir(folder):
        _read_installation(dist, folder)
    return dist


def _headers(folder: str) -> tuple[dict[str, str], list[str]]:
    """Name and version, and the requirements that need no extra."""
    if os.path.isfile(folder):  # distutils: the .egg-info is the metadata file itself
        text = _header_block(folder)
    else:
        text = _header_block(os.path.join(folder, "METADATA"))
        if text is None:
            text = _header_block(os.path.join(folder, "PKG-INFO"))
    if text is None:
        if os.path.isdir(folder) and not os.listdir(folder):
            raise _BrokenError("the folder is empty")
        raise _BrokenError("it holds no METADATA")
    fields, requires = {}, []
    for key, value in _HEADER.findall(text):
        if key == "Requires-Dist":
            if not _EXTRA.search(value):
                requires.append(value)
        else:
            fields.setdefault(key, value)
    old = observe_common.read_text(os.path.join(folder, "requires.txt")) if not requires else None
    return fields, requires if old is None else _requires_txt(old)


def _header_block(path: str) -> str | None:
    """The head of a METADATA file up to the empty line: the description below is long."""
    try:
        with open(path, "rb") as file:
            data = b""
            while len(data) < 1 << 20:
                chunk = file.read(8192)
                data += chunk
                end = re.search(rb"\r?\n\r?\n", data)
                if end or not chunk:
                    break
    except OSError:
        return None
    return (data[: end.start()] if end else data).decode("utf-8", "replace")


def _requires_txt(text: str) -> list[str]:
    """setuptools' own form: sections ``[extra]`` and ``[:marker]``."""
    requires, marker, skip = [], "", False
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            extra, _, marker = line.strip("[]").partition(":")
            skip = bool(extra)
        elif line and not skip:
            requires.append(line + ("; " + marker if marker else ""))
    return requires


def _read_installation(dist: Dist, folder: str) -> None:
    installer = observe_common.read_text(os.path.join(folder, "INSTALLER"), 1024)
    if installer is not None and installer.strip():
        dist.installer = installer.split()[0]
    wheel = observe_common.read_text(os.path.join(folder, "WHEEL"), 1 << 16)
    if wheel is not None:
        dist.tags = sorted(re.findall(r"^Tag:[ \t]*(\S+)", wheel, re.MULTILINE)) or ABSENT
    _read_source(dist, observe_common.read_text(os.path.join(folder, "direct_url.json"), 1 << 16))
    record = observe_common.read_bytes(os.path.join(folder, "RECORD"), 64 << 20)
    if record is not None:
        dist.files, bad = parse_record(record)
        if bad:
            dist.record = unknown("%d lines of RECORD are not path,hash,size" % bad)
        elif dist.editable:
            dist.record = unknown("editable: RECORD does not list the code")
        else:
            dist.record = record_digest(dist.files)


def _read_source(dist: Dist, direct_url: str | None) -> None:
    if direct_url is None:
        if dist.installer in ("pip", "uv", "poetry", "pdm", "envlock"):
            dist.source = {"kind": "index"}
        elif dist.installer == "conda":
            dist.source = {"kind": "conda"}
        return
    try:
        data = json.loads(direct_url)
        url = observe_common.show_url(data["url"])
        if data.get("dir_info") is not None:
            dist.editable = bool(data["dir_info"].get("editable"))
            dist.source = {"kind": "editable" if dist.editable else "directory", "url": url}
        elif data.get("vcs_info") is not None:
            commit = str(data["vcs_info"].get("commit_id", ""))
            known = re.match(r"^[0-9a-f]{40}(?:[0-9a-f]{24})?$", commit)
            commit = commit if known else unknown("no full commit id in direct_url.json")
            dist.source = {"kind": "vcs", "url": url, "commit": commit}
        else:
            dist.source = {"kind": "archive", "url": url}
    except (ValueError, KeyError, TypeError, AttributeError):
        dist.source = unknown("direct_url.json cannot be read")


# --- RECORD -----------------------------------------------------------------------------------


def parse_record(data: bytes) -> tuple[dict[str, tuple[str, str]], int]:
    """({path: (hash, size)}, number of lines that are not of the form path,hash,size)."""
    lines = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n").split("\n")
    rows = [line.rsplit(",", 2) for line in lines if line]
    good = [row for row in rows if len(row) == 3]
    files = {path: (digest, size) for path, digest, size in good}
    for path in [path for path in files if path[:1] == '"']:
        files[path[1:-1].replace('""', '"')] = files.pop(path)
    return files, len(rows) - len(good)


def record_digest(files: dict[str, tuple[str, str]]) -> str:
    """sha256 over what the wheel brought: equal through pip, uv and envlock's own assembler.

    One line ``path,hash,size`` for each file, sorted, each ended by a newline. Left out: bytecode,
    scripts (their first line names the interpreter), and what each installer writes for itself.
    Paths outside the site folder lose their leading ``../`` and, for headers, the folder that names
    the interpreter, so that venv, lib64 and dist-packages agree.
    """
    lines, odd = [], []
    for path, (digest, size) in files.items():
        if path[-4:] == ".pyc":
            continue
        if path[:1] in "./" or "\\" in path or ".dist-info/" in path:
            odd.append(path)
        else:  # nearly all
            lines.append(f"{path},{digest},{size}\n")
    lines += [
        "%s,%s,%s\n" % (_plain(path), *files[path]) for path in odd if not _is_installers(path)
    ]
    lines.sort()
    return "sha256:" + hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _is_installers(path: str) -> bool:
    """Whether the installer wrote this file: a script, or a note of its own beside METADATA."""
    folder, _, name = path.replace("\\", "/").rpartition("/")
    if folder.endswith(".dist-info"):
        return name in _BY_INSTALLER or name.startswith("uv_")
    return folder[:1] in ("/", ".") and folder.rpartition("/")[2] in ("bin", "Scripts")


def _plain(path: str) -> str:
    """A RECORD path without the way out of the site folder."""
    plain = path.replace("\\", "/")
    outside = plain.startswith(("../", "/"))
    while plain.startswith(("../", "./", "/")):
        plain = plain.partition("/")[2]
    return _HEADERS.sub("include/", plain) if outside else plain


def _claim(found: Packages, dist: Dist) -> None:
    """Enter the distribution's files as its own, and record what another one claims too."""
    site = dist.site
    fresh = dict(dist.files)
    for path in site.owner.keys() & fresh.keys():
        other, theirs = site.owner[path], site.entries[path]
        if path.endswith(".pyc") or other == dist.name:
            continue
        if theirs != dist.files[path] or _SHARED_LIBRARY.search(path):
            names = found.contested.setdefault(path[: observe_common.TEXT_LIMIT], [])
            names.extend(name for name in (other, dist.name) if name not in names)
            names.sort()
            if not _on_disk(site, path, dist.files[path]):
                del fresh[path]  # the other one's file is there: it stays the owner
    site.owner.update(dict.fromkeys(fresh, dist.name))
    site.entries.update(fresh)


def _on_disk(site: Site, path: str, entry: tuple[str, str]) -> bool:
    """Whether the file that is there has the size this RECORD line claims."""
    try:
        return str(os.stat(os.path.join(site.folder, path)).st_size) == entry[1]
    except OSError:
        return False


# --- conda ------------------------------------------------------------------------------------


def conda_packages(prefix: str | None = None) -> object:
    """Everything in conda-meta, by conda's own names; absent where there is no conda-meta."""
    folder = os.path.join(prefix or sys.prefix, "conda-meta")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ABSENT
    found = {}
    for name in names:
        parts = name[: -len(".json")].rsplit("-", 2) if name.endswith(".json") else ()
        if len(parts) != 3:
            continue
        channel = unknown("conda-meta does not say")
        head = observe_common.read_text(os.path.join(folder, name), 1 << 13) or ""
        match = re.search(r'"channel": *"([^"]+)"', head)
        if match:
            value = match.group(1)
            channel = observe_common.show_url(value) if "/" in value else value
        found[parts[0]] = {"version": parts[1], "build": parts[2], "channel": channel}
    return found
