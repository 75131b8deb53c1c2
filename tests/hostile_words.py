"""Names of the shared inputs' model, in envlock's own: where a message speaks of our fields.

The inputs know a lock with ``files``, ``labels``, ``gpu.devices`` and one ``url`` a package. Ours is
PEP 751 with one table; each difference is one line here.
"""

from __future__ import annotations

import re

_OURS = (
    (r"packages\[0\]\.url", "packages[0].wheels[0].url"),
    (r"packages\[0\]\.hashes", "packages[0].wheels[0].hashes"),
    (r"packages\[0\]\.vcs\.ref", "packages[0].vcs.commit-id"),
    (r"env\.(\w+)", r"tool.envlock.image.env.\1"),
    (r"env", "tool.envlock.image.env"),
    (r"files\[0\]\.path", "packages[0].wheels[0].path"),
    (r"reserved", "file name"),  # only names of wheels are taken, so no name needs reserving
    (r"gpu\.devices\[0\]\.name", "gpus[0].name"),
    (r"label name", "unknown key"),  # a lock has no labels at all
    (r"image", "image"),
)


def our_word(word: str) -> str:
    for pattern, ours in _OURS:
        if re.fullmatch(pattern, word):
            return re.sub(pattern, ours, word)
    return word


def missing_words(words: list[str], message: str) -> list[str]:
    """Of ``words``, in our names, those that a message does not hold, in any case."""
    lower = message.lower()
    return [ours for ours in map(our_word, words) if ours.lower() not in lower]
