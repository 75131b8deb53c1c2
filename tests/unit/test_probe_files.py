"""Files in a package that no RECORD names, and those that are nobody's business."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.probes import probe_module
from tests.unit.test_probe_packages import install, scan

files = probe_module("observe_files")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    install(folder, "numpy", "2.1", {"numpy/__init__.py": "a", "numpy/core/x.py": "b"})
    return folder


def put(site: Path, *paths: str) -> None:
    for path in paths:
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text("")


def unowned(*sites: Path) -> Any:
    return files.unowned_files(scan(*sites))


def test_a_planted_file_has_the_owner_of_its_package(site: Path) -> None:
    assert unowned(site) == {}
    put(site, "numpy/extra.py", "numpy/core/deep/lib.so")
    assert unowned(site) == {"numpy/extra.py": "numpy", "numpy/core/deep/lib.so": "numpy"}


@pytest.mark.parametrize(
    "path",
    [
        "numpy/__pycache__/x.cpython-311.pyc",
        "numpy/core/__pycache__/anything.nbi",
        "numpy/old.pyc",
        "numpy/.x.py.swp",
        "numpy/x.py~",
        "numpy/.nfs00000a",
        "numpy/.DS_Store",
        "~umpy/__init__.py",
        "other.py",
        "other/__init__.py",
        "numpy.libs/lib.so",
    ],
)
def test_what_tools_leave_and_what_is_no_package_of_a_distribution(site: Path, path: str) -> None:
    put(site, path)
    assert unowned(site) == {}


def test_two_distributions_in_one_package(site: Path) -> None:
    install(site, "numpy-plugin", "1", {"numpy/plugin.py": "c"})
    assert unowned(site) == {}


def test_a_namespace_belongs_to_nobody_and_its_packages_to_their_distributions(site: Path) -> None:
    install(site, "nvidia-a", "1", {"nvidia/a/__init__.py": "a"})
    put(site, "nvidia/README", "nvidia/b/__init__.py", "nvidia/a/new.so")
    assert unowned(site) == {"nvidia/a/new.so": "nvidia-a"}


def test_an_editable_install_has_its_code_elsewhere(site: Path, tmp_path: Path) -> None:
    note = {"url": "file:///x", "dir_info": {"editable": True}}
    install(site, "mine", "1", {"__editable__.mine.pth": "x"}, direct_url_json=json.dumps(note))
    put(site, "mine/__init__.py")
    assert unowned(site) == {}


def test_a_package_shared_with_a_distribution_without_record(site: Path) -> None:
    for name in ("old", "numpy_addons"):
        (site / f"{name}.egg-info").mkdir()
        (site / f"{name}.egg-info" / "PKG-INFO").write_text(f"Name: {name}\nVersion: 1\n\n")
    (site / "old.egg-info" / "top_level.txt").write_text("numpy\n")
    put(site, "numpy/by_old.py")
    assert unowned(site) == {}


def test_conda_lists_its_files_elsewhere(site: Path) -> None:
    (site / "numpy-2.1.dist-info" / "INSTALLER").write_text("conda\n")
    put(site, "numpy/extra.py")
    assert unowned(site) == {}


def test_each_site_by_itself_and_not_without_end(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_UNOWNED", 4)
    other = tmp_path / "other"
    other.mkdir()
    install(other, "torch", "2", {"torch/__init__.py": "a"})
    put(site, "numpy/a.py")
    put(other, *(f"torch/{number}.py" for number in range(9)))
    assert set(unowned(site, other).values()) == {"numpy", "torch"}
    assert len(unowned(site, other)) == 4
