"""Images with one planted fault each, built upon a good one. Demo and engine tests share them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SITE = "/opt/env/lib/python3.11/site-packages"
PYTHON = "/opt/env/bin/python"

_HOOK = """\
import importlib.abc, importlib.util, sys
@state@

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "@module@":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
@patch@
        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
"""


def _hook(module: str, patch: str, *, state: str = "") -> str:
    """A program that runs ``patch`` right after torch has loaded ``module``, once."""
    body = textwrap.indent(patch, 12 * " ")
    return _HOOK.replace("@state@", state).replace("@module@", module).replace("@patch@", body)


_LEAK = _hook(
    "torch._tensor",
    """\
backward = module.Tensor.backward

def leaking(self, *args, **kwargs):
    kept.append(self)
    return backward(self, *args, **kwargs)

module.Tensor.backward = leaking
""",
    state="\nkept = []\n",
)
"""Keeps every loss with its graph, as a training loop that appends losses does."""

_LEARNING_RATE = _hook(
    "torch.optim.optimizer",
    """\
init = module.Optimizer.__init__

def doubled(self, params, defaults):
    init(self, params, {**defaults, "lr": 2 * defaults["lr"]})

module.Optimizer.__init__ = doubled
""",
)
"""Doubles every learning rate, as a changed default in a shared helper does."""

_BFLOAT16 = _hook(
    "torch.nn.functional",
    """\
exact = module.linear

def linear(input, weight, bias=None):
    if str(input.dtype) != "torch.float32":
        return exact(input, weight, bias)
    bias = None if bias is None else bias.bfloat16()
    return exact(input.bfloat16(), weight.bfloat16(), bias).float()

module.linear = linear
""",
)
"""Multiplies in bf16 what the program has in fp32, as a forgotten autocast does."""

_ATTENTION = _hook(
    "torch.nn.functional",
    """\
fused = module.scaled_dot_product_attention

def formula(*args, **named):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return fused(*args, **named)

module.scaled_dot_product_attention = formula
""",
)
"""Attention by its formula and not by the fused kernel, where no switch of torch shows it."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    instructions: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)
    code_family: str
    """First digits of the code that has to lead."""
    subject: str
    """How the leading finding's subject begins."""
    smoke: bool = False
    """Whether only the smoke test can see it."""

    @property
    def tag(self) -> str:
        return f"envlock-demo:{self.name}"

    def matches(self, lead: Mapping[str, str]) -> bool:
        return (
            lead["severity"] == "error"
            and lead["code"].startswith(f"EL{self.code_family}")
            and lead["subject"].startswith(self.subject)
        )


def _install(*requirements: str) -> str:
    command = '"/c/uv", "pip", "install", "--quiet", "--no-cache", "--no-deps", "--python"'
    words = ", ".join(f'"{word}"' for word in (PYTHON, *requirements))
    mounts = "--mount=type=bind,target=/c --mount=type=secret,id=ca"
    return f"RUN {mounts} [{command}, {words}]"


FAULTS = (
    Fault(
        name="numpy",
        instructions=["USER 0:0", "ENV SSL_CERT_FILE=/run/secrets/ca", _install("numpy==2.2.5")],
        code_family="1",
        subject="packages.numpy",
    ),
    Fault(
        name="patched-file",
        files={"patched.py": "# patched by hand, once, at night\n"},
        instructions=[f'COPY ["patched.py", "{SITE}/torch/_appdirs.py"]'],
        code_family="116",
        subject="packages.torch",
    ),
    Fault(
        name="library-path",
        instructions=["ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64"],
        code_family="7",
        subject="env.LD_LIBRARY_PATH",
    ),
    Fault(
        name="contested",
        instructions=[
            "USER 0:0",
            "ENV SSL_CERT_FILE=/run/secrets/ca",
            _install("nvidia-nvtx-cu12==12.4.127"),
            _install("nvidia-nvtx-cu11==11.8.86"),
        ],
        code_family="305",
        subject="packages.nvidia-nvtx",
    ),
    Fault(
        name="leak",
        files={"leak.py": _LEAK, "leak.pth": "import leak\n"},
        instructions=[f'COPY ["leak.py", "leak.pth", "{SITE}/"]'],
        smoke=True,
        code_family="805",
        subject="behaviour.cpu.leak",
    ),
    Fault(
        name="learning-rate",
        files={"faster.py": _LEARNING_RATE, "faster.pth": "import faster\n"},
        instructions=[f'COPY ["faster.py", "faster.pth", "{SITE}/"]'],
        smoke=True,
        code_family="802",
        subject="behaviour.cpu",
    ),
    Fault(
        name="bfloat16",
        files={"shorter.py": _BFLOAT16, "shorter.pth": "import shorter\n"},
        instructions=[f'COPY ["shorter.py", "shorter.pth", "{SITE}/"]'],
        smoke=True,
        code_family="810",
        subject="behaviour.cpu.precision",
    ),
    Fault(
        name="attention",
        files={"unfused.py": _ATTENTION, "unfused.pth": "import unfused\n"},
        instructions=[f'COPY ["unfused.py", "unfused.pth", "{SITE}/"]'],
        smoke=True,
        code_family="809",
        subject="behaviour.cpu",
    ),
    Fault(
        name="tf32",
        instructions=["ENV NVIDIA_TF32_OVERRIDE=1"],
        code_family="7",
        subject="env.NVIDIA_TF32_OVERRIDE",
    ),
)


def build_fault(fault: Fault, good: str, context: Path) -> None:
    """Build ``fault.tag`` upon the good image; raises when the engine cannot."""
    from envlock.image.buildkit import client_environment, find_client  # noqa: PLC0415

    for name, text in fault.files.items():
        (context / name).write_text(text)
    shutil.copyfile(Path(sys.executable).parent / "uv", context / "uv")
    (context / "uv").chmod(0o755)
    lines = [f"FROM {good}", *fault.instructions, "USER 10001:10001"]
    if any("SSL_CERT_FILE" in line for line in lines):
        lines.append("ENV SSL_CERT_FILE=")
    (context / "Dockerfile").write_text("\n".join(lines) + "\n")
    bundle = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    options = [
        "--network",
        "host",
        "--quiet",
        "--tag",
        fault.tag,
        "--secret",
        f"id=ca,src={bundle}",
    ]
    subprocess.run(
        [*find_client(os.environ), *options, str(context)],
        check=True,
        capture_output=True,
        env=client_environment(os.environ),
    )
