"""Driver and GPUs through NVML and libcuda that a compiler made up: no GPU is needed here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from envlock.lock.observation import ABSENT, Observation
from envlock.targets.local import LocalInterpreter
from envlock.targets.observe import observe

NVML = r"""
#include <string.h>
#include <stddef.h>
typedef struct { unsigned long long total, free, used; } Memory;
static int device[2];
int nvmlInit_v2(void) { INIT }
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) {
    return code == 18 ? "Driver/library version mismatch" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char *out, unsigned n) { strcpy(out, "550.54.15"); return 0; }
int nvmlSystemGetCudaDriverVersion(int *out) { *out = 12040; return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out) { *out = &device[i]; return 0; }
int nvmlDeviceGetName(void *d, char *out, unsigned n) {
    strcpy(out, d == &device[0] ? "NVIDIA A100-SXM4-40GB" : "NVIDIA GeForce RTX 3090");
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) {
    *major = 8; *minor = d == &device[0] ? 0 : 6; return 0;
}
int nvmlDeviceGetMemoryInfo(void *d, Memory *out) {
    out->total = 42949672960ULL; out->used = 1048576; out->free = out->total - out->used; return 0;
}
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *later) {
    if (d != &device[0]) return 3;
    *now = 1; *later = 1; return 0;
}
int nvmlDeviceGetEccMode(void *d, unsigned *now, unsigned *later) {
    if (d != &device[0]) return 3;
    *now = 1; *later = 1; return 0;
}
int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, unsigned long long *out) {
    if (d != &device[0]) return 3;
    *out = type == 1 && counter == 0 ? 7 : 0; return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *out) {
    *out = d == &device[0] ? 0x44 : 1; return 0;
}
int nvmlDeviceGetClockInfo(void *d, int type, unsigned *out) { *out = type == 1 ? 300 : 9; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *out) { *out = 200000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *d, unsigned *out) { return 3; }
int nvmlDeviceGetUUID(void *d, char *out, unsigned n) {
    strcpy(out, "GPU-00000000-1111-2222-3333-444444444444"); return 0;
}
"""
LIBCUDA = """
int cuInit(unsigned flags) { *(volatile int *)0 = 1; return 0; }
int cuDriverGetVersion(int *out) { *out = 12020; return 0; }
"""


@pytest.fixture
def drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "drivers"
    folder.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def compile_library(folder: Path, name: str, source: str, *, soname: str) -> None:
    path = folder / f"{soname}.c"
    path.write_text(source)
    command = ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", str(folder / name)]
    subprocess.run([*command, str(path)], check=True)
    path.unlink()


def add_nvml(folder: Path, init: str = "return 0;") -> None:
    source = NVML.replace("INIT", init)
    compile_library(folder, "libnvidia-ml.so.1", source, soname="libnvidia-ml.so.1")


def add_libcuda(folder: Path, version: str = "550.54.15") -> None:
    name = f"libcuda.so.{version}"
    compile_library(folder, name, LIBCUDA, soname="libcuda.so.1")
    (folder / "libcuda.so.1").symlink_to(name)


def here(*, preflight: bool = False) -> Observation:
    return observe(LocalInterpreter(Path(sys.executable)), preflight=preflight)


def test_no_driver(drivers: Path) -> None:
    found = here()
    if Path("/proc/driver/nvidia/version").exists():
        pytest.fail("run this tier on a machine without an NVIDIA driver")
    assert found.driver == ABSENT
    assert found.gpus == []
    assert "gpus" in found.exhaustive


def test_two_gpus(drivers: Path) -> None:
    add_nvml(drivers)
    add_libcuda(drivers)
    found = here()
    assert found.find("driver.version") == "550.54.15"
    assert found.find("driver.cuda") == "12.2", "libcuda's own, which compat packages exchange"
    assert found.find("driver.libcuda") == "ld-library-path"
    assert found.find("driver.nvml_error") == ABSENT
    assert found.find("driver.compat") == ABSENT
    assert found.find("gpus.0.name") == "NVIDIA A100-SXM4-40GB"
    assert found.find("gpus.0.compute_capability") == "8.0"
    assert found.find("gpus.0.memory_bytes") == 42949672960
    assert found.find("gpus.0.mig") is True
    assert found.find("gpus.0.ecc") is True
    assert found.find("gpus.0.ecc_uncorrected") == 7
    assert "nvmlDeviceGetPersistenceMode" in found.find("gpus.0.persistence").unknown
    assert found.find("gpus.1.compute_capability") == "8.6"
    assert found.find("gpus.1.mig") == ABSENT, "not supported by this GPU"
    assert found.find("gpus.2") == ABSENT
    assert "GPU-0000" not in str(found.plain())


def test_the_state_of_the_moment_only_when_asked(drivers: Path) -> None:
    add_nvml(drivers)
    quick = here()
    assert quick.find("gpus.0.used_bytes").unknown == "not recorded"
    assert quick.find("gpus.0.slowed_by").unknown == "not recorded"
    found = here(preflight=True)
    assert found.find("gpus.0.used_bytes") == 1048576
    assert found.find("gpus.0.slowed_by") == ["sw-power-cap", "hw-thermal"]
    assert found.find("gpus.1.slowed_by") == []
    assert found.find("gpus.0.sm_clock_mhz") == 300
    assert found.find("gpus.0.power_limit_w") == 200
    assert found.find("gpus.0.default_power_limit_w") == ABSENT, "not supported"
    assert "no nvmlDeviceGetMaxClockInfo" in found.find("gpus.0.max_sm_clock_mhz").unknown


def test_libcuda_of_a_compat_package(drivers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_nvml(drivers)
    compat = drivers / "compat"
    compat.mkdir()
    add_libcuda(compat, "560.35.03")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{compat}:{drivers}")
    found = here()
    assert found.find("driver.compat") == "560.35.03"
    assert found.find("driver.version") == "550.54.15", "NVML speaks for the real driver"


def test_driver_without_nvml(drivers: Path) -> None:
    """A container that was given compute but not utility."""
    add_libcuda(drivers)
    found = here()
    assert found.find("driver.version") == "550.54.15"
    assert "not there" in found.find("driver.nvml_error")
    assert "unknown" in found.plain()["gpus"]


def test_nvml_that_reports_a_mismatch(drivers: Path) -> None:
    add_nvml(drivers, "return 18;")
    add_libcuda(drivers)
    found = here()
    assert found.find("driver.nvml_error") == "Driver/library version mismatch"
    assert "unknown" in found.plain()["gpus"]


@pytest.mark.parametrize(
    ("init", "says"),
    [
        ("return *(volatile int *)0;", "crashed with signal 11"),
        ("for (;;) ;", "did not answer within its time limit"),
    ],
)
def test_an_nvml_that_crashes_or_hangs_costs_its_facts_only(
    drivers: Path, init: str, says: str
) -> None:
    add_nvml(drivers, init)
    add_libcuda(drivers)
    found = here()
    assert says in found.find("driver.nvml_error").unknown
    assert says in found.find("driver.cuda").unknown
    assert found.find("driver.version") == "550.54.15", "from the name of libcuda's file"
    assert found.find("driver.libcuda") == "ld-library-path"
    assert found.find("python.version")
