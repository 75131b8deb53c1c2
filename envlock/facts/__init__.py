"""What is known about torch, CUDA, drivers, GPUs and variables, each row with its source.

No row means unknown: a look-up answers None and never guesses.
"""

from envlock.facts.builds import (
    INDEX,
    TorchBuild,
    Variant,
    torch_build,
    torch_releases,
    wheel_command,
)
from envlock.facts.changes import Change, changes_between, changes_of
from envlock.facts.companions import (
    Binaries,
    Companion,
    Floor,
    binaries,
    companion,
    extension_floors,
)
from envlock.facts.cuda import (
    CudaRelease,
    DriverFloor,
    cuda_of_driver,
    cuda_releases,
    driver_floor,
    toolkit_driver,
)
from envlock.facts.gpus import GpuArch, fit, gpu_arch, gpu_arch_of_name, gpu_arches
from envlock.facts.messages import ErrorMessage, error_messages, explain_error
from envlock.facts.variables import Variable, variable, variables

__all__ = [
    "INDEX",
    "Binaries",
    "Change",
    "Companion",
    "CudaRelease",
    "DriverFloor",
    "ErrorMessage",
    "Floor",
    "GpuArch",
    "TorchBuild",
    "Variable",
    "Variant",
    "binaries",
    "changes_between",
    "changes_of",
    "companion",
    "cuda_of_driver",
    "cuda_releases",
    "driver_floor",
    "error_messages",
    "explain_error",
    "extension_floors",
    "fit",
    "gpu_arch",
    "gpu_arch_of_name",
    "gpu_arches",
    "toolkit_driver",
    "torch_build",
    "torch_releases",
    "variable",
    "variables",
    "wheel_command",
]
