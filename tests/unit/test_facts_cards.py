"""A card by its size or its name."""

from __future__ import annotations

import pytest

from envlock.errors import UsageError
from envlock.facts.cards import parse_card
from envlock.facts.tables import rows


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 << 30),
        ("24 GB", 24 * 10**9),
        ("23.5gib", 47 << 29),
        ("512MiB", 512 << 20),
        ("RTX 4090", 24084 << 20),
        ("NVIDIA GeForce RTX 4090", 24084 << 20),
        ("NVIDIA H100 80GB HBM3", 79927 << 20),
        ("NVIDIA A100-SXM4-40GB", 40448 << 20),
        ("Tesla T4", 14909 << 20),
        ("l40s", 45486 << 20),
    ],
)
def test_sizes_and_names(text: str, size: int) -> None:
    assert parse_card(text).total == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("24", "neither a size"),
        ("24G\x1b[31m", "neither a size"),
        ("", "neither a size"),
        ("A100", "several sizes"),
        ("RTX 4090 Ti", "not known"),
        ("H100 94GB", "not known"),
        ("L4", "not known"),
        ("RTX", "not known"),
    ],
)
def test_what_is_refused_and_never_guessed(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refusal:
        parse_card(text)
    assert refusal.value.hint


def test_a_size_in_the_table_is_the_one_that_was_seen() -> None:
    for row in rows("gpu_memory"):
        number, unit = row["seen_as"].split()[:2]
        factor = 1024 if unit == "GiB" else 0.98
        assert abs(row["mib"] - float(number) * factor) < 1.0, row
