"""Which interpreter is meant, and one message for each that cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from envlock.errors import TargetError
from envlock.targets import local
from envlock.targets.base import ProbeCall
from envlock.targets.local import LocalInterpreter, find_interpreter


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing active and an empty PATH."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def python(folder: Path, name: str = "python3") -> Path:
    path = folder / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_order(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_interpreter() == (Path(sys.executable), "envlock's own interpreter")
    on_path = python(machine)
    assert find_interpreter() == (on_path, "python3 on PATH")
    conda = python(machine / "conda", "python")
    monkeypatch.setenv("CONDA_PREFIX", str(machine / "conda"))
    assert find_interpreter() == (conda, "the active environment ($CONDA_PREFIX)")
    venv = python(machine / "venv")
    monkeypatch.setenv("VIRTUAL_ENV", str(machine / "venv"))
    assert find_interpreter() == (venv, "the active environment ($VIRTUAL_ENV)")
    assert find_interpreter(str(on_path)) == (on_path, "given with --python")


def test_a_stale_variable_is_passed_over_and_said(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = python(machine)
    monkeypatch.setenv("VIRTUAL_ENV", str(machine / "deleted"))
    found, why = find_interpreter()
    assert found == on_path
    assert "$VIRTUAL_ENV names a folder without a Python" in why


def test_what_may_be_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv = python(machine / "venv")
    python(machine, "python3.11")
    assert find_interpreter(str(machine / "venv"))[0] == venv
    assert find_interpreter("python3.11")[0] == machine / "bin" / "python3.11"
    monkeypatch.chdir(machine)
    assert find_interpreter("venv/bin/python3")[0] == venv


def test_a_link_is_not_followed(machine: Path) -> None:
    """The python of a virtual environment is a link to its base, which has other packages."""
    base = python(machine / "base")
    link = machine / "venv" / "bin" / "python3"
    link.parent.mkdir(parents=True)
    link.symlink_to(base)
    assert find_interpreter(str(link))[0] == link


@pytest.mark.parametrize("name", ["python9", "folder"])
def test_what_is_not_there(machine: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "folder").mkdir()
    monkeypatch.chdir(machine)
    with pytest.raises(TargetError) as caught:
        find_interpreter(name)
    assert name in caught.value.message
    assert caught.value.hint


def test_files_that_cannot_run(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_program(*_: object, **__: object) -> None:
        pytest.fail("nothing may be started")

    monkeypatch.setattr(local, "run", no_program)
    plain = machine / "plain"
    plain.write_text("")
    for path, says in (
        (machine / "missing", "does not exist"),
        (machine, "is not a file"),
        (plain, "may not be executed"),
    ):
        with pytest.raises(TargetError, match=says) as caught:
            LocalInterpreter(path).run_probe(ProbeCall(probe="observe"))
        assert "--python" in str(caught.value.hint)


def test_messages_name_no_home() -> None:
    assert LocalInterpreter(Path("/home/user1/v/bin/python")).describe() == "python:~/v/bin/python"
