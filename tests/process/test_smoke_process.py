"""How the smoke probe stands what an interpreter and its torch can do to it. No torch is needed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envlock.lock.behaviour import BehaviourRecord, Leak, Unavailable
from envlock.targets.local import LocalInterpreter
from envlock.targets.process import ProgramTimeoutError
from envlock.targets.smoke import SmokeCall, measure
from tests.process.interpreters import interpreters

PYTHONS = interpreters()


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a torch on the path that is this text."""

    def write(text: str) -> None:
        (tmp_path / "torch" / "utils" / "checkpoint").mkdir(parents=True)
        (tmp_path / "torch" / "utils" / "__init__.py").touch()
        (tmp_path / "torch" / "utils" / "checkpoint" / "__init__.py").touch()
        (tmp_path / "torch" / "__init__.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return write


def leak(**options: Any) -> Leak | Unavailable | None:
    """The probe ``leak`` of this interpreter."""
    target = LocalInterpreter(Path(sys.executable))
    asked = {"device": "cpu", "groups": ["leak"], **options}
    answer = target.run_probe(SmokeCall(probe="smoke", arguments=[json.dumps(asked)]))
    return Unavailable.read(answer["probes"]["leak"])


def reason(**options: Any) -> str:
    found = leak(**options)
    assert isinstance(found, Unavailable)
    return found.reason


def test_without_torch_every_probe_is_unavailable(torch: Callable[[str], None]) -> None:
    torch("raise ModuleNotFoundError(\"No module named 'torch'\")")
    record = measure(LocalInterpreter(Path(sys.executable)))
    assert isinstance(record, BehaviourRecord)
    probes = [getattr(record.probes, name) for name in type(record.probes).defaults]
    measured = [probe for probe in probes if probe is not None]
    assert len(measured) == 11
    assert all(isinstance(probe, Unavailable) for probe in measured)
    assert {probe.reason for probe in measured} == {"ModuleNotFoundError: No module named 'torch'"}


@pytest.mark.parametrize("release", PYTHONS)
def test_every_python_answers(torch: Callable[[str], None], release: str) -> None:
    torch("raise ImportError('not today')")
    record = measure(LocalInterpreter(PYTHONS[release]), battery=("leak", "shm"))
    assert record.probes.leak == record.probes.shm
    assert record.probes.leak == Unavailable(status="unavailable", reason="ImportError: not today")


def test_a_torch_that_cannot_be_loaded_gives_its_error_without_paths(
    torch: Callable[[str], None],
) -> None:
    torch("raise OSError('/home/ana/venv/lib/libtorch_cpu.so: cannot open shared object file')")
    assert reason() == "OSError: <path>: cannot open shared object file"


def test_a_torch_that_kills_its_process_costs_one_group(torch: Callable[[str], None]) -> None:
    torch("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert reason() == "the process was ended by SIGSEGV"


def test_a_torch_that_leaves_early_is_told(torch: Callable[[str], None]) -> None:
    torch("import sys; sys.stderr.write('no licence\\n'); sys.exit(3)")
    assert reason() == "the process ended with code 3: no licence"


def test_a_torch_that_hangs_is_ended_with_its_children(torch: Callable[[str], None]) -> None:
    torch("import subprocess; subprocess.run(['sleep', '60'])")
    assert reason(limit_s=1) == "did not finish within 1 s"


def test_nothing_is_left_running_when_the_host_gives_up(
    torch: Callable[[str], None], tmp_path: Path
) -> None:
    torch(
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    call = SmokeCall(
        probe="smoke",
        arguments=[json.dumps({"device": "cpu", "groups": ["leak"]})],
        timeout_s=3,
    )
    with pytest.raises(ProgramTimeoutError):
        LocalInterpreter(Path(sys.executable)).run_probe(call)
    child = Path("/proc") / (tmp_path / "pid").read_text()
    deadline = time.monotonic() + 5
    while child.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child.exists()


def test_what_torch_prints_does_not_reach_the_answer(torch: Callable[[str], None]) -> None:
    torch("print('envlock-begin x\\n{}\\nenvlock-end x'); raise ImportError('after talking')")
    assert reason() == "ImportError: after talking"


def test_a_sibling_of_the_same_name_on_the_path_is_not_taken(
    torch: Callable[[str], None], tmp_path: Path
) -> None:
    torch("raise ImportError('the real end')")
    (tmp_path / "smoke_lines.py").write_text("raise SystemExit('wrong file')")
    assert reason() == "ImportError: the real end"
