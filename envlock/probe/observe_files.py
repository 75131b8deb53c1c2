"""Hash installed files against RECORD: a patched site-packages file is the classic hidden cause."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
from collections.abc import Iterator

import observe_common
import observe_packages

guarded = observe_common.guarded

_ALGORITHMS = ("sha256", "sha384", "sha512")
_CHUNK = 1 << 20
_MOST_UNOWNED = 1000
# Written beside modules by Python, numba, editors, file managers, network disks and pip.
_LEFT_BY_TOOLS = re.compile(
    r"__pycache__|\.ipynb_checkpoints|\.DS_Store|Thumbs\.db|\.nfs.*|.*(?:\.py[co]|\.sw[a-p]|~)|~.*"
)
_REPORT_S = 0.2


def check_files(packages: observe_packages.Packages) -> dict[str, object]:
    """FileCheck for every hashed line of every RECORD that was read."""
    claims = {}  # path -> [(distribution, path as in RECORD, hash)]
    for dist in packages.dists.values():
        for path, (digest, _) in dist.files.items():
            if digest.partition("=")[0] in _ALGORITHMS and not path.endswith(".pyc"):
                full = os.path.normpath(os.path.join(dist.site.folder, path))
                claims.setdefault(full, []).append((dist.name, path, digest))
    results = _hash_all(claims)
    check = {
        "checked": 0,
        "altered": {},
        "missing": {},
        "unowned": guarded(unowned_files, packages),
    }
    for full, wanted in claims.items():
        name, path, _ = wanted[0]
        path = path[: observe_common.TEXT_LIMIT]
        found = results.get(full)
        if found is None:
            if not os.path.lexists(full):
                check["missing"][path] = name
            continue  # one that this user may not read is not checked, and not counted
        check["checked"] += 1
        # Where two distributions claim one path, one of them is right: ``contested`` tells of it.
        if not any(digest in found for _, _, digest in wanted):
            check["altered"][path] = name
    return check


# --- files that no RECORD names -----------------------------------------------------------------


def unowned_files(packages: observe_packages.Packages) -> dict[str, str]:
    """Path below the site folder -> distribution in whose package the file lies.

    Only regular packages are looked into (RECORD names their ``__init__.py``): a namespace belongs
    to nobody, and an editable install has its code elsewhere. Not those of conda, whose RECORD is
    not the whole list, nor those that a distribution without RECORD may share.
    """
    found = {}
    for site in packages.sites:
        claimed = {os.path.normpath(path) for path in site.owner}
        shared = _names_without_record(packages, site)
        for root, owner in _regular_packages(packages, site):
            if root.partition("/")[0] in shared:
                continue
            for path in _files_below(os.path.join(site.folder, root)):
                below = path[len(site.folder) + 1 :]
                if below not in claimed and len(found) < _MOST_UNOWNED:
                    found[below.replace(os.sep, "/")[: observe_common.TEXT_LIMIT]] = owner
    return found


def _regular_packages(
    packages: observe_packages.Packages, site: observe_packages.Site
) -> Iterator[tuple[str, str]]:
    """(folder, distribution) of the outermost folders with an ``__init__.py``."""
    end = "/__init__.py"
    folders = {path[: -len(end)]: name for path, name in site.owner.items() if path.endswith(end)}
    for folder, name in sorted(folders.items()):
        parts = folder.split("/")
        outer = any("/".join(parts[:length]) in folders for length in range(1, len(parts)))
        dist = packages.dists.get(name)
        if not outer and ".." not in parts and dist is not None and dist.installer != "conda":
            yield folder, name


def _names_without_record(
    packages: observe_packages.Packages, site: observe_packages.Site
) -> set[str]:
    """Top-level names of distributions whose files nobody lists."""
    names = set()
    for dist in packages.dists.values():
        if dist.site is site and not dist.files:
            text = observe_common.read_text(os.path.join(site.folder, dist.folder, "top_level.txt"))
            names.update((text or dist.name.replace("-", "_")).split())
    return names


def _files_below(folder: str) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _LEFT_BY_TOOLS.fullmatch(name))
        for name in sorted(files):
            if not _LEFT_BY_TOOLS.fullmatch(name):
                yield os.path.join(where, name)


# --- hashing ------------------------------------------------------------------------------------


def _hash_all(claims: dict[str, list[tuple[str, str, str]]]) -> dict[str, set[str] | None]:
    """Path -> the hashes found in it, as RECORD writes them; None for what cannot be read."""
    import queue  # the look that checks no files does without these two
    import threading

    jobs, results, done = queue.Queue(), {}, [0]
    sized = sorted(claims, key=_size, reverse=True)  # a big file last would leave cores idle
    total = sum(_size(path) for path in sized)
    for path in sized:
        jobs.put(path)

    def work() -> None:
        buffer = memoryview(bytearray(_CHUNK))
        while True:
            try:
                path = jobs.get_nowait()
            except queue.Empty:
                return
            names = {digest.partition("=")[0] for _, _, digest in claims[path]}
            results[path] = _hash_file(path, names, buffer, done)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(os.cpu_count() or 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_REPORT_S)
            _report(done[0], total)
    _report(total, total)
    return results


def _report(done: int, total: int) -> None:
    """A line for the host's progress bar, which knows this form."""
    if total and sys.stderr is not None:
        sys.stderr.write("envlock-progress %d %d\n" % (min(done, total), total))
        sys.stderr.flush()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _hash_file(path: str, names: set[str], buffer: memoryview, done: list[int]) -> set[str] | None:
    """hashlib and reading release the interpreter's lock, so threads use all cores."""
    hashes = [hashlib.new(name) for name in sorted(names)]
    try:
        with open(path, "rb", buffering=0) as file:
            while True:
                size = file.readinto(buffer)
                if not size:
                    break
                for each in hashes:
                    each.update(buffer[:size])
                done[0] += size  # racy between threads, and good enough for a progress bar
    except OSError:
        return None
    return {
        "%s=%s" % (each.name, base64.urlsafe_b64encode(each.digest()).decode("ascii").rstrip("="))
        for each in hashes
    }
