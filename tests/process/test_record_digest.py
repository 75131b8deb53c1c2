"""One wheel, installed by pip and by uv, in two layouts: one RECORD digest."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envlock.targets.local import LocalInterpreter
from envlock.targets.observe import observe

UV = str(Path(sys.executable).parent / "uv")

FILES = {
    "small/__init__.py": "value = 1\n",
    "small/data, with comma.txt": "x\n",
    "small-1.0.data/scripts/small-tool": "#!python\nprint(1)\n",
    "small-1.0.data/data/share/man/man1/small.1": "manual\n",
    "small-1.0.data/headers/small.h": "int small;\n",
    "small-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
    "small-1.0.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
    "small-1.0.dist-info/entry_points.txt": "[console_scripts]\nsmall = small:main\n",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), FILES)


def build(folder: Path, files: dict[str, str]) -> Path:
    """A wheel with scripts, headers and data, which installers put outside the site folder."""
    path = folder / "small-1.0-py3-none-any.whl"
    record = "".join(record_lines(files)) + "small-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, "small-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return path


def record_lines(files: dict[str, str]) -> Iterator[str]:
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
        quoted = f'"{name}"' if "," in name else name
        yield f"{quoted},sha256={digest.rstrip('=')},{len(text)}\n"


def make_venv(folder: Path, *options: str) -> Path:
    command = [UV, "venv", "--quiet", "--python", sys.executable, *options, str(folder)]
    subprocess.run(command, check=True)
    return folder / "bin" / "python"


def with_pip(python: Path, wheel: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-index",
    ]
    subprocess.run([*command, wheel], check=True)


def with_uv(python: Path, wheel: Path) -> None:
    command = [UV, "pip", "install", "--quiet", "--no-index", "--python", str(python)]
    subprocess.run([*command, wheel], check=True)


def small_of(python: Path) -> Any:
    return observe(LocalInterpreter(python)).find("packages.small")


def test_pip_and_uv_agree(wheel: Path, tmp_path: Path) -> None:
    one, two = make_venv(tmp_path / "one"), make_venv(tmp_path / "elsewhere" / "two")
    with_pip(one, wheel)
    with_uv(two, wheel)
    by_pip, by_uv = small_of(one), small_of(two)
    assert (by_pip.installer, by_uv.installer) == ("pip", "uv")
    assert by_pip.record.startswith("sha256:")
    assert by_pip.record == by_uv.record


def test_bytecode_makes_no_difference(wheel: Path, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    command = [UV, "pip", "install", "--quiet", "--no-index", "--python", str(python)]
    subprocess.run([*command, "--compile-bytecode", wheel], check=True)
    other = make_venv(tmp_path / "other")
    with_uv(other, wheel)
    assert small_of(python).record == small_of(other).record


def test_one_changed_byte_shows(wheel: Path, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "one")
    with_uv(python, wheel)
    changed = build(tmp_path, {**FILES, "small/__init__.py": "value = 2\n"})
    other = make_venv(tmp_path / "two")
    with_uv(other, changed)
    assert small_of(python).record != small_of(other).record


# --- files against RECORD -----------------------------------------------------------------------


def test_check_files(wheel: Path, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    with_uv(python, wheel)
    target = LocalInterpreter(python)
    whole = observe(target, check_files=True).find("files")
    assert (whole.altered, whole.missing) == ({}, {})
    assert whole.checked >= len(FILES)
    (site,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    (site / "small" / "__init__.py").write_text("value = 3\n")
    (site / "small" / "data, with comma.txt").unlink()
    found = observe(target, check_files=True).find("files")
    assert found.altered == {"small/__init__.py": "small"}
    assert found.missing == {"small/data, with comma.txt": "small"}
    assert found.checked == whole.checked - 1


def test_files_that_nobody_installed(tmp_path: Path) -> None:
    """Real wheels, one editable install and one namespace package; then files are planted."""
    python = make_venv(tmp_path / "venv")
    project = tmp_path / "project"
    for name, text in {"pyproject.toml": EDITABLE, "mine/__init__.py": "", "mine/b.py": ""}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    command = [UV, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
    named = ["six==1.16.0", "markupsafe==3.0.2", "jinja2==3.1.6", "zope.interface==7.2"]
    subprocess.run([*command, *named, "-e", str(project)], check=True)
    target = LocalInterpreter(python)
    assert observe(target, check_files=True).find("files.unowned") == {}
    (site,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    (site / "jinja2" / "sitecustomize_extra.py").write_text("")
    (site / "zope" / "interface" / "extra.so").write_text("")
    (site / "jinja2" / ".nfs000001").write_text("")
    assert observe(target, check_files=True).find("files.unowned") == {
        "jinja2/sitecustomize_extra.py": "jinja2",
        "zope/interface/extra.so": "zope-interface",
    }


EDITABLE = """\
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"
[project]
name = "mine"
version = "1"
[tool.setuptools]
packages = ["mine"]
"""


def test_progress_is_told(wheel: Path, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv")
    with_uv(python, wheel)
    steps: list[tuple[int, int]] = []
    observe(
        LocalInterpreter(python),
        check_files=True,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert steps
    assert steps[-1][0] == steps[-1][1] > 0
