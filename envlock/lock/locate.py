"""Where the files of a lock in wheelhouse form can be had from: such a lock names no place."""

from __future__ import annotations

from collections.abc import Callable, Collection

from packaging.pylock import Package, PackageWheel

from envlock.lock.model import Lock
from envlock.lock.pip_config import Sources
from envlock.lock.resolve import look_up


def locate(
    lock: Lock, names: Collection[str], sources: Sources, say: Callable[[str], None]
) -> dict[str, str]:
    """Package name -> URL of the very wheel that the lock names: one file name and one sha256.

    A package whose wheel no index has, or only another wheel of that name, is not in the answer.
    Raises TargetError when the indexes cannot be used.
    """
    wanted = {
        package.name: package
        for package in lock.packages
        if package.name in names and package.wheels
    }
    found = look_up(
        {name: f"{name}=={package.version}" for name, package in wanted.items()},
        lock.observed,
        sources,
        say,
    )
    urls = ((entry.name, _url(entry, wanted[entry.name])) for entry in found.packages)
    return {name: url for name, url in urls if url is not None}


def _url(entry: Package, wanted: Package) -> str | None:
    return next(
        (
            wheel.url
            for wheel in entry.wheels or []
            for ours in wanted.wheels or []
            if wheel.url and wheel.url.startswith(("https://", "http://")) and _same(wheel, ours)
        ),
        None,
    )


def _same(wheel: PackageWheel, ours: PackageWheel) -> bool:
    digest = ours.hashes.get("sha256")
    return wheel.filename == ours.filename and digest == wheel.hashes.get("sha256") is not None
