from __future__ import annotations

import time

import pytest

from envlock.errors import InputError
from envlock.lock.observation import ABSENT, Observation, Unknown
from envlock.targets.texts import Kind, detect, parse_text

WHOLE = """\
Collecting environment information...
PyTorch version: 2.3.0+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.4 LTS (x86_64)
GCC version: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
Clang version: Could not collect
CMake version: version 3.22.1
Libc version: glibc-2.35

Python version: 3.11.9 (main, Apr  6 2024, 17:59:24) [GCC 11.4.0] (64-bit runtime)
Python platform: Linux-6.5.0-35-generic-x86_64-with-glibc2.35
Is CUDA available: True
CUDA runtime version: 12.1.105
CUDA_MODULE_LOADING set to: LAZY
GPU models and configuration:
GPU 0: NVIDIA GeForce RTX 4090
GPU 1: NVIDIA GeForce RTX 3090

Nvidia driver version: 550.54.15
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.7
/usr/lib/x86_64-linux-gnu/libcudnn_ops_infer.so.8.9.7
HIP runtime version: N/A
MIOpen runtime version: N/A
Is XNNPACK available: True
Caching allocator config: {'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}

CPU:
Architecture:                       x86_64
CPU(s):                             32
Model name:                         AMD Ryzen 9 7950X 16-Core Processor
Flags:                              fpu vme sse2 fma avx2 avx512f avx512dq avx512bw avx512vl

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-nccl-cu12==2.20.5
[pip3] torch==2.3.0+cu121
[pip3] triton==2.3.0
[conda] Could not collect
"""

NEW_VLLM = """\
INFO 06-04 19:48:17 [__init__.py:247] Automatically detected platform cuda.
Collecting environment information...
==============================
        System Info
==============================
OS                           : Debian GNU/Linux 12 (bookworm) (x86_64)
GCC version                  : (Debian 12.2.0-14) 12.2.0
Libc version                 : glibc-2.36

==============================
       PyTorch Info
==============================
PyTorch version              : 2.7.0+cu128
Is debug build               : False
CUDA used to build PyTorch   : 12.8
ROCM used to build PyTorch   : N/A

==============================
      Python Environment
==============================
Python version               : 3.12.10 (main, Apr  9 2025, 08:55:05) [GCC 11.4.0] (64-bit runtime)
Python platform              : Linux-6.6.72+-x86_64-with-glibc2.36

==============================
       CUDA / GPU Info
==============================
Is CUDA available            : True
CUDA runtime version         : 12.8.93
CUDA_MODULE_LOADING set to   : LAZY
GPU models and configuration : GPU 0: NVIDIA H100 80GB HBM3
Nvidia driver version        : 570.86.15
cuDNN version                : Could not collect

==============================
          CPU Info
==============================
Architecture:                         x86_64
Model name:                           INTEL(R) XEON(R) PLATINUM 8581C CPU @ 2.30GHz

==============================
Versions of relevant libraries
==============================
[pip3] numpy==2.2.6
[pip3] torch==2.7.0
[conda] Could not collect

==============================
         vLLM Info
==============================
ROCM Version                 : Could not collect
vLLM Version                 : 0.9.0.1
vLLM Build Flags:
  CUDA Archs: Not Set; ROCm: Disabled; Neuron: Disabled
GPU Topology:
  \tGPU0\tCPU Affinity
GPU0\t X \t0-103

==============================
     Environment Variables
==============================
NVIDIA_VISIBLE_DEVICES=all
LD_LIBRARY_PATH=/home/somebody/cuda/lib64:/usr/local/nvidia/lib64
CUDA_MODULE_LOADING=LAZY
NCCL_DEBUG=INFO
SOME_TOKEN=abc
TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor_root
"""

OLD_VLLM_END = """\
[conda] Could not collect
ROCM Version: Could not collect
Neuron SDK Version: N/A
vLLM Version: 0.6.3.post1
vLLM Build Flags:
CUDA Archs: Not Set; ROCm: Disabled; Neuron: Disabled
GPU Topology:
GPU0    CPU Affinity
GPU0     X      0-31

Legend:

  X    = Self

CUDA_VISIBLE_DEVICES=0,1
OMP_NUM_THREADS=8
"""

WINDOWS_FRENCH = """\
C:\\Users\\quelquun>python -m torch.utils.collect_env
<frozen runpy>:128: RuntimeWarning: 'torch.utils.collect_env' found in sys.modules
Collecting environment information...
PyTorch version: 2.6.0+cpu
Is debug build: False
CUDA used to build PyTorch: None
ROCM used to build PyTorch: N/A

OS: Microsoft Windows 11 Famille (10.0.22631 64 bits)
GCC version: Could not collect
Clang version: Could not collect
CMake version: Could not collect
Libc version: N/A

Python version: 3.12.7 (tags/v3.12.7:0b05ead, Oct  1 2024, 03:06:41) [MSC v.1941 64 bit (AMD64)] (64-bit runtime)
Python platform: Windows-11-10.0.22631-SP0
Is CUDA available: False
CUDA runtime version: No CUDA
CUDA_MODULE_LOADING set to: N/A
GPU models and configuration: No CUDA
Nvidia driver version: No CUDA
cuDNN version: No CUDA
Is XPU available: False
HIP runtime version: N/A
MIOpen runtime version: N/A
Is XNNPACK available: True
Caching allocator config: N/A

CPU:
Name: 12th Gen Intel(R) Core(TM) i7-1270P
Manufacturer: GenuineIntel

Versions of relevant libraries:
[pip3] torch==2.6.0
"""

MAC = """\
PyTorch version: 2.7.0
Is debug build: False
CUDA used to build PyTorch: None
ROCM used to build PyTorch: N/A

OS: macOS 14.1.2 (arm64)
GCC version: Could not collect
Clang version: 15.0.0 (clang-1500.3.9.4)
Libc version: N/A

Python version: 3.12.9 | packaged by Anaconda, Inc. | (main, Feb  6 2025, 12:55:12) [Clang 14.0.6 ] (64-bit runtime)
Python platform: macOS-14.1.2-arm64-arm-64bit
Is CUDA available: False

CPU:
Apple M1

Versions of relevant libraries:
[conda] numpy                     2.2.5                    pypi_0    pypi
[conda] torch                     2.7.0                    pypi_0    pypi
"""

ROCM = """\
PyTorch version: 2.5.1+rocm6.2
Is debug build: False
CUDA used to build PyTorch: N/A
ROCM used to build PyTorch: 6.2.41133-dd7f95766

OS: Ubuntu 22.04.5 LTS (x86_64)
Is CUDA available: True
CUDA runtime version: Could not collect
GPU models and configuration: AMD Instinct MI250X (gfx90a:sramecc+:xnack-)
Nvidia driver version: Could not collect
cuDNN version: Could not collect
HIP runtime version: 6.2.41133
MIOpen runtime version: 3.2.0
"""

KOREAN_CPU = """\
CPU:
아키텍처:                        x86_64
CPU(s):                          16
모델명:                          Intel(R) Xeon(R) Silver 4208 CPU @ 2.10GHz
플래그:                          fpu vme sse2 fma avx2
"""

NOT_RECORDED_TABLE = {"unknown": "not recorded"}


def facts(observation: Observation, *paths: str) -> list[object]:
    return [observation.find(path) for path in paths]


def is_unknown(observation: Observation, path: str) -> bool:
    return isinstance(observation.find(path), Unknown)


def test_whole_report() -> None:
    seen = parse_text(WHOLE)
    assert facts(seen, "torch.version", "torch.release", "torch.local") == [
        *("2.3.0+cu121", "2.3.0", "cu121")
    ]
    assert facts(seen, "torch.cuda", "torch.build", "torch.hip") == ["12.1", "cuda", ABSENT]
    assert facts(seen, "torch.debug", "torch.cuda_available") == [False, True]
    assert facts(seen, "driver.version", "toolkit.nvcc") == ["550.54.15", "12.1.105"]
    assert facts(seen, "gpus.0.name", "gpus.1.name", "gpus.2.name") == [
        *("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090", ABSENT)
    ]
    assert facts(seen, "python.version", "python.abi", "python.bits") == ["3.11.9", "cp311", 64]
    assert facts(seen, "system.os", "system.distribution", "system.kernel") == [
        *("linux", "ubuntu 22.04", "6.5.0-35-generic")
    ]
    assert facts(seen, "system.glibc", "system.arch", "system.wsl") == ["2.35", "x86_64", False]
    assert facts(seen, "system.cpu", "system.cpu_capability") == [
        *("AMD Ryzen 9 7950X 16-Core Processor", "AVX512")
    ]
    assert facts(seen, "packages.numpy.version", "packages.triton.version") == ["1.26.4", "2.3.0"]
    assert facts(seen, "toolkit.c_compiler") == ["gcc 11.4.0"]


def test_what_the_report_does_not_say_is_unknown() -> None:
    seen = parse_text(WHOLE)
    for path in ("packages.pandas", "env.LD_LIBRARY_PATH", "nccl.loaded", "cudnn.loaded"):
        assert is_unknown(seen, path), path
    assert seen.exhaustive == ["gpus"]


def test_allocator_line_says_which_variables_are_set_and_which_are_not() -> None:
    seen = parse_text(WHOLE)
    assert facts(seen, "env.PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_ALLOC_CONF") == [
        *("expandable_segments:True", ABSENT)
    ]
    assert parse_text(WINDOWS_FRENCH).find("env.PYTORCH_CUDA_ALLOC_CONF") == ABSENT
    assert is_unknown(parse_text(ROCM), "env.PYTORCH_CUDA_ALLOC_CONF")


def test_variables_that_torch_sets_itself_are_not_taken_for_the_users() -> None:
    assert is_unknown(parse_text(WHOLE), "env.CUDA_MODULE_LOADING")
    assert is_unknown(parse_text(NEW_VLLM), "env.CUDA_MODULE_LOADING")


def test_vllms_new_layout() -> None:
    seen = parse_text(NEW_VLLM)
    assert facts(seen, "torch.version", "torch.cuda", "python.version") == [
        *("2.7.0+cu128", "12.8", "3.12.10")
    ]
    assert facts(seen, "gpus.0.name", "driver.version") == ["NVIDIA H100 80GB HBM3", "570.86.15"]
    assert facts(seen, "packages.vllm.version", "packages.numpy.version") == ["0.9.0.1", "2.2.6"]
    assert seen.find("system.distribution") == "debian 12"
    assert seen.find("system.cpu") == "INTEL(R) XEON(R) PLATINUM 8581C CPU @ 2.30GHz"
    assert seen.env == {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "LD_LIBRARY_PATH": "~/cuda/lib64:/usr/local/nvidia/lib64",
        "NCCL_DEBUG": "INFO",
    }


def test_vllms_old_layout_has_its_variables_at_the_end() -> None:
    seen = parse_text(WHOLE.rpartition("[conda]")[0] + OLD_VLLM_END)
    assert facts(seen, "env.CUDA_VISIBLE_DEVICES", "env.OMP_NUM_THREADS") == ["0,1", "8"]
    assert seen.find("packages.vllm.version") == "0.6.3.post1"


def test_a_shell_line_before_the_report_is_no_variable() -> None:
    seen = parse_text("CUDA_VISIBLE_DEVICES=0 python collect_env.py\n" + WHOLE)
    assert is_unknown(seen, "env.CUDA_VISIBLE_DEVICES")


def test_windows_and_cpu_build() -> None:
    seen = parse_text(WINDOWS_FRENCH)
    assert facts(seen, "torch.version", "torch.build", "torch.cuda") == [
        *("2.6.0+cpu", "cpu", ABSENT)
    ]
    assert facts(seen, "system.os", "system.distribution", "system.glibc") == [
        *("windows", "Windows 10.0.22631", ABSENT)
    ]
    assert seen.find("system.cpu") == "12th Gen Intel(R) Core(TM) i7-1270P"
    # nvidia-smi did not answer: that does not prove that there is no driver.
    assert is_unknown(seen, "driver.version")
    assert is_unknown(seen, "gpus")


def test_macos() -> None:
    seen = parse_text(MAC)
    assert facts(seen, "torch.version", "torch.local", "torch.build") == ["2.7.0", ABSENT, "mps"]
    assert facts(seen, "system.os", "system.distribution", "system.cpu") == [
        *("darwin", "macos 14.1.2", "Apple M1")
    ]
    assert seen.find("packages.torch.version") == "2.7.0"


def test_rocm() -> None:
    seen = parse_text(ROCM)
    assert facts(seen, "torch.build", "torch.cuda", "torch.hip") == [
        *("rocm", ABSENT, "6.2.41133-dd7f95766")
    ]
    assert facts(seen, "gpus.0.name", "gpus.0.compute_capability") == [
        *("AMD Instinct MI250X", "gfx90a")
    ]
    assert seen.exhaustive == []  # the report of a ROCm build names the current GPU only


def test_rocm_without_the_name_of_the_gpu() -> None:
    seen = parse_text(ROCM.replace("AMD Instinct MI250X (gfx90a", "(gfx950"))
    assert seen.find("gpus.0.compute_capability") == "gfx950"
    assert is_unknown(seen, "gpus.0.name")


@pytest.mark.parametrize("python", ["3.6.9 (default", "3.7 (64-bit runtime)"])
def test_old_python_does_not_know_its_glibc(python: str) -> None:
    assert is_unknown(parse_text(WHOLE.replace("3.11.9 (main", python)), "system.glibc")


def test_glibc_guessed_for_the_platform_line_is_not_taken() -> None:
    text = WHOLE.replace("with-glibc2.35", "with-glibc2.29")
    assert parse_text(text).find("system.glibc") == "2.35"
    assert is_unknown(parse_text(text.replace("Libc version: glibc-2.35\n", "")), "system.glibc")


def test_system_text_in_another_language() -> None:
    head, _, tail = WHOLE.partition("CPU:\n")
    seen = parse_text(head + KOREAN_CPU + "\n" + tail.partition("\n\n")[2])
    assert facts(seen, "system.cpu", "system.cpu_capability") == [
        *("Intel(R) Xeon(R) Silver 4208 CPU @ 2.10GHz", "AVX2")
    ]
    assert seen.find("packages.numpy.version") == "1.26.4"


def test_cpu_build_on_a_machine_with_a_driver() -> None:
    """There the report prints "Could not collect" for a build without CUDA."""
    text = WHOLE.replace("2.3.0+cu121", "2.3.0").replace(
        "PyTorch: 12.1", "PyTorch: Could not collect"
    )
    seen = parse_text(text)
    assert facts(seen, "torch.cuda", "torch.build", "driver.version") == [
        *(ABSENT, "cpu", "550.54.15")
    ]


def test_torch_that_could_not_be_imported() -> None:
    broken = WHOLE.replace("PyTorch version: 2.3.0+cu121", "PyTorch version: N/A")
    broken = broken.replace("PyTorch: 12.1", "PyTorch: N/A").replace("build: False", "build: N/A")
    seen = parse_text(broken)
    assert facts(seen, "torch.importable", "torch.version", "torch.cuda") == [
        *(False, "2.3.0+cu121", "12.1")
    ]
    # Where pip does not list it either, it may not be installed at all.
    without = "\n".join(line for line in broken.splitlines() if "torch==" not in line)
    assert is_unknown(parse_text(without), "torch.importable")
    assert is_unknown(parse_text(without), "torch.cuda")


def test_mig_lines_belong_to_the_gpu_above() -> None:
    text = WHOLE.replace(
        "GPU 0: NVIDIA GeForce RTX 4090",
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-9b2f6a3e-0000-0000-0000-000000000000)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-9b2f6a3e-0000-0000-0000-000000000000)",
    )
    seen = parse_text(text)
    assert facts(seen, "gpus.0.name", "gpus.0.mig") == ["NVIDIA A100-SXM4-40GB", True]
    assert is_unknown(seen, "gpus.1.mig")
    assert "9b2f6a3e" not in str(seen.plain())


def test_cut_in_the_list_of_gpus() -> None:
    seen = parse_text(WHOLE.partition("GPU 1:")[0])
    assert seen.find("gpus.0.name") == "NVIDIA GeForce RTX 4090"
    assert seen.exhaustive == []


@pytest.mark.parametrize("end", range(0, len(WHOLE), 97))
def test_a_report_cut_anywhere_gives_no_other_facts(end: int) -> None:
    whole, cut = parse_text(WHOLE), WHOLE[:end]
    cut = cut[: cut.rfind("\n") + 1]
    if detect(cut) is None:
        return
    seen = parse_text(cut)
    for path in ("torch.version", "torch.cuda", "python.version", "driver.version", "system.glibc"):
        assert is_unknown(seen, path) or seen.find(path) == whole.find(path)


def test_warnings_of_torch_before_the_report() -> None:
    old = parse_text(
        "/x/torch/cuda/__init__.py:138: UserWarning: CUDA initialization: The NVIDIA driver on your "
        "system is too old (found version 11040). Please update your GPU driver\n" + WHOLE
    )
    assert old.find("driver.cuda") == "11.4"
    new = parse_text(
        "/x/torch/cuda/__init__.py:235: UserWarning: \n"
        "NVIDIA GeForce RTX 4090 with CUDA capability sm_120 is not compatible with the current "
        "PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_50 sm_80 sm_90 compute_90.\n"
        + WHOLE
    )
    assert facts(new, "gpus.0.compute_capability", "torch.arch_list") == [
        *("12.0", ["sm_50", "sm_80", "sm_90", "compute_90"])
    ]
    assert is_unknown(new, "gpus.1.compute_capability")


def test_lines_that_a_web_page_joined() -> None:
    joined = " ".join(WHOLE.split())
    seen = parse_text(joined)
    assert facts(seen, "torch.version", "torch.cuda", "gpus.1.name", "driver.version") == [
        *("2.3.0+cu121", "12.1", "NVIDIA GeForce RTX 3090", "550.54.15")
    ]
    assert seen.find("packages.triton.version") == "2.3.0"


def test_quoted_lines_and_odd_spaces() -> None:
    quoted = "\r\n".join(f"> {line}".replace(": ", ":\u00a0") for line in WHOLE.split("\n"))
    seen = parse_text(quoted)
    assert facts(seen, "torch.version", "torch.cuda", "packages.numpy.version") == [
        *("2.3.0+cu121", "12.1", "1.26.4")
    ]


def test_colours_of_a_terminal() -> None:
    assert parse_text("\x1b[32m" + WHOLE.replace("\n", "\x1b[0m\n")).find("torch.cuda") == "12.1"


def test_short_python_version_is_no_patch_release() -> None:
    text = WHOLE.replace("3.11.9 (main, Apr  6 2024, 17:59:24) [GCC 11.4.0]", "3.8")
    seen = parse_text(text)
    assert is_unknown(seen, "python.version")
    assert seen.find("python.abi") == "cp38"


def test_free_threaded_python() -> None:
    text = WHOLE.replace("3.11.9 (main,", "3.13.0 experimental free-threading build (main,")
    assert parse_text(text).find("python.abi") == "cp313t"


def test_unknown_distribution_is_said() -> None:
    seen = parse_text(WHOLE.replace("Ubuntu 22.04.4 LTS", "TencentOS Server 3.2"))
    assert is_unknown(seen, "system.distribution")
    assert seen.find("system.os") == "linux"


@pytest.mark.parametrize(
    ("printed", "distribution"),
    [
        ("CentOS Linux release 7.9.2009 (Core)", "centos 7"),
        ("CentOS Stream 9", "centos 9"),
        ("Rocky Linux 9.3 (Blue Onyx)", "rocky 9.3"),
        ("Red Hat Enterprise Linux release 8.6 (Ootpa)", "rhel 8.6"),
        ("Red Hat Enterprise Linux 9.2 (Plow)", "rhel 9.2"),
        ("Amazon Linux 2023.4.20240416", "amzn 2023"),
        ("Fedora Linux 40 (Workstation Edition)", "fedora 40"),
        ("Arch Linux", "arch"),
    ],
)
def test_distributions_as_os_release_names_them(printed: str, distribution: str) -> None:
    seen = parse_text(WHOLE.replace("Ubuntu 22.04.4 LTS", printed))
    assert seen.find("system.distribution") == distribution


def test_odd_gpu_names_are_no_names() -> None:
    for odd in ("[N/A]", "ERR!", "[GPU is lost]", "[Not Supported]"):
        assert is_unknown(parse_text(WHOLE.replace("NVIDIA GeForce RTX 4090", odd)), "gpus.0.name")


# --- what is refused or made harmless -----------------------------------------------------------


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_text(text)
    return caught.value.message


def test_contradiction_is_refused_and_repetition_is_not() -> None:
    message = refusal(WHOLE + "Is debug build: True\n")
    assert "Is debug build" in message
    assert "twice" in message
    assert parse_text(WHOLE + "Is debug build: False\n").find("torch.debug") is False


def test_two_reports_are_refused() -> None:
    assert "two reports" in refusal(WHOLE + WHOLE.replace("RTX 4090", "RTX 5090"))


def test_a_first_attempt_that_broke_off_is_no_second_report() -> None:
    text = "Collecting environment information...\nTraceback (most recent call last):\n" + WHOLE
    assert parse_text(text).find("torch.cuda") == "12.1"


def test_more_than_a_version_is_refused() -> None:
    message = refusal("[pip3] torch==2.3.0 --index-url=https://user:pw@attacker.invalid")
    assert "torch" in message
    assert "version" in message
    assert "pw@" not in message


def test_digits_of_another_script_are_refused() -> None:
    message = refusal(WHOLE.replace("PyTorch: 12.1", "PyTorch: \uff11\uff12.\uff11"))
    assert "CUDA" in message
    assert "12" in message


@pytest.mark.parametrize(
    "line",
    ["a" * 17_000, " " * 17_000, "GPU 0: " * 3000, "OS " * 6000, "[pip3] " * 3000, "::" * 9000],
)
def test_endless_lines_are_refused_in_no_time(line: str) -> None:
    start = time.perf_counter()
    assert "too long" in refusal(WHOLE + line + "\n")
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    "line",
    [
        "a" * 40 + "!",
        " " * 16_000 + "!",
        "GPU 0: " * 2000,
        "OS " * 5000,
        "> " * 8000,
        "sm_50 " * 2500,
    ],
)
def test_slow_patterns_are_not_slow(line: str) -> None:
    text = WHOLE + (line + "\n") * (300_000 // (len(line) + 1))
    start = time.perf_counter()
    parse_text(text)
    assert time.perf_counter() - start < 5


def test_a_text_of_megabytes_is_refused() -> None:
    assert "too long" in refusal(WHOLE + "x\n" * (1 << 20))


def test_nul_bytes_are_refused() -> None:
    assert "NUL" in refusal(WHOLE + "\0")


def test_token_in_a_channel_is_taken_out() -> None:
    line = "[conda] pytorch 2.3.0 https://host.invalid/t/tk-s3cr3t-canary/channel\n"
    seen = parse_text(WHOLE + line)
    assert "s3cr3t" not in str(seen.plain())
    assert seen.find("conda.pytorch.version") == "2.3.0"


def test_home_folders_are_taken_out() -> None:
    text = WHOLE.replace("AMD Ryzen", "/home/user1/venv AMD Ryzen")
    assert "user1" not in str(parse_text(text + "[pip3] x==1.0\n").plain())


def test_what_is_a_report() -> None:
    assert detect("Collecting environment information...\nTraceback") is Kind.REPORT
    assert detect("[pip3] torch==2.3.0") is Kind.REPORT
    assert detect("OS: Ubuntu 22.04\nGCC version: Could not collect\n") is Kind.REPORT
    assert detect("I have a problem with PyTorch version 2.3") is None
    assert detect("OS: Ubuntu") is None
    assert detect("") is None
