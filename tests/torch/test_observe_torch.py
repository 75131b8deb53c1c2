"""A real torch, read without importing it, against what torch says of itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from envlock.lock.observation import ABSENT, Observation
from envlock.targets.local import LocalInterpreter
from envlock.targets.observe import observe


@pytest.fixture(scope="module")
def python() -> Path:
    path = os.environ.get("ENVLOCK_TEST_TORCH_PYTHON")
    if not path:
        pytest.fail("ENVLOCK_TEST_TORCH_PYTHON must name an interpreter with torch")
    return Path(path)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def fast(python: Path, cache: None) -> Observation:
    return observe(LocalInterpreter(python))


@pytest.fixture(scope="module")
def deep(python: Path, fast: Observation) -> Observation:
    return observe(LocalInterpreter(python), deep=True)


def ask(python: Path, expression: str) -> Any:
    program = f"import json, torch; print(json.dumps({expression}))"
    done = subprocess.run([python, "-c", program], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_the_build(python: Path, fast: Observation) -> None:
    said = ask(
        python,
        "[torch.__version__, torch.version.git_version, torch.version.cuda,"
        " torch._C._GLIBCXX_USE_CXX11_ABI, torch.version.debug]",
    )
    cuda = fast.find("torch.cuda")
    seen = [fast.find("torch.version"), fast.find("torch.git"), None if cuda == ABSENT else cuda]
    assert [*seen, fast.find("torch.cxx11_abi"), fast.find("torch.debug")] == said
    assert fast.find("torch.path_class") == "wheel"


def test_distributions_have_digests(fast: Observation) -> None:
    packages = fast.find("packages")
    assert {"torch", "numpy"} <= packages.keys()
    assert all(str(package.record).startswith("sha256:") for package in packages.values())
    assert fast.find("contested") == {}
    assert fast.find("broken") == []
    assert fast.find("unmet") == []


def test_cpu_capability_is_the_one_torch_chooses(python: Path, fast: Observation) -> None:
    said = ask(python, "torch.backends.cpu.get_cpu_capability()")
    assert str(fast.find("system.cpu_capability")).upper() == said


def test_deep_facts(python: Path, deep: Observation) -> None:
    assert deep.find("torch.importable") is True
    assert deep.find("torch.num_threads") == ask(python, "torch.get_num_threads()")
    assert deep.find("torch.config")["USE_CUDA"] in {"0", "OFF", "ON", "1"}
    assert deep.find("torch.switches.default_dtype") == "torch.float32"
    assert deep.find("torch.switches.deterministic_algorithms") is False
    assert deep.find("torch.cuda_available") is ask(python, "torch.cuda.is_available()")


def test_deep_adds_and_takes_nothing(fast: Observation, deep: Observation) -> None:
    for section in ("packages", "libraries", "sonames", "python", "env"):
        assert getattr(fast, section) == getattr(deep, section), section


def test_a_later_fast_look_has_the_build_facts(python: Path, deep: Observation) -> None:
    again = observe(LocalInterpreter(python))
    assert again.find("torch.config") == deep.find("torch.config")
    assert again.find("torch.arch_list") == deep.find("torch.arch_list")


def test_a_torch_that_cannot_be_imported(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "raise OSError('/home/user1/secret-project/libtorch.so: undefined symbol: x')"
    )
    (tmp_path / "torch" / "version.py").write_text("__version__ = '9.9'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = observe(LocalInterpreter(python), deep=True)
    why = found.find("torch.importable").unknown
    assert "OSError" in why
    assert "undefined symbol: x" in why
    assert "user1" not in why
    assert found.find("torch.version") == "9.9"


@pytest.mark.parametrize("fault", ["import os; os.kill(os.getpid(), 11)", "raise SystemExit(0)"])
def test_a_torch_that_ends_the_process(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A crash in ``import torch`` is what a capture has to record, not what ends it."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(fault)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = observe(LocalInterpreter(python), deep=True)
    assert "import torch" in found.find("torch.importable").unknown
