"""System, toolkit, limits: what the machine and its container grant, read from files."""

from __future__ import annotations

import glob
import json
import os
import re

import observe_common
import observe_elf

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown
NOT_LINUX = "read on Linux only"


# --- system -----------------------------------------------------------------------------------


def system_facts(libstdcxx: tuple[str, str] | None) -> dict[str, object]:
    """``libstdcxx`` is (path, path class) of the one that would be loaded, or None."""
    system, kernel, arch = names_of_system()
    guarded = observe_common.guarded
    cpuinfo = observe_common.read_text("/proc/cpuinfo", 1 << 14) or ""
    return {
        "os": system,
        "distribution": guarded(_distribution),
        "kernel": kernel,
        "arch": arch,
        "glibc": guarded(_glibc),
        "glibcxx": guarded(_glibcxx, libstdcxx),
        "libstdcxx": libstdcxx[1] if libstdcxx else _linux(ABSENT),
        "wsl": "microsoft" in kernel.lower(),
        "cpu": guarded(_cpu, cpuinfo),
        "cpu_capability": guarded(_cpu_capability, cpuinfo, arch),
        "cores": guarded(_cores),
        "memory_bytes": guarded(_memory),
        "container": guarded(_container),
        "container_toolkit": guarded(_container_toolkit),
    }


def names_of_system() -> tuple[str, str, str]:
    """(system, release, machine); the host name beside them is never read."""
    if hasattr(os, "uname"):  # platform.uname starts a program on Python 3.8
        names = os.uname()
        return names.sysname.lower(), names.release, names.machine
    import platform

    return platform.system().lower(), platform.release(), platform.machine()


def _linux(fact: object) -> object:
    return fact if observe_common.LINUX else unknown(NOT_LINUX)


def _distribution() -> object:
    if not observe_common.LINUX:
        import platform

        mac = platform.mac_ver()[0]
        return "macos " + mac if mac else "%s %s" % (platform.system(), platform.version())
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = observe_common.read_text(path, 1 << 16)
        if text is not None:
            pairs = re.findall(r"^(ID|VERSION_ID)=[\"']?([^\"'\n]*)", text, re.MULTILINE)
            fields = dict(pairs)
            for key in fields:
                if [found for found, _ in pairs].count(key) > 1:
                    said = "%s: duplicate %s: the last one counts, as in a shell"
                    observe_common.notes.append(said % (path, key))
            name = " ".join(fields[k] for k in ("ID", "VERSION_ID") if fields.get(k))
            return observe_common.text_fact(name) if name else unknown("os-release has no ID")
    return unknown("no os-release")


def _glibc() -> object:
    if not observe_common.LINUX:
        return ABSENT
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        text = ""
    return text.split()[-1] if text.startswith("glibc") else ABSENT


def _glibcxx(libstdcxx: tuple[str, str] | None) -> object:
    if libstdcxx is None:
        return _linux(ABSENT)
    names = observe_elf.string_table(observe_elf.read_elf(libstdcxx[0]))
    versions = re.findall(rb"GLIBCXX_(\d+(?:\.\d+)+)\0", names)
    numbers = [tuple(int(part) for part in version.split(b".")) for version in versions]
    return ".".join(str(part) for part in max(numbers))


def _cpu(cpuinfo: str) -> object:
    if not observe_common.LINUX:
        import platform

        return platform.processor() or unknown("the system does not tell")
    found = re.search(r"^(?:model name|Model)\s*: *(.+?) *$", cpuinfo, re.MULTILINE)
    return found.group(1) if found else unknown("/proc/cpuinfo does not name it")


def _cpu_capability(cpuinfo: str, machine: str) -> object:
    """The kernel set that torch would choose from what the CPU supports."""
    if not observe_common.LINUX:
        return "NEON" if machine == "arm64" else unknown(NOT_LINUX)
    found = re.search(r"^(?:flags|Features)\s*: *(.+)$", cpuinfo, re.MULTILINE)
    if not found:
        return unknown("/proc/cpuinfo lists no flags")
    flags = set(found.group(1).split())
    if machine in ("aarch64", "arm64"):
        return "NEON" if "asimd" in flags else "default"
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"} <= flags:
        return "AVX512"
    return "AVX2" if {"avx2", "fma"} <= flags else "default"


def _cores() -> object:
    """Those this process may run on: fewer than the machine has, under a CPU set."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or unknown("the system does not tell")


def _memory() -> object:
    text = observe_common.read_text("/proc/meminfo", 4096)
    if text is not None:
        return int(re.search(r"^MemTotal:\s*(\d+) kB", text, re.MULTILINE).group(1)) * 1024
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return unknown(NOT_LINUX)


def _container() -> object:
    if not observe_common.LINUX:
        return ABSENT
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.isdir("/.singularity.d"):
        return "apptainer"
    groups = observe_common.read_text("/proc/self/cgroup", 1 << 14) or ""
    for word in ("kubepods", "docker", "libpod", "containerd", "lxc"):
        if word in groups:
            return {"kubepods": "kubernetes", "libpod": "podman"}.get(word, word)
    return ABSENT


def _container_toolkit() -> object:
    """NVIDIA's, without which no container of this machine's engine sees a GPU."""
    engines = ("docker", "podman", "containerd", "nerdctl")
    if not any(observe_common.find_program(name) for name in engines):
        return unknown("no container engine here")
    program = observe_common.find_program("nvidia-ctk")
    if program is None:
        return ABSENT
    text = observe_common.program_output(observe_common.start_program([program, "--version"]))
    found = re.search(r"version (\d+(?:\.\d+)+)", text or "")
    return found.group(1) if found else unknown("nvidia-ctk does not tell its version")


# --- toolkit ----------------------------------------------------------------------------------


def start_compiler() -> tuple[str | None, object]:
    """The C compiler that builds extensions, asked for its version while the probe goes on."""
    for name in ("gcc", "cc", "clang"):
        path = observe_common.find_program(name)
        if path:
            argv = [path, "--version" if name == "clang" else "-dumpfullversion"]
            return name, observe_common.start_program(argv)
    return None, None


def toolkit_facts(compiler: tuple[str | None, object]) -> dict[str, object]:
    folder, where = _toolkit_folder()
    system = "/usr/local/cuda"
    facts = {
        "nvcc": ABSENT,
        "nvcc_from": where or ABSENT,
        "system_cuda": _toolkit_version(system, "cuda") if os.path.isdir(system) else ABSENT,
        "ptxas": ABSENT,
        "c_compiler": _compiler(*compiler),
    }
    if folder is not None:
        facts["nvcc"] = _nvcc_version(folder)
        if os.path.isfile(os.path.join(folder, "bin", "ptxas")):
            facts["ptxas"] = facts["nvcc"]
    return facts


def _toolkit_folder() -> tuple[str | None, str | None]:
    """In torch's order: CUDA_HOME or CUDA_PATH, the nvcc on PATH, /usr/local/cuda."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if named:
        has = os.path.isfile(os.path.join(named, "bin", "nvcc"))
        return (named, "CUDA_HOME") if has else (None, None)
    found = observe_common.find_program("nvcc")
    if found:
        return os.path.dirname(os.path.dirname(os.path.realpath(found))), "PATH"
    if os.path.isfile("/usr/local/cuda/bin/nvcc"):
        return "/usr/local/cuda", "default"
    return None, None


def _nvcc_version(folder: str) -> object:
    """From the toolkit's own lists; else nvcc is asked. PATH may lead to a bare nvcc in /usr/bin."""
    version = _toolkit_version(folder, "cuda_nvcc")
    if observe_common.is_value(version):
        return version
    program = os.path.join(folder, "bin", "nvcc")
    text = observe_common.program_output(observe_common.start_program([program, "--version"]))
    found = re.search(r"release [\d.]+, V([\d.]+)", text or "")
    return found.group(1) if found else unknown("nvcc does not tell its version")


def _toolkit_version(folder: str, part: str) -> object:
    text = observe_common.read_text(os.path.join(folder, "version.json"))
    if text is not None:
        try:
            return str(json.loads(text)[part]["version"])
        except (ValueError, KeyError, TypeError):
            pass
    text = observe_common.read_text(os.path.join(folder, "version.txt")) or ""
    found = re.search(r"CUDA Version ([\d.]+)", text)
    if found:
        return found.group(1)
    header = observe_common.read_text(os.path.join(folder, "include", "cuda.h"), 1 << 20) or ""
    found = re.search(r"^#define CUDA_VERSION (\d+)", header, re.MULTILINE)
    if found:
        number = int(found.group(1))
        return "%d.%d" % (number // 1000, number % 1000 // 10)
    return unknown("no version.json, version.txt or cuda.h in it")


def _compiler(name: str | None, child: object) -> object:
    if name is None:
        return ABSENT
    text = observe_common.program_output(child)
    found = re.search(r"\d+(?:\.\d+)+", text or "")
    return "%s %s" % (name, found.group()) if found else unknown("%s does not tell" % name)


# --- limits -----------------------------------------------------------------------------------


def limit_facts() -> dict[str, object]:
    if not observe_common.LINUX:
        return unknown(NOT_LINUX)
    guarded = observe_common.guarded
    return {
        "cgroup_memory_bytes": guarded(cgroup_memory),
        "cpu_quota": guarded(cgroup_cpus),
        "shm_bytes": guarded(_shm),
        "open_files": guarded(_rlimit, "RLIMIT_NOFILE"),
        "locked_memory_bytes": guarded(_rlimit, "RLIMIT_MEMLOCK"),
        "processes": guarded(_rlimit, "RLIMIT_NPROC"),
        "devices": guarded(_devices),
    }


def cgroup_memory(root: str = "/sys/fs/cgroup", groups: str | None = None) -> object:
    """The least limit from this process's group up to the root; absent without one."""
    limits = []
    for folder in cgroup_folders(root, "memory", groups):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = (observe_common.read_text(os.path.join(folder, name), 64) or "").strip()
            # v1 says "no limit" with the largest multiple of a page
            if text.isdigit() and int(text) < 1 << 60:
                limits.append(int(text))
    return min(limits) if limits else ABSENT


def cgroup_cpus(root: str = "/sys/fs/cgroup", groups: str | None = None) -> object:
    quotas = []
    for folder in cgroup_folders(root, "cpu", groups):
        text = observe_common.read_text(os.path.join(folder, "cpu.max"), 64)
        if text is None:  # v1
            parts = [
                observe_common.read_text(os.path.join(folder, "cpu.cfs_%s_us" % name), 64) or ""
                for name in ("quota", "period")
            ]
        else:
            parts = text.split()
        numbers = [part.strip() for part in parts]
        if len(numbers) == 2 and all(n.isdigit() and int(n) > 0 for n in numbers):
            quotas.append(int(numbers[0]) / int(numbers[1]))
    return round(min(quotas), 3) if quotas else ABSENT


def cgroup_folders(root: str, controller: str, groups: str | None = None) -> list[str]:
    """Folders of this process's group and those above, for either version of cgroups.

    In a container of its own namespace the group is the root; in one that shares the host's, the
    path names folders that are not mounted: those are passed over.
    """
    if groups is None:
        groups = observe_common.read_text("/proc/self/cgroup", 1 << 14) or ""
    found = []
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        mount = os.path.join(root, controller) if names else root
        parts = [part for part in path.split("/") if part and part != ".."]
        for length in range(len(parts), -1, -1):
            folder = os.path.join(mount, *parts[:length])
            if os.path.isdir(folder):
                found.append(folder)
    return found


def _shm() -> object:
    if not os.path.isdir("/dev/shm"):  # noqa: S108 - looked at, never written
        return ABSENT
    info = os.statvfs("/dev/shm")  # noqa: S108
    return info.f_frsize * info.f_blocks


def _rlimit(name: str) -> object:
    import resource

    soft = resource.getrlimit(getattr(resource, name))[0]
    return ABSENT if soft == resource.RLIM_INFINITY else soft


def _devices(root: str = "/dev") -> dict[str, str]:
    """Device nodes of GPUs: ``rw``, ``denied``, or ``missing`` for the ones every process needs.

    Render nodes count beside AMD's kfd only: without it they are the screen's business.
    """
    names = ["nvidiactl", "nvidia-uvm", "kfd"]
    names += [os.path.basename(p) for p in glob.glob(os.path.join(root, "nvidia[0-9]*"))]
    if os.path.exists(os.path.join(root, "kfd")):
        names += ["dri/" + os.path.basename(p) for p in glob.glob(root + "/dri/renderD*")]
    return {os.path.basename(name): _access(os.path.join(root, name)) for name in sorted(names)}


def _access(path: str) -> str:
    if not os.path.exists(path):
        return "missing"
    if not os.access(path, os.R_OK | os.W_OK):
        return "denied"
    if path.endswith("nvidiactl"):  # a container's device rules show only when it is opened
        try:
            os.close(os.open(path, os.O_RDWR))
        except PermissionError:
            return "denied"
        except OSError as error:
            return os.strerror(error.errno or 0)
    return "rw"
