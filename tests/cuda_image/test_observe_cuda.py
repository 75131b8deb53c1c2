"""A real CUDA torch without a GPU: the libraries that the probe names are those that get loaded.

The oracle is the kernel: ``/proc/self/maps`` of a process that imported torch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from envlock.lock.observation import Observation
from envlock.targets.local import LocalInterpreter
from envlock.targets.observe import observe

_MAPPED = """
import json, torch
names = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line}
print(json.dumps(sorted(names)))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    path = os.environ.get("ENVLOCK_TEST_CUDA_TORCH_PYTHON")
    if not path:
        pytest.fail("ENVLOCK_TEST_CUDA_TORCH_PYTHON must name an interpreter with a CUDA torch")
    return Path(path)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def mapped(python: Path) -> dict[str, str]:
    """Soname -> path of the CUDA libraries that the kernel mapped for ``import torch``."""
    done = subprocess.run([python, "-c", _MAPPED], capture_output=True, check=True)
    found = {}
    for path in json.loads(done.stdout):
        name = Path(path).name
        if re.match(r"lib(cu|nccl|nvJitLink|nvrtc|nvToolsExt)", name) and ".so" in name:
            found[re.sub(r"-[0-9a-f]{8}(?=\.so)", "", name)] = path
    return found


def package_of(path: str) -> str:
    """``nvidia/cudnn`` of a path below site-packages."""
    return "/".join(path.partition("site-packages/")[2].split("/")[:2])


def test_the_libraries_are_the_mapped_ones(python: Path) -> None:
    found = observe(LocalInterpreter(python)).find("libraries")
    real = mapped(python)
    assert len(real) > 10
    missing = {name for name in real if name not in found}
    assert not missing, "mapped, and not named"
    for name, path in real.items():
        assert "site-packages" in path
        assert found[name].path_class == "wheel", name
        assert str(found[name].owner).startswith(("nvidia-", "torch")), name


def test_versions_come_from_the_owners(python: Path) -> None:
    found = observe(LocalInterpreter(python))
    packages = found.find("packages")
    for soname, library in found.find("libraries").items():
        if str(library.owner).startswith("nvidia-"):
            assert library.version == packages[library.owner].version, soname


def test_what_torch_says_of_its_components(python: Path) -> None:
    program = (
        "import json, torch; print(json.dumps([torch.backends.cudnn.version(),"
        " list(torch.cuda.nccl.version()), torch.cuda.get_arch_list() or"
        " torch._C._cuda_getArchFlags().split()]))"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, check=True)
    cudnn, nccl, architectures = json.loads(done.stdout)
    found = observe(LocalInterpreter(python), deep=True)
    assert found.find("nccl.compiled") == ".".join(map(str, nccl))
    assert found.find("torch.arch_list") == architectures
    major, rest = divmod(cudnn, 1000 if cudnn < 10000 else 10000)
    assert found.find("cudnn.loaded") == f"{major}.{rest // 100}.{rest % 100}"


def shadow(python: Path, tmp_path: Path, name: str) -> tuple[Observation, dict[str, str]]:
    """What is seen and what is mapped with another copy of a library in LD_LIBRARY_PATH."""
    folder = tmp_path / "module" / "lib"
    folder.mkdir(parents=True)
    shutil.copy2(mapped(python)[name], folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(folder))
        return observe(LocalInterpreter(python)), mapped(python)


@pytest.mark.parametrize("name", ["libcudnn.so.8", "libnvJitLink.so.12"])
def test_a_shadowed_library(python: Path, tmp_path: Path, name: str) -> None:
    """torch 2.3's wheels: RPATH protects cuDNN, and RUNPATH does not protect nvJitLink.

    Whichever it is, the probe says what the kernel did.
    """
    found, real = shadow(python, tmp_path, name)
    won = str(tmp_path) in real[name]
    library = found.find("libraries")[name]
    assert (library.path_class == "ld-library-path") == won
    others = [copy.path_class for copy in library.shadowed]
    assert others == (["wheel"] if won else ["ld-library-path"])


def call(python: Path, tmp_path: Path, source: str, name: str) -> Any:
    """The library ``name`` in LD_LIBRARY_PATH is exchanged for one compiled from ``source``."""
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "x.c").write_text(source)
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name)]
    subprocess.run([*command, str(folder / "x.c")], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(folder / name))
        return observe(LocalInterpreter(python)).find("libraries")[name]


def test_a_copy_without_an_owner_is_asked_for_its_version(python: Path, tmp_path: Path) -> None:
    source = "unsigned long cudnnGetVersion(void) { return 8005; }"
    found = call(python, tmp_path, source, "libcudnn.so.8")
    assert (found.path_class, found.version) == ("ld-preload", "8.0.5")


def test_a_copy_that_crashes_when_asked(python: Path, tmp_path: Path) -> None:
    source = "unsigned long cudnnGetVersion(void) { return *(volatile long *)0; }"
    found = call(python, tmp_path, source, "libcudnn.so.8")
    assert "crashed with signal 11" in found.version.unknown
