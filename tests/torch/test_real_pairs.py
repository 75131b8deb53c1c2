"""Two real environments side by side: a patched file and a planted one lead; harmless ones are silent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.torch.interpreter import torch_python

ENVLOCK = str(Path(sys.executable).parent / "envlock")
UV = str(Path(sys.executable).parent / "uv")


def envlock(*arguments: str, expect: int = 0) -> dict[str, Any]:
    command = [ENVLOCK, *arguments, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == expect, done.stderr[-2000:]
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Another environment with the same content at another place; files are shared, so replace them."""
    home = tmp_path / "some where" / "else"
    prefix = subprocess.run(
        [torch_python(), "-c", "import sys; print(sys.prefix)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    shutil.copytree(prefix, home, symlinks=True, copy_function=_link)
    return home


def site(home: Path) -> Path:
    (found,) = home.glob("lib/python3*/site-packages")
    return found


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.unlink()
    path.write_text(text.replace(old, new))


def sides(home: Path) -> tuple[str, str]:
    return f"python:{torch_python()}", f"python:{home / 'bin' / 'python'}"


def test_a_patched_file_leads(copy: Path) -> None:
    """One default of an optimiser: in no list of versions, and every run is another."""
    replace(
        site(copy) / "torch" / "optim" / "adamw.py",
        "weight_decay: float = 1e-2",
        "weight_decay: float = 1e-1",
    )
    (site(copy) / "torch" / "sitecustomize_extra.py").write_text("print('here')\n")
    verdict = envlock("diff", *sides(copy), "--check-files", expect=1)
    lead, *rest = verdict["findings"]
    assert (lead["code"], lead["severity"], lead["subject"]) == ("EL116", "error", "packages.torch")
    assert "torch/optim/adamw.py" in lead["message"]
    told = [(f["code"], f["message"]) for f in [*lead["folded"], *rest] if f["severity"] != "info"]
    assert [code for code, _ in told] == ["EL122"]
    assert "torch/sitecustomize_extra.py" in told[0][1]


def test_what_differs_only_harmlessly_is_silent(copy: Path) -> None:
    """Another folder, another installer, another patch release of a small package."""
    python = copy / "bin" / "python"
    listed = [UV, "pip", "list", "--format", "json", "--python", str(python)]
    have = {
        entry["name"].lower(): entry["version"]
        for entry in json.loads(subprocess.run(listed, capture_output=True, check=True).stdout)
    }
    other = "3.15.4" if have["filelock"] != "3.15.4" else "3.16.1"
    wanted = [
        f"filelock=={other}",
        f"markupsafe=={have['markupsafe']}",
        f"jinja2=={have['jinja2']}",
    ]
    command = [UV, "pip", "install", "--quiet", "--no-deps", "--reinstall", "--python", str(python)]
    subprocess.run([*command, *wanted], check=True)
    verdict = envlock("diff", *sides(copy), "--check-files")
    assert verdict["result"] == "pass"
    assert [f["code"] for f in verdict["findings"] if f["severity"] != "info"] == []
    assert "packages.filelock" in {f["subject"] for f in verdict["findings"]}
    assert verdict["checked"] > 100
