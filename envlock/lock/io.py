"""Locks as text: read strictly, written canonically. The same lock gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from envlock.errors import InputError
from envlock.lock.digest import lock_id
from envlock.lock.files import read_bounded
from envlock.lock.image_env import check_image_env
from envlock.lock.model import LOCK_SCHEMA, End, EnvlockTable, ImageTable, Lock, file_names_only
from envlock.lock.observation import Absent, Unknown, value_of
from envlock.lock.references import check_reference
from envlock.lock.shape import ShapeError
from envlock.lock.strict import decode, fault, parse_json, parse_toml, shown

if TYPE_CHECKING:
    from packaging.pylock import Package

_TOP = {"lock-version", "environments", "requires-python", "created-by", "packages", "tool"}
_TABLE = ("tool", "envlock")
_JSON_START = re.compile(r'\s*(?:\{|\[\s*(?:\[\s*\[|[\]{"0-9-])|"|null\b|-?[0-9]+\s*$)')
"""What begins no TOML: an object, a list that is no table header, a scalar."""


def load_lock(path: Path) -> Lock:
    """Raises InputError for anything that is not a whole, valid lock."""
    return parse_lock(read_bounded(path), path.name)


def parse_lock(data: bytes, name: str) -> Lock:
    """Raises InputError with the spot and the reason."""
    text = decode(data, name)
    return lock_from_tree(lock_tree(text, name), name, complete=text.endswith("\n"))


def lock_tree(text: str, name: str) -> dict[str, Any]:
    """The tables of a lock; raises InputError that says what is wrong with TOML, or with JSON."""
    if not is_json(text):
        return parse_toml(text, name)
    tree = parse_json(text, name)
    if isinstance(tree, dict):
        _envlock_table(tree, name)
    raise InputError(f"{name}: a lock is TOML with a list of packages; this is JSON")


def is_json(text: str) -> bool:
    """Whether a text can only have been meant as JSON."""
    return _JSON_START.match(text) is not None


def lock_from_tree(tree: Mapping[str, Any], name: str, *, complete: bool = True) -> Lock:
    table = _envlock_table(tree, name)
    if not complete or "end" not in table:
        raise InputError(
            f"{name}: incomplete: the closing table [tool.envlock.end] is missing",
            hint="the file was cut off; ask for it again or capture anew",
        )
    from envlock.lock.packages import parse_packages  # noqa: PLC0415  # writing needs none of it

    _check_keys(tree, name)
    packages = parse_packages(tree, name)
    try:
        model = EnvlockTable.read(table)
    except ShapeError as error:
        raise fault(error, name, _TABLE) from error
    if model.behaviour:
        _check_behaviour(model.behaviour, name)
    check_image_env(model.image.env, f"{name}: tool.envlock.image.env")
    _check_image(model.image, f"{name}: tool.envlock.image")
    lock = Lock(
        requires_python=str(tree.get("requires-python", "")), packages=packages, table=model
    )
    _check_agreement(lock, name)
    return lock


def _check_image(image: ImageTable, where: str) -> None:
    from envlock.lock.packages import Fault, check_url  # noqa: PLC0415  # writing needs none of it

    if image.base is not None:
        check_reference(image.base.reference, f"{where}.base.reference")
    if image.python is None:
        return
    try:
        check_url(f"{where}.python.url", image.python.url)
    except Fault as error:
        raise InputError(f"{error.path}: {error.reason}") from error
    if image.python.system is not None:
        check_reference(image.python.system, f"{where}.python.system")


def is_sealed(lock: Lock) -> bool:
    """Whether the id in the lock is the id of what the lock holds. False: it was edited."""
    return lock.table.id == lock_id(lock.observed, lock.table.image.env)


def render_lock(lock: Lock) -> str:
    """TOML with a fixed order; nothing in it depends on time or place."""
    from envlock.lock.layout import as_toml  # noqa: PLC0415  # reading needs no writer

    return as_toml(lock)


def wheelhouse_form(lock: Lock) -> Lock:
    """The form to commit: wheels by file name and hash, no URLs, no hosts."""
    packages = file_names_only(lock.packages)
    return replace(lock, packages=packages, table=lock.table.changed(sources={}))


def canonical(lock: Lock) -> Lock:
    """What an image carries: the wheelhouse form, with nothing of how an image was built."""
    form = wheelhouse_form(lock)
    return replace(form, table=form.table.changed(image=ImageTable(env=lock.table.image.env)))


def with_end(table: EnvlockTable, packages: Sequence[Package]) -> EnvlockTable:
    return table.changed(end=End(packages=len(packages)))


def _envlock_table(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    packages = tree.get("packages")
    if "packages" in tree and not isinstance(packages, list):
        raise InputError(f"{name}: packages: a list is needed, got {shown(packages)}")
    tool = tree.get("tool")
    table = tool.get("envlock") if isinstance(tool, dict) else None
    if not isinstance(table, dict):
        raise InputError(
            f"{name}: incomplete: an envlock lock has a list of packages and a [tool.envlock] table",
            hint="write one with: envlock capture",
        )
    schema = table.get("schema")
    if schema != LOCK_SCHEMA:
        raise InputError(
            f"{name}: tool.envlock.schema: {shown(schema)} is not {LOCK_SCHEMA!r}",
            hint="a newer lock needs a newer envlock; otherwise capture anew",
        )
    return table


def _check_behaviour(raw: Mapping[str, Any], name: str) -> None:
    from envlock.lock.behaviour import Behaviour  # noqa: PLC0415  # see EnvlockTable.behaviour

    try:
        Behaviour.read(raw)
    except ShapeError as error:
        raise fault(error, name, (*_TABLE, "behaviour")) from error


def _check_keys(tree: Mapping[str, Any], name: str) -> None:
    for key in tree:
        if key not in _TOP:
            raise InputError(f"{name}: unknown key {shown(key)}")
    for key in tree["tool"]:
        if key != "envlock":
            raise InputError(f"{name}: unknown key {shown('tool.' + key)}")


def _check_agreement(lock: Lock, name: str) -> None:
    """Installing reads ``packages``, everything else ``observed.packages``: they must agree."""
    if lock.table.end.packages != len(lock.packages):
        raise InputError(
            f"{name}: incomplete: {len(lock.packages)} packages, "
            f"tool.envlock.end.packages says {lock.table.end.packages}"
        )
    observed = lock.observed.packages
    if isinstance(observed, Absent | Unknown):
        observed = {}
    for index, package in enumerate(lock.packages):
        seen = observed.get(package.name)
        if seen is None:
            raise InputError(f"{name}: packages[{index}].name: {package.name} was not observed")
        version = value_of(seen.version)
        if package.version is not None and version != str(package.version):
            raise InputError(
                f"{name}: packages[{index}].version: {package.version}, "
                f"but observed.packages has {shown(version)}"
            )
    for key in observed:
        if canonicalize_name(key) != key:
            raise InputError(f"{name}: tool.envlock.observed.packages: {shown(key)} is not normal")
