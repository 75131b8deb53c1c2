"""A real CUDA torch without a GPU: the libraries that the probe names are those that get loaded.

The oracle is the kernel: ``/proc/self/maps`` of a process that imported torch.
"""

from __future__ import annotations

import json
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


pytestmark = pytest.mark.usefixtures("own_cache")


def mapped(cuda_torch: Path) -> dict[str, str]:
    """Soname -> path of the CUDA libraries that the kernel mapped for ``import torch``."""
    done = subprocess.run([cuda_torch, "-c", _MAPPED], capture_output=True, check=True)
    found = {}
    for path in json.loads(done.stdout):
        name = Path(path).name
        if re.match(r"lib(cu|nccl|nvJitLink|nvrtc|nvToolsExt)", name) and ".so" in name:
            found[re.sub(r"-[0-9a-f]{8}(?=\.so)", "", name)] = path
    return found


def package_of(path: str) -> str:
    """``nvidia/cudnn`` of a path below site-packages."""
    return "/".join(path.partition("site-packages/")[2].split("/")[:2])


def test_the_libraries_are_the_mapped_ones(cuda_torch: Path) -> None:
    found = observe(LocalInterpreter(cuda_torch)).find("libraries")
    real = mapped(cuda_torch)
    assert len(real) > 10
    missing = {name for name in real if name not in found}
    assert not missing, "mapped, and not named"
    for name, path in real.items():
        assert "site-packages" in path
        assert found[name].path_class == "wheel", name
        assert str(found[name].owner).startswith(("nvidia-", "torch")), name


def test_versions_come_from_the_owners(cuda_torch: Path) -> None:
    found = observe(LocalInterpreter(cuda_torch))
    packages = found.find("packages")
    for soname, library in found.find("libraries").items():
        if str(library.owner).startswith("nvidia-"):
            assert library.version == packages[library.owner].version, soname


def test_what_torch_says_of_its_components(cuda_torch: Path) -> None:
    program = (
        "import json, torch; print(json.dumps([torch.backends.cudnn.version(),"
        " list(torch.cuda.nccl.version()), torch.cuda.get_arch_list() or"
        " torch._C._cuda_getArchFlags().split()]))"
    )
    done = subprocess.run([cuda_torch, "-c", program], capture_output=True, check=True)
    cudnn, nccl, architectures = json.loads(done.stdout)
    found = observe(LocalInterpreter(cuda_torch), deep=True)
    assert found.find("nccl.compiled") == ".".join(map(str, nccl))
    assert found.find("torch.arch_list") == architectures
    major, rest = divmod(cudnn, 1000 if cudnn < 10000 else 10000)
    assert found.find("cudnn.loaded") == f"{major}.{rest // 100}.{rest % 100}"


def shadow(cuda_torch: Path, tmp_path: Path, name: str) -> tuple[Observation, dict[str, str]]:
    """What is seen and what is mapped with another copy of a library in LD_LIBRARY_PATH."""
    folder = tmp_path / "module" / "lib"
    folder.mkdir(parents=True)
    shutil.copy2(mapped(cuda_torch)[name], folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(folder))
        return observe(LocalInterpreter(cuda_torch)), mapped(cuda_torch)


@pytest.mark.parametrize("name", ["libcudnn.so.8", "libnvJitLink.so.12"])
def test_a_shadowed_library(cuda_torch: Path, tmp_path: Path, name: str) -> None:
    """torch 2.3's wheels: RPATH protects cuDNN, and RUNPATH does not protect nvJitLink.

    Whichever it is, the probe says what the kernel did.
    """
    found, real = shadow(cuda_torch, tmp_path, name)
    won = str(tmp_path) in real[name]
    library = found.find("libraries")[name]
    assert (library.path_class == "ld-library-path") == won
    others = [copy.path_class for copy in library.shadowed]
    assert others == (["wheel"] if won else ["ld-library-path"])


def call(cuda_torch: Path, tmp_path: Path, source: str, name: str) -> Any:
    """The library ``name`` in LD_LIBRARY_PATH is exchanged for one compiled from ``source``."""
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "x.c").write_text(source)
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name)]
    subprocess.run([*command, str(folder / "x.c")], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(folder / name))
        return observe(LocalInterpreter(cuda_torch)).find("libraries")[name]


def test_a_copy_without_an_owner_is_asked_for_its_version(cuda_torch: Path, tmp_path: Path) -> None:
    source = "unsigned long cudnnGetVersion(void) { return 8005; }"
    found = call(cuda_torch, tmp_path, source, "libcudnn.so.8")
    assert (found.path_class, found.version) == ("ld-preload", "8.0.5")


def test_a_copy_that_crashes_when_asked(cuda_torch: Path, tmp_path: Path) -> None:
    source = "unsigned long cudnnGetVersion(void) { return *(volatile long *)0; }"
    found = call(cuda_torch, tmp_path, source, "libcudnn.so.8")
    assert "crashed with signal 11" in found.version.unknown
