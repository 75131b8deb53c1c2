"""torch read as text, its CUDA libraries as ld.so would map them, and what comes from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.elves import X86_64, write_cache, write_elf
from tests.unit.probes import probe_module

common = probe_module("observe_common")
elf = probe_module("observe_elf")
packages = probe_module("observe_packages")
libraries = probe_module("observe_libraries")
extensions = probe_module("observe_extensions")
ABSENT = common.ABSENT


# --- version.py ---------------------------------------------------------------------------------


def torch_from(tmp_path: Path, text: str) -> dict[str, Any]:
    (tmp_path / "version.py").write_text(text)
    found: dict[str, Any] = libraries.torch_facts(str(tmp_path), "wheel")
    return found


def test_a_cuda_build(tmp_path: Path) -> None:
    found = torch_from(
        tmp_path,
        "from typing import Optional\n\n__all__ = ['__version__', 'cuda']\n"
        "__version__ = '2.3.0+cu121'\ndebug = False\ncuda: Optional[str] = '12.1'\n"
        "git_version = '97ff'\nhip: Optional[str] = None\n",
    )
    assert found["version"] == "2.3.0+cu121"
    assert (found["release"], found["local"], found["build"]) == ("2.3.0", "cu121", "cuda")
    assert (found["cuda"], found["hip"], found["debug"]) == ("12.1", ABSENT, False)
    assert found["git"] == "97ff"


@pytest.mark.parametrize(
    ("text", "build", "local"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda = None\nhip = None\n", "cpu", "cpu"),
        ("__version__ = '2.3.0'\ncuda = '12.1'\nhip = None\n", "cuda", ABSENT),
        ('__version__ = "2.3.0+rocm6.0"\ncuda = None\nhip = "6.0.1"\n', "rocm", "rocm6.0"),
        ("__version__ = '2.8.0+xpu'\ncuda = None\nhip = None\nxpu = '2025'\n", "xpu", "xpu"),
    ],
)
def test_other_builds(tmp_path: Path, text: str, build: str, local: Any) -> None:
    found = torch_from(tmp_path, text)
    assert (found["build"], found["local"]) == (build, local)


def test_a_version_file_that_says_nothing(tmp_path: Path) -> None:
    found = torch_from(tmp_path, "from ._version import *\n__version__ = compute()\n")
    assert all(
        "unknown" in found[name] for name in ("version", "release", "local", "cuda", "build", "git")
    )


def test_no_version_file(tmp_path: Path) -> None:
    assert "unknown" in libraries.torch_facts(str(tmp_path), "wheel")["version"]


def test_cxx11_abi(tmp_path: Path) -> None:
    assert "unknown" in libraries._cxx11_abi(str(tmp_path))
    symbol = "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringE"
    write_elf(tmp_path / "lib" / "libc10.so", symbols=[symbol])
    assert libraries._cxx11_abi(str(tmp_path)) is True
    write_elf(tmp_path / "lib" / "libc10.so", symbols=["_ZN3c105ErrorC1ESs"])
    assert libraries._cxx11_abi(str(tmp_path)) is False
    config = tmp_path / "share/cmake/Torch/TorchConfig.cmake"
    config.parent.mkdir(parents=True)
    config.write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")')
    assert libraries._cxx11_abi(str(tmp_path)) is True


# --- the CUDA libraries -------------------------------------------------------------------------

CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torch with its cuDNN from a wheel, found by RUNPATH, and a program that loads it."""
    folder = tmp_path / "site-packages"
    lib = folder / "torch" / "lib"
    write_elf(lib / "libtorch_global_deps.so", needed=["libcudnn.so.9"], runpath=WHEEL_PATHS)
    write_elf(folder / "torch" / "_C.so", needed=["libtorch_cuda.so"], runpath="$ORIGIN/lib")
    write_elf(lib / "libtorch_cuda.so", needed=["libcudnn.so.9"], runpath=WHEEL_PATHS)
    record(folder, "nvidia-cudnn-cu12", "9.1.0.70", write_elf(folder / CUDNN))
    record(folder, "torch", "2.4.0", *lib.iterdir(), folder / "torch" / "_C.so")
    program = write_elf(tmp_path / "python")
    monkeypatch.setattr(libraries.sys, "executable", str(program))
    monkeypatch.setattr(libraries.sys, "path", [str(folder)])
    monkeypatch.setattr(libraries.os, "environ", {})
    return folder


WHEEL_PATHS = "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN"


def record(site: Path, name: str, version: str, *files: Path) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n\n")
    lines = [f"{f.relative_to(site)},sha256={name},{f.stat().st_size}" for f in files]
    (folder / "RECORD").write_text("\n".join(lines))


def machine(site: Path, **environ: str) -> Any:
    cache = write_cache(site.parent / "cache", {})
    found = elf.Search((2, X86_64), environ, str(cache))
    found.default = [str(site.parent / "usr")]
    return libraries.Machine(packages.scan([(str(site), "wheel")]), found)


def table_of(site: Path, **environ: str) -> tuple[dict[str, Any], dict[str, str]]:
    where = machine(site, **environ)
    loaded = libraries.load_torch(str(site / "torch"), where)
    found: tuple[dict[str, Any], dict[str, str]] = libraries.cuda_libraries(loaded, where)
    return found


def test_from_the_wheel(site: Path) -> None:
    table, to_call = table_of(site)
    assert table == {
        "libcudnn.so.9": {
            "path_class": "wheel",
            "owner": "nvidia-cudnn-cu12",
            "version": "9.1.0.70",
            "shadowed": [],
        }
    }
    assert to_call == {}
    assert libraries.component(table, r"libcudnn\.so", 3) == {
        "loaded": "9.1.0",
        "path_class": "wheel",
    }
    assert libraries.component(table, r"libnccl\.so") == ABSENT


def test_shadowed_through_ld_library_path(site: Path, tmp_path: Path) -> None:
    """The classic cluster module: another cuDNN stands before the wheel's."""
    real = write_elf(tmp_path / "cudnn" / "libcudnn.so.9.0.0")
    (tmp_path / "cudnn" / "libcudnn.so.9").symlink_to(real)
    table, _ = table_of(site, LD_LIBRARY_PATH=str(tmp_path / "cudnn"))
    found = table["libcudnn.so.9"]
    assert (found["path_class"], found["version"]) == ("ld-library-path", "9.0.0")
    assert "unknown" in found["owner"]
    assert found["shadowed"] == [
        {"path_class": "wheel", "owner": "nvidia-cudnn-cu12", "version": "9.1.0.70"}
    ]


def test_ld_library_path_back_into_the_wheel_is_the_wheel(site: Path) -> None:
    table, _ = table_of(site, LD_LIBRARY_PATH=str((site / CUDNN).parent))
    assert table["libcudnn.so.9"]["path_class"] == "wheel"
    assert table["libcudnn.so.9"]["shadowed"] == []


def test_a_copy_in_the_system_loses_and_is_named(site: Path, tmp_path: Path) -> None:
    write_elf(tmp_path / "usr" / "libcudnn.so.9")
    table, _ = table_of(site)
    assert table["libcudnn.so.9"]["path_class"] == "wheel"
    assert [copy["path_class"] for copy in table["libcudnn.so.9"]["shadowed"]] == ["system"]


def test_preloaded(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_elf(tmp_path / "mine" / "libcudnn.so.9")
    monkeypatch.setattr(libraries.os, "environ", {"LD_PRELOAD": str(path)})
    table, _ = table_of(site)
    assert table["libcudnn.so.9"]["path_class"] == "ld-preload"


def test_an_exchanged_file_is_asked_for_its_version(site: Path) -> None:
    """RECORD says 9.1.0.70, but the file is not the one it speaks of."""
    write_elf(site / CUDNN, symbols=["another build"])
    table, to_call = table_of(site)
    assert "unknown" in table["libcudnn.so.9"]["version"]
    assert to_call == {"libcudnn.so.9": str(site / CUDNN)}


def test_not_found_by_the_loader_but_by_torch(site: Path) -> None:
    """torch looks for nvidia/*/lib on sys.path when the loader fails."""
    for name in ("libtorch_global_deps.so", "libtorch_cuda.so"):
        write_elf(site / "torch" / "lib" / name, needed=["libcudnn.so.9"])
    table, _ = table_of(site)
    assert table["libcudnn.so.9"]["path_class"] == "wheel"


def test_not_found_at_all(site: Path) -> None:
    (site / CUDNN).unlink()
    table, to_call = table_of(site)
    assert table["libcudnn.so.9"]["path_class"] == ABSENT
    assert to_call == {}


def test_parts_of_cudnn_are_opened_by_name(site: Path) -> None:
    part = write_elf(site / "nvidia/cudnn/lib/libcudnn_ops.so.9")
    record(site, "nvidia-cudnn-cu12", "9.1.0.70", site / CUDNN, part)
    write_elf(site / CUDNN, runpath="$ORIGIN")
    record(site, "nvidia-cudnn-cu12", "9.1.0.70", site / CUDNN, part)
    table, _ = table_of(site)
    assert table["libcudnn_ops.so.9"]["version"] == "9.1.0.70"


def test_the_hash_in_the_name_of_a_vendored_copy_is_not_its_soname(site: Path) -> None:
    lib = site / "torch" / "lib"
    name = "libcudart-d0da41ae.so.11.0"
    copy = write_elf(lib / name, soname=name)
    write_elf(lib / "libtorch_cuda.so", needed=[name], runpath="$ORIGIN")
    record(site, "torch", "2.4.0", copy)
    table, to_call = table_of(site)
    assert table["libcudart.so.11.0"]["owner"] == "torch"
    assert "unknown" in table["libcudart.so.11.0"]["version"], "all of CUDA 11 has this soname"
    assert to_call == {"libcudart.so.11.0": str(copy)}


@pytest.mark.parametrize(
    ("number", "version"),
    [(8902, "8.9.2"), (8500, "8.5.0"), (90100, "9.1.0"), (2708, "2.7.8"), (22005, "2.20.5")],
)
def test_packed_versions(number: int, version: str) -> None:
    assert libraries.packed_version(number) == version


# --- from outside the environment ---------------------------------------------------------------


def test_sonames_from_outside(site: Path, tmp_path: Path) -> None:
    write_elf(tmp_path / "usr" / "libGL.so.1")
    module = write_elf(
        site / "cv2" / "cv2.abi3.so",
        needed=["libGL.so.1", "libgone.so.2", "libown.so.1", "libc.so.6", "ld-linux-x86-64.so.2"],
    )
    own = write_elf(site / "cv2.libs" / "libown.so.1")
    record(site, "opencv-python", "4.9", module, own)
    found = extensions.system_sonames(extensions.Extensions(machine(site)))
    assert found.keys() == {"libGL.so.1", "libgone.so.2"}
    assert found["libGL.so.1"]["needed_by"] == ["opencv-python"]
    assert found["libGL.so.1"]["path_class"] == "system"
    assert found["libgone.so.2"]["path_class"] == ABSENT


def test_what_is_loaded_on_demand_is_told_from_what_fails_at_import(site: Path) -> None:
    """As of nvidia-nvshmem-cu13 3.4 and torchaudio 2.3."""
    nvshmem, torio = site / "nvidia" / "nvshmem" / "lib", site / "torio" / "lib"
    files = [
        write_elf(nvshmem / "nvshmem_transport_ucx.so.6", needed=["libucp.so.0"]),
        write_elf(nvshmem / "libnvshmem_host.so.3", needed=["libgone.so.1"]),
        write_elf(site / "torch" / "lib" / "libtorch_cuda.so", needed=["libnvshmem_host.so.3"]),
        write_elf(torio / "libtorio_ffmpeg4.so", needed=["libavutil.so.56", "libtwin.so.1"]),
        write_elf(torio / "libtorio_ffmpeg5.so", needed=["libavutil.so.57", "libtwin.so.1"]),
    ]
    record(site, "torch", "2.12.0", *files)
    found = extensions.system_sonames(extensions.Extensions(machine(site)))
    on_demand = {soname for soname, fact in found.items() if fact.get("on_demand")}
    assert on_demand == {"libucp.so.0", "libavutil.so.56", "libavutil.so.57"}
    assert found.keys() - on_demand == {"libgone.so.1", "libtwin.so.1"}


def test_what_conda_brings_is_inside_the_environment(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conda's python has an RPATH, which counts for everything that it loads."""
    prefix = tmp_path / "conda"
    (prefix / "conda-meta").mkdir(parents=True)
    program = write_elf(prefix / "bin" / "python", rpath="$ORIGIN/../lib")
    inside = write_elf(prefix / "lib" / "libstdc++.so.6")
    write_elf(tmp_path / "usr" / "libstdc++.so.6")
    write_elf(tmp_path / "usr" / "libGL.so.1")
    (tmp_path / "link").symlink_to(program)
    monkeypatch.setattr(libraries.sys, "executable", str(tmp_path / "link"))
    monkeypatch.setattr(libraries.sys, "prefix", str(prefix))
    module = write_elf(site / "x.so", needed=["libstdc++.so.6", "libGL.so.1"])
    record(site, "x", "1", module)
    where = machine(site)
    assert where.find("libstdc++.so.6") == (str(inside), "rpath")
    assert extensions.system_sonames(extensions.Extensions(where)).keys() == {"libGL.so.1"}


def test_os_packages(tmp_path: Path) -> None:
    """With /lib a link to /usr/lib, dpkg's lists may have either form."""
    info = tmp_path / "info"
    info.mkdir()
    (info / "libgl1:amd64.list").write_text("/.\n/usr/lib/x86_64-linux-gnu/libGL.so.1\n")
    (info / "libgcc-s1:amd64.list").write_text("/.\n/lib/x86_64-linux-gnu/libgcc_s.so.1\n")
    (info / "other.list").write_text("/usr/lib/x86_64-linux-gnu/libGL.so.1.0\n")
    paths = [
        "/lib/x86_64-linux-gnu/libGL.so.1",
        "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    ]
    assert extensions.os_packages(paths, str(info)) == dict(
        zip(paths, ["libgl1", "libgcc-s1", ABSENT], strict=True)
    )


def test_no_dpkg(tmp_path: Path) -> None:
    found = extensions.os_packages(["/lib64/libGL.so.1"], str(tmp_path / "missing"))
    assert "no dpkg" in found["/lib64/libGL.so.1"]["unknown"]


@pytest.mark.parametrize(
    ("version", "requires", "expected"),
    [
        (
            "2.5.9.post1+cu122torch2.3cxx11abifalse",
            "torch",
            {"torch": "2.3", "cuda": "12.2", "cxx11_abi": False},
        ),
        ("2.1.2+pt23cu121", "", {"torch": "2.3", "cuda": "12.1"}),
        ("0.18.0+cu118", "torch (==2.3.0)", {"torch": "2.3.0", "cuda": "11.8"}),
        ("0.18.0+cpu", "torch==2.3.0", {"torch": "2.3.0", "cuda": ABSENT}),
    ],
)
def test_built_for(site: Path, version: str, requires: str, expected: dict[str, Any]) -> None:
    module = write_elf(site / "ext" / "_C.so", needed=["libc10.so", "libtorch_cuda.so"])
    record(site, "ext", version, module)
    metadata = site / f"ext-{version}.dist-info" / "METADATA"
    metadata.write_text(f"Name: ext\nVersion: {version}\nRequires-Dist: {requires}\n\n")
    found = built_for(site)["ext"]
    assert {name: found[name] for name in expected} == expected


def built_for(site: Path) -> dict[str, Any]:
    where = machine(site)
    observed: dict[str, Any] = {"packages": {name: {} for name in where.packages.dists}}
    extensions.add_built_for(observed, extensions.Extensions(where))
    return {name: entry["built_for"] for name, entry in observed["packages"].items() if entry}


def test_built_for_from_the_files_alone(site: Path) -> None:
    """No note, no local version: that it links to no CUDA library is a fact, its torch is not."""
    module = write_elf(
        site / "ext" / "_C.so", needed=["libc10.so"], symbols=["_ZNSt7__cxx1112basic_stringE"]
    )
    record(site, "ext", "1.0", module)
    found = built_for(site)["ext"]
    assert found["cuda"] == ABSENT
    assert found["cxx11_abi"] is True
    assert "unknown" in found["torch"]


def test_built_for_from_the_note_of_xformers(site: Path) -> None:
    module = write_elf(site / "xformers" / "_C.so", needed=["libtorch_cuda.so"])
    note = site / "xformers" / "cpp_lib.json"
    note.write_text('{"version": {"cuda": 1201, "torch": "2.3.0+cu121"}}')
    record(site, "xformers", "0.0.26", module, note)
    found = built_for(site)["xformers"]
    assert (found["torch"], found["cuda"]) == ("2.3.0+cu121", "12.1")


def test_what_does_not_link_to_torch_has_no_such_fact(site: Path) -> None:
    record(site, "numpy", "2.0", write_elf(site / "numpy" / "core.so", needed=["libc.so.6"]))
    assert built_for(site) == {}
