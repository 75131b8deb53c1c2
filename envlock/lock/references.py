"""Names of images, by the grammar of references: what FROM and an engine are given."""

from __future__ import annotations

import re

from envlock.errors import InputError
from envlock.lock.strict import shown

_REFERENCE = re.compile(
    r"(?:(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*)(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
    r"(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


def check_reference(reference: str, spot: str) -> str:
    """An image reference by its grammar; raises InputError."""
    if "@" in reference and not re.fullmatch(r"[^@]+@sha256:[0-9a-f]{64}", reference, re.ASCII):
        raise InputError(
            f"{spot}: not a sha256 digest of 64 hexadecimal digits: {shown(reference)}"
        )
    if len(reference) > 512 or not _REFERENCE.fullmatch(reference):
        raise InputError(f"{spot}: not an image reference: {shown(reference)}")
    return reference
