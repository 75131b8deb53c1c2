"""The interpreter with a real CUDA torch that these tests run in. Missing is a failure, not a skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def cuda_torch() -> Path:
    path = os.environ.get("ENVLOCK_TEST_CUDA_TORCH_PYTHON")
    if not path:
        pytest.fail("ENVLOCK_TEST_CUDA_TORCH_PYTHON must name an interpreter with a CUDA torch")
    return Path(path)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
