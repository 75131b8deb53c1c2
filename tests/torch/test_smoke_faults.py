"""The battery in an environment that somebody has tampered with: each fault by its right rule.

An environment of its own sees the torch of the reference environment and, through a .pth file in
its site-packages, a module that patches torch once it is imported. The record is of the same
environment without the patch.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from envlock.findings import Finding, Severity
from envlock.lock.behaviour import BehaviourRecord
from envlock.rules.behaviour import judge_behaviour
from envlock.targets.local import LocalInterpreter
from envlock.targets.smoke import measure
from tests.torch.interpreter import torch_python

# Runs in the environment at start-up, before torch: it waits for torch's import.
HOOK = """
import importlib.util, sys

class Hook:
    done = False
    def find_spec(self, name, path=None, target=None):
        if name != "torch" or Hook.done:
            return None
        Hook.done = True
        spec = importlib.util.find_spec("torch")
        inner = spec.loader.exec_module
        def exec_module(module):
            inner(module)
            patch(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Hook())

def patch(torch):
"""

DOUBLED_LEARNING_RATE = """
    for kind in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD):
        def start(self, params, lr=1e-3, *rest, original=kind.__init__, **named):
            original(self, params, 2 * lr, *rest, **named)
        kind.__init__ = start
"""
KEPT_LOSSES = """
    kept, original = [], torch.Tensor.backward
    def backward(self, *rest, **named):
        kept.append(self)
        return original(self, *rest, **named)
    torch.Tensor.backward = backward
"""
BF16_PRODUCTS = """
    original = torch.nn.functional.linear
    def linear(input, weight, bias=None):
        if input.dtype is not torch.float32:
            return original(input, weight, bias)
        bias = None if bias is None else bias.bfloat16()
        return original(input.bfloat16(), weight.bfloat16(), bias).float()
    torch.nn.functional.linear = linear
"""
PLAIN_ATTENTION = """
    torch.backends.cuda.enable_flash_sdp(False)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LocalInterpreter]:
    """Makes an environment with a patch of torch in its site-packages, or with none."""
    ask = "import sys, sysconfig; print(sys._base_executable); print(sysconfig.get_path('purelib'))"
    told = subprocess.run([torch_python(), "-c", ask], capture_output=True, text=True, check=True)
    base, torch_site = told.stdout.split()

    def make(patch: str) -> LocalInterpreter:
        folder = tmp_path_factory.mktemp("environment")
        subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
        python = folder / "bin" / "python"
        told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
        site = Path(told.stdout.split()[1])
        (site / "reference.pth").write_text(torch_site)
        if patch:
            (site / "tampering.py").write_text(HOOK + patch)
            (site / "tampering.pth").write_text("import tampering\n")
        return LocalInterpreter(python)

    return make


@pytest.fixture(scope="module")
def recorded(environment: Callable[[str], LocalInterpreter]) -> BehaviourRecord:
    return measure(environment(""), battery=("env", "numerics", "memory", "leak"))


def errors(recorded: BehaviourRecord | None, measured: BehaviourRecord) -> list[Finding]:
    findings = judge_behaviour(recorded, measured).findings
    return [f for f in findings if f.severity is Severity.ERROR]


def test_an_untouched_environment_has_no_findings(
    environment: Callable[[str], LocalInterpreter], recorded: BehaviourRecord
) -> None:
    measured = measure(environment(""), battery=("env", "numerics", "memory", "leak"))
    judged = judge_behaviour(recorded, measured)
    assert [f for f in judged.findings if f.severity is not Severity.INFO] == []
    assert judged.checked > 100


def test_a_doubled_learning_rate_leads_with_the_size_of_the_update(
    environment: Callable[[str], LocalInterpreter], recorded: BehaviourRecord
) -> None:
    found = errors(recorded, measure(environment(DOUBLED_LEARNING_RATE), battery=("numerics",)))
    assert [f.code for f in found] == ["EL802"]
    assert "+100 %" in found[0].message
    assert "EL801" in {f.code for f in found[0].folded}


def test_kept_losses_lead_with_the_leak_without_any_record(
    environment: Callable[[str], LocalInterpreter], recorded: BehaviourRecord
) -> None:
    measured = measure(environment(KEPT_LOSSES), battery=("env", "leak", "memory"))
    assert [f.code for f in errors(None, measured)] == ["EL805"]
    leading = errors(recorded, measured)[0]
    assert leading.code == "EL805"
    assert leading.hint


def test_bf16_products_lead_with_the_precision(
    environment: Callable[[str], LocalInterpreter], recorded: BehaviourRecord
) -> None:
    measured = measure(environment(BF16_PRODUCTS), battery=("env", "numerics"))
    found = errors(recorded, measured)
    assert [f.code for f in found] == ["EL810"]
    assert found[0].subject == "behaviour.cpu.precision.linear"


def test_another_attention_backend_is_named(
    environment: Callable[[str], LocalInterpreter], recorded: BehaviourRecord
) -> None:
    measured = measure(environment(PLAIN_ATTENTION), battery=("env", "memory"))
    found = errors(recorded, measured)
    assert [f.code for f in found] == ["EL809"]
    assert "the plain formula" in found[0].message
