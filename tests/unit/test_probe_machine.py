"""Limits, toolkit and system facts, from folders that look like those of a machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.probes import probe_module

machine = probe_module("observe_machine")
ABSENT = machine.ABSENT


def tree(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_cgroup_v2_takes_the_least_limit_on_the_way_up(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "job/step/memory.max": "8589934592\n",
            "job/memory.max": "4294967296\n",
            "job/step/cpu.max": "max 100000\n",
            "job/cpu.max": "250000 100000\n",
        },
    )
    groups = "0::/job/step\n"
    assert machine.cgroup_memory(root, groups) == 4294967296
    assert machine.cgroup_cpus(root, groups) == 2.5


def test_cgroup_v2_without_limits(tmp_path: Path) -> None:
    root = tree(tmp_path, {"memory.max": "max\n", "cpu.max": "max 100000\n"})
    assert machine.cgroup_memory(root, "0::/\n") == ABSENT
    assert machine.cgroup_cpus(root, "0::/\n") == ABSENT


def test_cgroup_v1(tmp_path: Path) -> None:
    """In a container the host's path is not mounted: the limits are in the root of the mount."""
    root = tree(
        tmp_path,
        {
            "memory/memory.limit_in_bytes": "2147483648\n",
            "cpu/cpu.cfs_quota_us": "150000\n",
            "cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    groups = "5:cpu,cpuacct:/docker/0123\n4:memory:/docker/0123\n"
    assert machine.cgroup_memory(root, groups) == 2147483648
    assert machine.cgroup_cpus(root, groups) == 1.5


def test_cgroup_v1_without_limits(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "cpu/cpu.cfs_quota_us": "-1\n",
            "cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    groups = "5:cpu,cpuacct:/\n4:memory:/\n"
    assert machine.cgroup_memory(root, groups) == ABSENT
    assert machine.cgroup_cpus(root, groups) == ABSENT


@pytest.mark.parametrize(
    ("flags", "arch", "capability"),
    [
        ("fpu avx avx2 fma avx512f avx512bw avx512dq avx512vl", "x86_64", "AVX512"),
        ("fpu avx avx2 fma avx512f avx512bw", "x86_64", "AVX2"),
        ("fpu avx avx2", "x86_64", "default"),
        ("fp asimd sve", "aarch64", "NEON"),
    ],
)
def test_cpu_capability(flags: str, arch: str, capability: str) -> None:
    name = "Features" if arch == "aarch64" else "flags"
    assert machine._cpu_capability(f"{name}\t\t: {flags}\n", arch) == capability


def test_cpu_capability_without_flags_is_unknown() -> None:
    assert "unknown" in machine._cpu_capability("", "x86_64")


def toolkit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], **variables: str
) -> dict[str, object]:
    """The facts with CUDA_HOME at a folder that holds these files and an nvcc."""
    tree(folder, {"bin/nvcc": "", **files})
    (folder / "bin/nvcc").chmod(0o755)
    monkeypatch.setattr(machine.os, "environ", {"PATH": "", **variables})
    facts: dict[str, object] = machine.toolkit_facts((None, None))
    return facts


def test_nvcc_of_cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = {"cuda": {"version": "12.4.1"}, "cuda_nvcc": {"version": "12.4.131"}}
    facts = toolkit(
        tmp_path,
        monkeypatch,
        {"version.json": json.dumps(listing), "bin/ptxas": ""},
        CUDA_HOME=str(tmp_path),
    )
    assert facts["nvcc"] == "12.4.131"
    assert facts["nvcc_from"] == "CUDA_HOME"
    assert facts["ptxas"] == "12.4.131"
    assert facts["c_compiler"] == ABSENT


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"version.txt": "CUDA Version 10.2.89\n"}, "10.2.89"),
        ({"include/cuda.h": "x\n#define CUDA_VERSION 12080\n"}, "12.8"),
        ({"version.json": "{", "version.txt": "CUDA Version 11.0.1"}, "11.0.1"),
    ],
)
def test_older_toolkits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], version: str
) -> None:
    assert toolkit(tmp_path, monkeypatch, files, CUDA_PATH=str(tmp_path))["nvcc"] == version


def test_nvcc_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"version.txt": "CUDA Version 11.8.89\n"}
    facts = toolkit(tmp_path, monkeypatch, files, PATH=str(tmp_path / "bin"))
    assert (facts["nvcc"], facts["nvcc_from"], facts["ptxas"]) == ("11.8.89", "PATH", ABSENT)


def test_cuda_home_without_nvcc_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would take CUDA_HOME and fail; the nvcc on PATH would not be used."""
    facts = toolkit(
        tmp_path, monkeypatch, {}, CUDA_HOME=str(tmp_path / "x"), PATH=str(tmp_path / "bin")
    )
    assert facts["nvcc"] == ABSENT


def test_os_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str, limit: int = 0) -> str | None:
        return 'NAME="x"\nID=ubuntu\nVERSION_ID="22.04"\n' if path == "/etc/os-release" else None

    monkeypatch.setattr(machine.observe_common, "read_text", read)
    assert machine._distribution() == "ubuntu 22.04"
    monkeypatch.setattr(machine.observe_common, "read_text", lambda *_: "ID=arch\n")
    assert machine._distribution() == "arch"
    monkeypatch.setattr(machine.observe_common, "read_text", lambda *_: None)
    assert machine._distribution() == {"unknown": "no os-release"}


def test_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A render node that nobody may open is no fault on a machine without AMD's kfd."""
    root = tree(tmp_path, {"nvidia0": "", "nvidiactl": "", "dri/renderD128": ""})
    monkeypatch.setattr(machine.os, "access", lambda path, _: not path.endswith("nvidia0"))
    assert machine._devices(root) == {
        "kfd": "missing",
        "nvidia-uvm": "missing",
        "nvidia0": "denied",
        "nvidiactl": "rw",
    }
    (tmp_path / "kfd").touch()
    assert machine._devices(root)["renderD128"] == "rw"


def test_a_device_that_only_opening_shows_as_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    root = tree(tmp_path, {"nvidiactl": ""})
    monkeypatch.setattr(machine.os, "open", denied)
    assert machine._devices(root)["nvidiactl"] == "denied"


@pytest.mark.parametrize(
    ("text", "fact", "notes"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "debian 12", []),
        ("ID=debian\nID=evil\n", "evil", ["ID"]),
        ("ID=a\nVERSION_ID=1\nVERSION_ID=2\nID=b\nID=c\n", "c 2", ["ID", "VERSION_ID"]),
        ("IDX=a\nXID=b\nID=c\nBUILD_ID=d\n", "c", []),
    ],
)
def test_of_a_name_that_stands_twice_the_last_counts_and_it_is_said(
    text: str, fact: str, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = machine.observe_common
    monkeypatch.setattr(common, "notes", [])
    monkeypatch.setattr(common, "read_text", lambda *_: text)
    assert machine._distribution() == fact
    assert [
        f"duplicate {name}:" in said for name, said in zip(notes, common.notes, strict=True)
    ] == [True for _ in notes]
