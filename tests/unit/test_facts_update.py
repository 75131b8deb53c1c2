"""The updater: what it calls a difference, and that it changes nothing without being told."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from envlock.facts.tables import rows


def load() -> ModuleType:
    """Scripts are programs, not a package."""
    path = Path(__file__).resolve().parents[2] / "scripts" / "update_facts.py"
    spec = importlib.util.spec_from_file_location("update_facts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["update_facts"] = module
    spec.loader.exec_module(module)
    return module


update_facts = load()
Resolve = Callable[[str, str, bool], str | None]


def row(release: str) -> dict[str, Any]:
    return copy.deepcopy(next(r for r in rows("torch_builds") if r["torch"] == release))


def resolver(row: dict[str, Any], **changed: str | None) -> Resolve:
    """Answers as the table says, with some versions changed; None takes a name out."""
    versions: dict[str, str | None] = {
        **row["pins_linux_x86_64"],
        "triton": row["triton"]["spec"][2:],
    }
    versions |= {name.replace("_", "-"): version for name, version in changed.items()}
    tags = row["wheel_python_tags"][row["linux_x86_64"]["platform_tag"]]

    def resolve(requirement: str, python: str, deps: bool) -> str | None:  # noqa: FBT001
        assert requirement == f"torch=={row['torch']}"
        if f"cp{python.replace('.', '')}" not in tags:
            return None
        lines = [f"{n}=={v}    # via torch" for n, v in versions.items() if v]
        return "\n".join(lines if deps else [requirement])

    return resolve


@pytest.mark.parametrize("release", ["2.3.0", "2.8.0", "2.11.0"])
def test_nothing_differs_from_what_is_stored(release: str) -> None:
    assert list(update_facts.differences(row(release), resolver(row(release)))) == []


def test_a_changed_pin_is_a_difference() -> None:
    stored = row("2.3.0")
    (change,) = update_facts.differences(stored, resolver(stored, nvidia_nccl_cu12="2.99.0"))
    assert str(change) == "torch 2.3.0 pin nvidia-nccl-cu12: 2.20.5 -> 2.99.0"
    update_facts.apply(stored, [change], "2027-01-01")
    assert stored["pins_linux_x86_64"]["nvidia-nccl-cu12"] == "2.99.0"
    assert stored["checked"] == "2027-01-01"


def test_a_changed_triton_is_a_difference() -> None:
    stored = row("2.4.0")
    (change,) = update_facts.differences(stored, resolver(stored, triton="3.9.9"))
    update_facts.apply(stored, [change], "2027-01-01")
    assert stored["triton"]["spec"] == "==3.9.9"


def test_a_pin_that_is_gone_is_told_and_not_written() -> None:
    stored = row("2.3.0")
    (change,) = update_facts.differences(stored, resolver(stored, nvidia_nccl_cu12=None))
    update_facts.apply(stored, [change], "2027-01-01")
    assert stored["pins_linux_x86_64"]["nvidia-nccl-cu12"] == "2.20.5"


def test_another_python_is_a_difference() -> None:
    stored = row("2.3.0")
    resolve = resolver(row("2.3.0"))
    stored["wheel_python_tags"][stored["linux_x86_64"]["platform_tag"]].append("cp313")
    (change,) = update_facts.differences(stored, resolve)
    assert change.field == "Pythons"


def test_a_release_that_is_gone_is_a_difference() -> None:
    (change,) = update_facts.differences(row("2.3.0"), lambda *_: None)
    assert change.field == "wheel"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copied = tmp_path / "torch_builds.json"
    copied.write_bytes(update_facts.TABLE.read_bytes())
    monkeypatch.setattr(update_facts, "TABLE", copied)
    return copied


def test_nothing_is_written_without_the_flag(table: Path) -> None:
    before = table.read_bytes()
    changed = resolver(row("2.3.0"), triton="9.9.9")
    assert update_facts.main(["2.3.0"], changed) == 1
    assert table.read_bytes() == before
    assert update_facts.main(["--write", "2.3.0"], changed) == 1
    written = table.read_text(encoding="utf-8")
    assert update_facts.dumped(json.loads(written)) == written
    assert update_facts.main(["2.3.0"], changed) == 0


def test_a_resolver_that_fails_is_said_to(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(requirement: str, python: str, deps: bool) -> str | None:  # noqa: FBT001
        raise update_facts.ResolverError("the index cannot be reached")

    assert update_facts.main(["2.3.0"], fails) == 2
    assert "cannot be reached" in capsys.readouterr().err


def test_an_unlisted_release_is_a_usage_error(table: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        update_facts.main(["9.9.9"])
    assert stop.value.code == 2
