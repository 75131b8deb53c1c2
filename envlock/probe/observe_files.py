"""Hash installed files against RECORD: a patched site-packages file is the classic hidden cause."""

from __future__ import annotations

import base64
import hashlib
import os
import sys

import observe_common
import observe_packages

_ALGORITHMS = ("sha256", "sha384", "sha512")
_CHUNK = 1 << 20
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
    check = {"checked": 0, "altered": {}, "missing": {}}
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
