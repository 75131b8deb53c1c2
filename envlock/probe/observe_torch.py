"""What only torch itself can tell (``--deep``): imports it in this process, and records a failure.

Torch 1.13 to 2.15. The arch list comes from the flags that were compiled in, so no GPU is needed;
availability is asked through NVML where torch can (``PYTORCH_NVML_BASED_CUDA_CHECK``), which makes
no context. Everything is read after a plain import, before anything sets a switch.
"""

from __future__ import annotations

import os
import re
from types import ModuleType

import observe_common
import observe_frame

ABSENT, unknown = observe_common.ABSENT, observe_common.unknown
guarded = observe_common.guarded


IMPORT_LIMIT_S = 110
"""Under the host's own limit, so that a torch that hangs is a fact and not the end of a capture."""


def work(_: list[str]) -> dict[str, object]:
    """The answer: parts of an Observation to be merged into what ``observe`` saw."""
    child = observe_common.start_function(look, IMPORT_LIMIT_S)
    observed = observe_common.function_result(child)
    if not observe_common.is_value(observed):
        observed = {"torch": {"importable": unknown("import torch: %s" % observed["unknown"])}}
    return {"observed": observed}


def look() -> dict[str, object]:
    """Import torch and ask it; in a child, since a broken one may crash or hang."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    try:
        import torch
    except ImportError as error:
        missing = getattr(error, "name", None) == "torch"
        return {"torch": ABSENT if missing else {"importable": failed(error)}}
    except BaseException as error:  # a torch may call sys.exit, or be interrupted by its plugins
        return {"torch": {"importable": failed(error)}}
    return {
        "torch": torch_facts(torch),
        "cudnn": guarded(cudnn_facts, torch),
        "nccl": guarded(nccl_facts, torch),
    }


def failed(error: BaseException) -> dict[str, object]:
    """The error's last line, without the paths in it."""
    lines = str(error).strip().splitlines() or [""]
    shown = observe_common.show_text(lines[-1].strip()[:300])
    if not isinstance(shown, str):
        shown = "its message is not recorded"
    return unknown("import torch failed: %s: %s" % (type(error).__name__, shown))


def core(torch: ModuleType) -> object:
    """torch's compiled part: what is asked of it has no public name in all releases."""
    return torch._C  # noqa: SLF001


def torch_facts(torch: ModuleType) -> dict[str, object]:
    return {
        "importable": True,
        "cuda_available": guarded(lambda: bool(torch.cuda.is_available())),
        "arch_list": guarded(arch_list, torch),
        "config": guarded(config, torch),
        "cxx11_abi": guarded(cxx11_abi, torch),
        "num_threads": guarded(lambda: int(torch.get_num_threads())),
        "allocator": guarded(allocator, torch),
        "switches": guarded(switches, torch),
    }


def cxx11_abi(torch: ModuleType) -> object:
    value = getattr(core(torch), "_GLIBCXX_USE_CXX11_ABI", None)
    return unknown("this torch does not tell") if value is None else bool(value)


def arch_list(torch: ModuleType) -> object:
    """``sm_80``, ``compute_90`` or ``gfx90a``: what the binaries hold, GPU or not."""
    flags = getattr(core(torch), "_cuda_getArchFlags", None)
    if flags is None:
        return ABSENT
    return (flags() or "").split() or ABSENT


def config(torch: ModuleType) -> object:
    """The build settings as a table; torch prints them as ``NAME=value, NAME=value``."""
    text = torch.__config__.show()
    found = re.search(r"Build settings:\s*(.*)", text, re.DOTALL)
    if not found:
        return unknown("torch.__config__ has no build settings")
    # A value may hold commas (compiler flags): a new one starts at ", NAME=".
    parts = re.split(r",\s+(?=[A-Z][A-Z0-9_]*=)", found.group(1).strip().rstrip(","))
    table = {}
    for part in parts:
        name, _, value = part.partition("=")
        value = value.strip().rstrip(",").strip()
        shown = observe_common.show_text(value)
        if re.match(r"^\w+$", name) and isinstance(shown, str):
            table[name] = shown
    return table


def allocator(torch: ModuleType) -> object:
    if not getattr(torch.version, "cuda", None) and not getattr(torch.version, "hip", None):
        return ABSENT
    ask = getattr(core(torch), "_cuda_getAllocatorBackend", None)
    return "native" if ask is None else str(ask())  # torch 1.13 has no other


def switches(torch: ModuleType) -> dict[str, object]:
    """Backend switches under the names of ``envlock.lock.observation.Switches``."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    missing = unknown("this torch has no such switch")

    def flag(owner: object, name: str) -> object:
        value = guarded(getattr, owner, name, None)
        return value if isinstance(value, (bool, dict)) else missing

    def called(owner: object, name: str) -> object:
        function = getattr(owner, name, None)
        return missing if function is None else guarded(lambda: bool(function()))

    return {
        "matmul_allow_tf32": flag(cuda.matmul, "allow_tf32"),
        "cudnn_allow_tf32": flag(cudnn, "allow_tf32"),
        "float32_matmul_precision": guarded(lambda: str(torch.get_float32_matmul_precision())),
        "cudnn_enabled": flag(cudnn, "enabled"),
        "cudnn_benchmark": flag(cudnn, "benchmark"),
        "cudnn_deterministic": flag(cudnn, "deterministic"),
        "deterministic_algorithms": called(torch, "are_deterministic_algorithms_enabled"),
        "sdp_flash": called(cuda, "flash_sdp_enabled"),
        "sdp_mem_efficient": called(cuda, "mem_efficient_sdp_enabled"),
        "sdp_math": called(cuda, "math_sdp_enabled"),
        "sdp_cudnn": called(cuda, "cudnn_sdp_enabled"),
        "fp16_reduced_precision_reduction": flag(
            cuda.matmul, "allow_fp16_reduced_precision_reduction"
        ),
        "bf16_reduced_precision_reduction": flag(
            cuda.matmul, "allow_bf16_reduced_precision_reduction"
        ),
        "fp16_accumulation": flag(cuda.matmul, "allow_fp16_accumulation"),
        "default_dtype": guarded(lambda: str(torch.get_default_dtype())),
    }


def cudnn_facts(torch: ModuleType) -> object:
    """Compiled against and loaded: torch refuses a pair it knows to be wrong, with an error."""
    module = getattr(core(torch), "_cudnn", None)
    if module is None:
        return ABSENT
    return {
        "compiled": dotted(module.getCompileVersion()),
        "loaded": guarded(lambda: dotted(module.getRuntimeVersion())),
    }


def dotted(version: str) -> str:
    """cuDNN answers (8, 9, 2), MIOpen one number."""
    return str(version) if isinstance(version, int) else ".".join(str(part) for part in version)


def nccl_facts(torch: ModuleType) -> object:
    """The version torch was built with; the one it runs with is a fact of the library."""
    ask = getattr(core(torch), "_nccl_version", None)
    if ask is None:
        return ABSENT
    version = ask()
    if not isinstance(version, int):
        return {"compiled": ".".join(str(part) for part in version[:3])}
    # major << 32 | minor << 16 | patch since torch 1.10
    return {"compiled": "%d.%d.%d" % (version >> 32, version >> 16 & 0xFFFF, version & 0xFFFF)}


if __name__ == "__main__":
    observe_frame.answer("observe_torch", work)
