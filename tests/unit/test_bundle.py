"""The program that is fed: every file it needs, on every Python it must run on."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from envlock.targets.base import PROBES, ProbeCall
from envlock.targets.bundle import bundle

OBSERVE = sorted(path.stem for path in PROBES.glob("observe*.py"))


def run(program: bytes) -> dict[str, object]:
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(program, "probe", "exec"), names)
    return names


def test_siblings_come_before_who_imports_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.py").write_text("import os\nimport part_b\nresult = part_b.value + 1\n")
    (tmp_path / "part_b.py").write_text("import part_a\nvalue = part_a.value * 10\n")
    (tmp_path / "part_a.py").write_text("text = '''it's\n\"quoted\" \\\\ '''\nvalue = len(text)\n")
    before = set(sys.modules)
    try:
        assert run(bundle(tmp_path, "main"))["result"] == len('it\'s\n"quoted" \\ ') * 10 + 1
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


def test_one_file_is_fed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import os\n")
    assert bundle(tmp_path, "main") == b"import os\n"


@pytest.mark.parametrize("probe", ["observe", "observe_torch"])
def test_every_import_is_carried_or_of_the_standard_library(probe: str) -> None:
    program = ProbeCall(probe=probe).source()
    siblings = ast.literal_eval(program.split(b"\n", 1)[0].partition(b" = ")[2].decode())
    carried = {name for name, _ in siblings}
    for _, text in [*siblings, (probe, (PROBES / f"{probe}.py").read_text())]:
        for node in ast.walk(ast.parse(text)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in carried or top in sys.stdlib_module_names or top == "torch", name


@pytest.mark.parametrize("name", OBSERVE)
def test_python_3_8_can_read_it(name: str) -> None:
    ast.parse((PROBES / f"{name}.py").read_text("ascii"), feature_version=(3, 8))


def test_only_the_deep_probe_imports_torch() -> None:
    texts = {name: (PROBES / f"{name}.py").read_text() for name in OBSERVE}
    assert [name for name, text in texts.items() if "import torch\n" in text] == ["observe_torch"]
