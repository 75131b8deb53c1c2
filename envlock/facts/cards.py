"""How much memory a card has: written as a size, or by the name of the card."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envlock.errors import UsageError
from envlock.facts.gpus import product_words
from envlock.facts.tables import rows

_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?(KiB|MiB|GiB|KB|MB|GB)", re.IGNORECASE)
_BYTES = {
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]{0,99}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    name: str
    """For a sentence: ``RTX 4090``, ``a card with 24GiB``."""
    total: int
    """Bytes that CUDA has in all."""
    note: str = ""
    """Where the size comes from, if a name was given."""


def parse_size(text: str) -> int | None:
    """``24GiB`` or ``24 GB`` in bytes; None for what is no size with a unit."""
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else int(float(found.group(1)) * _BYTES[found.group(2).lower()])


def parse_card(text: str) -> Card:
    """A size, or a name such as ``RTX 4090``.

    Raises UsageError for neither, for a card that is not listed, and for a name that several sizes
    share.
    """
    size = parse_size(text)
    if size is not None:
        return Card(name=f"a card with {text.strip()}", total=size)
    if not _NAME.fullmatch(text) or text.strip().isdigit():
        raise UsageError(
            f"{text[:80]!r} is neither a size nor the name of a card",
            hint="write 24GiB, or a name such as 'RTX 4090'",
        )
    wanted = product_words(text)
    fitting = [row for row in rows("gpu_memory") if _fits(wanted, product_words(row["name"]))]
    if len(fitting) > 1:
        names = ", ".join(repr(row["name"]) for row in fitting)
        raise UsageError(f"{text!r} is sold with several sizes", hint=f"write one of {names}")
    if not fitting:
        names = ", ".join(row["name"] for row in rows("gpu_memory"))
        raise UsageError(
            f"the memory of {text[:80]!r} is not known here",
            hint=f"write its size, such as 24GiB; known by name are {names}",
        )
    (row,) = fitting
    note = f"{row['mib']} MiB for CUDA ({row['seen_as']} in a public report)"
    return Card(name=row["name"], total=row["mib"] << 20, note=note)


def _fits(wanted: tuple[str, ...], listed: tuple[str, ...]) -> bool:
    """A size may be left out, and what drivers add (``NVIDIA H100 80GB HBM3``) may be there."""
    plain = tuple(word for word in listed if not re.fullmatch(r"\d+gb", word))
    sizes = {word for word in wanted if re.fullmatch(r"\d+gb", word)}
    if sizes and len(plain) != len(listed) and not sizes & set(listed):
        return False
    added = {"pcie", "sxm", "sxm2", "sxm4", "sxm5", "hbm3", "hbm3e", "gpu", "generation", *sizes}
    return tuple(word for word in wanted if word not in added) == plain
