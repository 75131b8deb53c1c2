"""The interpreter with a real torch that these tests run in. Missing is a failure, not a skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def torch_python() -> Path:
    path = os.environ.get("ENVLOCK_TEST_TORCH_PYTHON")
    if not path:
        pytest.fail("set ENVLOCK_TEST_TORCH_PYTHON to an interpreter that has torch")
    return Path(path)
