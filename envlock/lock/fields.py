"""Kinds of values that several models share."""

from __future__ import annotations

from typing import Annotated, Literal

from envlock.lock.shape import Length, Matches, Within

Text = Annotated[str, Length(2048)]
"""Free text from a machine. Never rendered; neutralised by each report format."""
Bytes = Annotated[int, Within(0, 2**63)]
Count = Annotated[int, Within(0, 2**31)]
Digest = Annotated[str, Matches("sha256:[0-9a-f]{64}")]

# Where a file that is loaded comes from. Paths themselves are not recorded: they name people.
PathClass = Literal[
    "wheel",  # inside a distribution of the environment
    "user-site",  # inside ~/.local
    "pythonpath",  # from PYTHONPATH
    "conda",  # the lib folder of a conda environment
    "ld-library-path",
    "ld-preload",
    "cuda-home",  # a CUDA toolkit folder such as /usr/local/cuda
    "system",  # the dynamic loader's cache or its default folders
    "wsl",  # /usr/lib/wsl/lib
    "source",  # a source checkout
    "other",
]
