"""Where a base is looked for: in its own registry, or for Docker Hub in a mirror of it.

An image that came from a mirror is recorded under its true name: the digest says what it is, and
the next machine may have another mirror or none.
"""

from __future__ import annotations

import re

from envlock.errors import InputError, UsageError
from envlock.lock.references import check_reference
from envlock.lock.strict import shown

HUB = "docker.io"


def check_mirror(prefix: str) -> str:
    """A host, perhaps with a port and folders; raises UsageError."""
    host, _, rest = prefix.partition("/")
    try:
        check_reference(f"{prefix}/x", "--base-mirror")
        is_host = bool(re.fullmatch(r"localhost|.*[.:].*", host))
    except InputError:
        is_host = False
    if not is_host or ":" in rest or "@" in prefix:
        raise UsageError(
            f"--base-mirror: not a registry, or a folder in one: {shown(prefix)}",
            hint="write it as mirror.example or mirror.example:5000/docker-hub",
        )
    return prefix


def full_name(reference: str) -> str:
    """``debian:12`` -> ``docker.io/library/debian:12``, as engines read it."""
    host, slash, rest = reference.partition("/")
    if slash and re.search(r"[.:]|^localhost$", host):
        if host not in (HUB, f"index.{HUB}"):
            return reference
        reference = rest
    return f"{HUB}/{reference}" if "/" in reference else f"{HUB}/library/{reference}"


def mirrored(reference: str, mirror: str | None) -> str:
    """Where to look for an image: ``docker.io/library/debian:12`` -> ``MIRROR/library/debian:12``."""
    name = full_name(reference)
    if mirror is None or not name.startswith(f"{HUB}/"):
        return reference
    return f"{mirror}/{name.removeprefix(f'{HUB}/')}"
