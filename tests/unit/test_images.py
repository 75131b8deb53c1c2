"""The folders of images/ are whole and current, and an image that is not the expected one is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envlock.diff.requires import requirements
from envlock.lock.io import is_sealed, load_lock
from envlock.lock.observation import NOT_RECORDED
from scripts.images import IMAGES, LOCK, MARK, differing, facts_of, names, read_expected

FOLDERS = [IMAGES / name for name in names()]


def test_every_kind_has_a_folder() -> None:
    builds = {folder.name.rpartition("-")[2][:4] for folder in FOLDERS}
    assert {"cu12", "cu13", "cpu"} <= builds
    assert "torch-2.3.0-cu121" in names()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_is_whole_and_current(folder: Path) -> None:
    lock, expected = load_lock(folder / LOCK), read_expected(folder)
    assert is_sealed(lock)
    assert lock.table.id == expected.lock_id
    assert "://" not in (folder / LOCK).read_text()
    assert all(wheel.path for package in lock.packages for wheel in package.wheels or ())
    assert lock.table.machine_id == NOT_RECORDED == lock.observed.find("driver.version")
    assert "cpu" in lock.table.behaviour
    assert requirements(lock.observed)
    own, _, made = (folder / "README.md").read_text().partition(MARK)
    assert made == f"\n\n{facts_of(folder)}"
    assert len(own.split()) > 15, "what the image is for"


def test_what_is_not_as_expected_is_named() -> None:
    expected = replace(read_expected(IMAGES / "torch-2.13.0-cpu"), findings=())
    assert differing(expected, expected) == ""
    other = replace(expected, image_id="sha256:1", findings=("EL113",))
    assert f"image_id is sha256:1, not {expected.image_id}" in differing(other, expected)
    assert "findings is ('EL113',), not ()" in differing(other, expected)
    elsewhere = replace(expected, image_id="sha256:1", base="other@sha256:2")
    assert differing(elsewhere, expected) == ""
    assert "lock_id" in differing(replace(elsewhere, lock_id="x"), expected)
