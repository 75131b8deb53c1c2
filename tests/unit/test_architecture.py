"""Who may import whom, read from the syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "envlock"
SHARED = {"findings", "errors", "redact", "neutral", "__init__"}
MAY_USE = {
    "cli": {"cli", "targets", "lock", "diff", "rules", "facts", "image", "report", "allocator"},
    "image": {"image", "targets", "diff", "rules", "lock", "facts"},
    "targets": {"targets", "lock", "facts", "allocator"},
    "diff": {"diff", "rules", "lock", "facts"},
    "rules": {"rules", "lock", "facts"},
    "lock": {"lock"},
    "facts": {"facts"},
    "report": {"report"},
    "allocator": {"allocator"},
    "__main__.py": {"cli"},
}
EXCEPTIONS = {("lock/resolve.py", "targets.process")}  # uv is a program, and programs have one door
ONLY_IN = {
    "subprocess": {"targets/process.py"},
    "docker": {"targets/engine.py", "targets/engine_errors.py", "targets/hijack.py"},
    "torch": set[str](),
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("probe/", "templates/")):
            yield name, ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_import_direction() -> None:
    wrong = []
    for name, tree in modules():
        folder = name.partition("/")[0]
        allowed = MAY_USE.get(folder, set()) | SHARED
        for imported in imports(tree):
            if not imported.startswith("envlock."):
                continue
            path = imported.removeprefix("envlock.")
            target = path.partition(".")[0]
            known = target in allowed or target == "__version__"
            excused = any(name == n and path.startswith(p) for n, p in EXCEPTIONS)
            if not known and not excused:
                wrong.append(f"{name} imports {imported}")
    assert not wrong


@pytest.mark.parametrize("library", ONLY_IN)
def test_one_door_for(library: str) -> None:
    users = {
        name
        for name, tree in modules()
        if any(i == library or i.startswith(f"{library}.") for i in imports(tree))
    }
    assert users <= ONLY_IN[library]


def test_nothing_imports_a_probe() -> None:
    users = [
        n for n, tree in modules() if any(i.startswith("envlock.probe") for i in imports(tree))
    ]
    assert not users


def test_one_module_makes_templates_environments() -> None:
    users = {name for name, tree in modules() if any(i.startswith("jinja2") for i in imports(tree))}
    assert users <= {"image/render.py", "report/html.py"}
    for name, tree in modules():
        called = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        assert "from_string" not in called, name


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from envlock.cli import run; run(['--help']); run(['capture', '--help']);"
        "print([m for m in ('torch', 'docker', 'jinja2', 'rich', 'requests', 'tomlkit', 'envlock.lock')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
