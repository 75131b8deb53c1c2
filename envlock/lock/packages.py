"""The ``[[packages]]`` of a lock: PEP 751 by ``packaging.pylock``, and stricter where a lock that a
stranger sent could do harm. Every rule is a grammar; nothing is escaped or repaired."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker
from packaging.pylock import Package, Pylock, PylockValidationError
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from envlock.errors import InputError
from envlock.lock.strict import MAX_PACKAGES, shown

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", re.ASCII)
_DIGEST_LENGTH = {"sha256": 64, "sha384": 96, "sha512": 128}
_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_URL_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!&'()*+,;=%-]+", re.ASCII)
_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*",
    re.ASCII,
)
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,254}", re.ASCII)
_MARKER_CHARACTERS = re.compile(r"[A-Za-z0-9_ .<>=!~()'\"+*,/-]*", re.ASCII)


class Fault(Exception):  # noqa: N818  # a fault in the file, not of the program
    """What is wrong, and where below the package entry."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


def parse_packages(document: Mapping[str, Any], name: str) -> tuple[Package, ...]:
    """Check every entry and return them as ``packaging`` models.

    Raises InputError with the field's path (``packages[3].wheels[0].hashes``) and the reason.
    """
    raw = document.get("packages")
    if not isinstance(raw, list):
        raise InputError(f"{name}: packages: a list is needed, got {shown(raw)}")
    if len(raw) > MAX_PACKAGES:
        raise InputError(f"{name}: packages: too many ({len(raw)}; at most {MAX_PACKAGES})")
    seen: dict[str, int] = {}
    for index, entry in enumerate(raw):
        with _named(f"{name}: packages[{index}]"):
            _check_new(entry, seen, index)
    for index, entry in enumerate(raw):
        with _named(f"{name}: packages[{index}]"):
            _check_entry(entry)
    try:
        return tuple(Pylock.from_dict(document).packages)
    except PylockValidationError as error:
        raise InputError(f"{name}: {error.context or 'the document'}: {error.message}") from error


@contextlib.contextmanager
def _named(spot: str) -> Iterator[None]:
    try:
        yield
    except Fault as fault:
        dot = "." if fault.path else ""
        raise InputError(f"{spot}{dot}{fault.path}: {fault.reason}") from None


def check_url(path: str, url: object, schemes: Iterable[str] = ("https",)) -> None:
    """Raises Fault unless ``url`` is a plain URL with one of the schemes and no credentials."""
    text = _text(path, url)
    if len(text) > 2048:
        raise Fault(path, "too long for a URL")
    scheme = text.partition(":")[0].lower()
    if scheme not in schemes:
        raise Fault(path, f"the scheme must be one of {', '.join(schemes)}, got {shown(scheme)}")
    if "$" in text or not _URL_CHARACTERS.fullmatch(text):
        raise Fault(path, "a character that no URL has ('$', a space or a control character)")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise Fault(path, "not a URL") from None
    plain_git = parts.scheme == "git+ssh" and parts.username == "git" and parts.password is None
    if "@" in parts.netloc and not plain_git:
        raise Fault(path, "credentials are not allowed (the value is not shown)")
    if not host or not _HOST.fullmatch(host):
        raise Fault(path, f"not a host name: {shown(host)}")
    if re.fullmatch(r"[0-9.]+|localhost", host):
        raise Fault(path, "an address or localhost is not allowed; use https and a host name")


def _check_new(entry: object, seen: dict[str, int], index: int) -> None:
    """Names first: which of two pins is right is no question of their files."""
    if not isinstance(entry, dict):
        raise Fault("", f"a table is needed, got {shown(entry)}")
    name = _check_name(entry.get("name"))
    if name in seen:
        raise Fault("name", f"duplicate of packages[{seen[name]}] ({name})")
    seen[name] = index


def _check_entry(entry: dict[str, Any]) -> None:
    name = canonicalize_name(entry["name"])
    version = _check_version(entry.get("version")) if "version" in entry else None
    if "marker" in entry:
        _check_marker(entry["marker"])
    for key in ("index",):
        if key in entry:
            check_url(key, entry[key])
    _check_sources(entry, name, version)


def _check_sources(entry: dict[str, Any], name: str, version: Version | None) -> None:
    wheels = entry.get("wheels", [])
    if not isinstance(wheels, list):
        raise Fault("wheels", f"a list is needed, got {shown(wheels)}")
    for number, wheel in enumerate(wheels):
        _check_file(f"wheels[{number}]", wheel, name, version)
    if "sdist" in entry:
        _check_file("sdist", entry["sdist"], name, version)
    if "archive" in entry:
        _check_file("archive", entry["archive"], name, version)
    if "vcs" in entry:
        _check_vcs(entry["vcs"])
    if "directory" in entry:
        raise Fault("directory", "a folder of somebody's machine cannot be installed from a lock")


def _check_name(raw: object) -> str:
    text = _text("name", raw)
    if not _NAME.fullmatch(text):
        raise Fault("name", f"not a package name: {shown(text)}")
    return canonicalize_name(text)


def _check_version(raw: object) -> Version:
    text = _text("version", raw)
    if len(text) > 128:
        raise Fault("version", "too long for a version")
    try:
        version = Version(text)
    except InvalidVersion:
        strange = [f"U+{ord(c):04X}" for c in text if ord(c) > 126]
        detail = f" ({', '.join(strange[:3])})" if strange else ""
        raise Fault("version", f"not an exact version: {shown(text)}{detail}") from None
    if str(version) != text:
        raise Fault("version", f"not in normal form: {shown(text)}, expected {version}")
    return version


def _check_marker(raw: object) -> None:
    text = _text("marker", raw)
    depth = deepest = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        deepest = max(deepest, depth)
    if deepest > 32:
        raise Fault("marker", "nested more than 32 levels deep")
    if len(text) > 1024:
        raise Fault("marker", "too long for a marker (at most 1024 characters)")
    if not _MARKER_CHARACTERS.fullmatch(text):
        raise Fault("marker", f"not a marker: {shown(text)}")
    try:
        Marker(text).evaluate()
    except InvalidMarker:
        raise Fault("marker", f"not a marker, or an unknown variable: {shown(text)}") from None
    except Exception as error:  # packaging raises several kinds for what it cannot compare
        raise Fault("marker", f"cannot be evaluated: {shown(text)}") from error


def _check_file(path: str, raw: object, name: str, version: Version | None) -> None:
    if not isinstance(raw, dict):
        raise Fault(path, f"a table is needed, got {shown(raw)}")
    _check_hashes(f"{path}.hashes", raw.get("hashes"))
    if "url" in raw:
        check_url(f"{path}.url", raw["url"])
    if "subdirectory" in raw:
        _check_subdirectory(f"{path}.subdirectory", raw["subdirectory"])
    names = [(key, raw[key]) for key in ("name", "path") if key in raw]
    for key, value in names:
        if not _FILE.fullmatch(_text(f"{path}.{key}", value)):
            raise Fault(f"{path}.{key}", f"not a plain file name: {shown(value)}")
    if "url" in raw and "name" not in raw:
        names.append(("url", unquote(urlsplit(raw["url"]).path.rpartition("/")[2])))
    for key, value in names:
        _check_file_name(f"{path}.{key}", value, name, version)


def _check_file_name(path: str, file_name: str, name: str, version: Version | None) -> None:
    try:
        if file_name.endswith(".whl"):
            of, at = parse_wheel_filename(file_name)[:2]
        else:
            of, at = parse_sdist_filename(file_name)
    except (InvalidWheelFilename, InvalidSdistFilename):
        raise Fault(path, f"not the file name of a package: {shown(file_name)}") from None
    if of != name or (version is not None and at != version):
        raise Fault(path, f"the file is {of} {at}, the entry is {name} {version}")


def _check_hashes(path: str, raw: object) -> None:
    if not isinstance(raw, dict) or not raw:
        raise Fault(path, "a table with a sha256, sha384 or sha512 is needed")
    for algorithm, value in raw.items():
        length = _DIGEST_LENGTH.get(algorithm)
        if length is None:
            raise Fault(path, f"{shown(algorithm)} is not accepted; sha256, sha384 or sha512 is")
        text = _text(path, value)
        if len(text) != length or not _HEX.fullmatch(text):
            raise Fault(path, f"not a {algorithm} in lower-case hexadecimal")


def _check_vcs(raw: object) -> None:
    if not isinstance(raw, dict):
        raise Fault("vcs", f"a table is needed, got {shown(raw)}")
    if raw.get("type") != "git":
        raise Fault("vcs.type", "only git is supported")
    check_url("vcs.url", raw.get("url"), ("https", "git+https", "git+ssh"))
    commit = raw.get("commit-id")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise Fault("vcs.commit-id", "a commit of 40 or 64 hexadecimal digits is needed")
    if "subdirectory" in raw:
        _check_subdirectory("vcs.subdirectory", raw["subdirectory"])
    if "path" in raw:
        raise Fault("vcs.path", "a repository on somebody's machine cannot be installed")


def _check_subdirectory(path: str, raw: object) -> None:
    text = _text(path, raw)
    parts: Sequence[str] = text.split("/")
    if "\\" in text or text.startswith("/") or ".." in parts or not text.isprintable():
        raise Fault(path, "a subdirectory must be relative, without '..' or backslash")


def _text(path: str, raw: object) -> str:
    if not isinstance(raw, str):
        raise Fault(path, f"a string is needed, got {shown(raw)}")
    return raw
