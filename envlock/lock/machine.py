"""What was seen of the machine: driver, GPUs, system, limits, and what a long run needs of it."""

from __future__ import annotations

from envlock.lock.fields import Bytes, Count, PathClass, Text
from envlock.lock.shape import NOT_RECORDED, Fact, Model


class Driver(Model):
    version: Fact[Text] = NOT_RECORDED
    """Of the user-mode driver (NVML, else the file name of libcuda)."""
    kernel_module: Fact[Text] = NOT_RECORDED
    open_module: Fact[bool] = NOT_RECORDED
    cuda: Fact[Text] = NOT_RECORDED
    """Newest CUDA release the driver supports, ``12.4``."""
    libcuda: Fact[PathClass] = NOT_RECORDED
    compat: Fact[Text] = NOT_RECORDED
    """Driver version of a forward-compatibility libcuda that the loader finds first."""
    nvml_error: Fact[Text] = NOT_RECORDED
    fabric_manager: Fact[bool] = NOT_RECORDED


class Gpu(Model):
    name: Fact[Text] = NOT_RECORDED
    compute_capability: Fact[Text] = NOT_RECORDED
    """``8.6``, or a gfx name."""
    memory_bytes: Fact[Bytes] = NOT_RECORDED
    mig: Fact[bool] = NOT_RECORDED
    ecc: Fact[bool] = NOT_RECORDED
    ecc_uncorrected: Fact[Count] = NOT_RECORDED
    """Volatile uncorrected errors since the driver was loaded."""
    persistence: Fact[bool] = NOT_RECORDED
    used_bytes: Fact[Bytes] = NOT_RECORDED
    """Memory in use by others; ``doctor`` and ``smoke`` only. The same for the state below."""
    slowed_by: Fact[list[Text]] = NOT_RECORDED
    """NVML's reasons for a clock below the one wanted, ``sw-thermal``; empty: none."""
    sm_clock_mhz: Fact[Count] = NOT_RECORDED
    max_sm_clock_mhz: Fact[Count] = NOT_RECORDED
    power_limit_w: Fact[Count] = NOT_RECORDED
    """The limit in force."""
    default_power_limit_w: Fact[Count] = NOT_RECORDED


class System(Model):
    os: Fact[Text] = NOT_RECORDED
    """``linux``, ``darwin``, ``windows``."""
    distribution: Fact[Text] = NOT_RECORDED
    """``debian 12``."""
    kernel: Fact[Text] = NOT_RECORDED
    arch: Fact[Text] = NOT_RECORDED
    glibc: Fact[Text] = NOT_RECORDED
    glibcxx: Fact[Text] = NOT_RECORDED
    """Newest ``GLIBCXX_`` symbol version of the libstdc++ that would be loaded."""
    libstdcxx: Fact[PathClass] = NOT_RECORDED
    wsl: Fact[bool] = NOT_RECORDED
    cpu: Fact[Text] = NOT_RECORDED
    cpu_capability: Fact[Text] = NOT_RECORDED
    """``AVX512``, ``AVX2``, ``NEON`` or ``default``."""
    cores: Fact[Count] = NOT_RECORDED
    memory_bytes: Fact[Bytes] = NOT_RECORDED
    container: Fact[Text] = NOT_RECORDED
    """``docker``, ``podman``, ``kubernetes``; absent outside containers."""
    container_toolkit: Fact[Text] = NOT_RECORDED
    """Version of the NVIDIA container toolkit on a host with a container engine; absent: an engine
    without it."""


class Limits(Model):
    cgroup_memory_bytes: Fact[Bytes] = NOT_RECORDED
    """absent: no limit."""
    cpu_quota: Fact[float] = NOT_RECORDED
    """Cores that the cgroup grants; absent: no quota."""
    shm_bytes: Fact[Bytes] = NOT_RECORDED
    """Size of /dev/shm."""
    open_files: Fact[Bytes] = NOT_RECORDED
    """Soft limit; absent: unlimited. The same for the next two."""
    locked_memory_bytes: Fact[Bytes] = NOT_RECORDED
    processes: Fact[Bytes] = NOT_RECORDED
    devices: Fact[dict[str, Text]] = NOT_RECORDED
    """Device nodes and whether this user may open them: ``{"nvidiactl": "rw", "kfd": "denied"}``."""


class Place(Model):
    """A folder that a run writes to; figures are those of the file system that holds it."""

    path: Fact[Text] = NOT_RECORDED
    """As a kind, like every path: ``~/.cache``, ``/tmp``."""
    filesystem: Fact[Text] = NOT_RECORDED
    """``ext4``, ``overlay``, ``nfs4``."""
    free_bytes: Fact[Bytes] = NOT_RECORDED
    """For this user; a quota does not show here."""
    total_bytes: Fact[Bytes] = NOT_RECORDED
    free_files: Fact[Bytes] = NOT_RECORDED
    """Inodes; absent where the file system sets no number."""
    writable: Fact[bool] = NOT_RECORDED
    """Whether this user may write there, or create it."""


class CompileCache(Place):
    """Where compiled kernels are kept between runs."""

    named_by: Fact[Text] = NOT_RECORDED
    """The variable that names the folder; absent: the program's own choice."""
    used_bytes: Fact[Bytes] = NOT_RECORDED
    """Size of the files in it; absent: it does not exist yet."""
    counted_all: Fact[bool] = NOT_RECORDED
    """False: the count was ended early, so there is at least that much."""
    limit_bytes: Fact[Bytes] = NOT_RECORDED
    """Where the oldest entries make room; absent: no limit."""


class Preflight(Model):
    """What a long run needs of its machine; ``doctor`` only, never in a lock."""

    places: dict[Text, Fact[Place]] = {}
    """``working``, ``temporary``, ``cache``."""
    caches: dict[Text, Fact[CompileCache]] = {}
    """``inductor``, ``triton``, ``cuda``; absent: switched off."""
