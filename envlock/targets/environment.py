"""What a program of the target gets of this process's variables: what is measured, and what it needs.

By allow-list: start-up files of somebody's interpreter run with it, and a token in a variable is
none of their business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from envlock.redact import redact

_NEEDED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|TEMP|TMP|PWD|XDG_[A-Z_]+"
    r"|SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|USERPROFILE|PROGRAMDATA|(?:LOCAL)?APPDATA"
)
_MEASURED = re.compile(
    r"(?:ATEN|BNB|CONDA|CUBLAS|CUBLASLT|CUDA|CUDNN|CUFFT|CUSOLVER|CUSPARSE|NCCL|NVIDIA|GLOO|UCX|HIP|HSA"
    r"|ROCR|ROCM|AMD|MIOPEN|TORCH[A-Z]*|PYTORCH|TRITON|OMP|GOMP|KMP|MKL|OPENBLAS|DNNL|ONEDNN"
    r"|LD|DYLD|MALLOC)_[A-Z0-9_]+|PYTHON[A-Z0-9_]+"
    r"|VIRTUAL_ENV|MKLROOT|GLIBC_TUNABLES|KUBERNETES_SERVICE_HOST"
    r"|MAX_JOBS|LRU_CACHE_CAPACITY|DISABLE_ADDMM_CUDA_LT|USE_PYTORCH_KERNEL_CACHE"
)
_INDEXES = re.compile(r"(?:PIP|UV)_[A-Z0-9_]+")
"""Where packages are looked for; their hosts are recorded, and a URL may have a password in it."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|KEY(?:_|$)|CREDENTIAL|AUTH(?:_|$)")


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    passed = {
        name: redact(value) if _INDEXES.fullmatch(name) else value
        for name, value in environ.items()
        if _NEEDED.fullmatch(name) or _MEASURED.fullmatch(name) or _INDEXES.fullmatch(name)
    }
    return {name: value for name, value in passed.items() if not _SECRET.search(name)}
