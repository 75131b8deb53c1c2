"""One environment, one id: whoever installed it, wherever; and another id for another content."""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
import sys
from pathlib import Path

ENVLOCK = str(Path(sys.executable).parent / "envlock")
UV = str(Path(sys.executable).parent / "uv")
PACKAGES = ("six==1.16.0", "markupsafe==3.0.2")  # pure, and with an extension module


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return done.stdout


def lock_id(python: Path, folder: Path) -> str:
    lock = folder / "x.lock"
    run(ENVLOCK, "capture", "--offline", "--python", python, "-o", lock)
    return next(line for line in lock.read_text().splitlines() if line.startswith("id = "))


def test_pip_and_uv_in_two_folders_agree_and_a_changed_byte_shows(tmp_path: Path) -> None:
    by_pip, by_uv = tmp_path / "a" / "venv", tmp_path / "some where" / "else"
    run(sys.executable, "-m", "venv", by_pip)
    run(by_pip / "bin" / "pip", "install", "--quiet", *PACKAGES)
    run(UV, "venv", "--quiet", "--python", sys.executable, by_uv)
    run(UV, "pip", "install", "--quiet", "--python", by_uv / "bin" / "python", *PACKAGES)
    first = lock_id(by_pip / "bin" / "python", tmp_path)
    assert lock_id(by_uv / "bin" / "python", tmp_path) == first

    patch_with_record(next(by_uv.glob("lib/python3*/site-packages")))
    assert lock_id(by_uv / "bin" / "python", tmp_path) != first


def patch_with_record(site: Path) -> None:
    """One byte of six.py, and its RECORD told so: as if another wheel had been installed."""
    module = site / "six.py"
    content = module.read_bytes() + b"\n"
    module.unlink()  # a hard link into a cache, perhaps
    module.write_bytes(content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    record = site / "six-1.16.0.dist-info" / "RECORD"
    rows = list(csv.reader(record.read_text().splitlines()))
    changed = [
        [path, f"sha256={digest}", str(len(content))] if path == "six.py" else [path, *rest]
        for path, *rest in rows
    ]
    assert changed != rows
    record.unlink()
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(changed)
