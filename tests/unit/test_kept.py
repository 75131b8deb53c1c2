"""What is kept between builds has a bound: the least recently used goes first, nothing in use."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from envlock.image import fetch
from envlock.image.fetch import Shelves
from envlock.image.kept import IN_USE_S, STRAY, mark_used, prune, sweep
from tests.unit.wheels import make_wheel


def entry(folder: Path, name: str, *, size: int = 100, unused_s: float = 10 * IN_USE_S) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "layer.tar").write_bytes(bytes(size))
    aged(path, unused_s)
    return path


def aged(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    for number in range(4):
        entry(tmp_path, f"{number}", unused_s=(10 + number) * IN_USE_S)
    mark_used(tmp_path / "3")
    assert prune(tmp_path, 250) == 200
    assert names(tmp_path) == ["0", "3"]
    assert prune(tmp_path, 250) == 0


def test_what_a_running_build_may_need_stays_though_it_does_not_fit(tmp_path: Path) -> None:
    entry(tmp_path, "old")
    entry(tmp_path, "new", unused_s=IN_USE_S / 2)
    assert prune(tmp_path, 0) == 100
    assert names(tmp_path) == ["new"]


def test_files_that_were_handed_out_as_hard_links_live_on(tmp_path: Path) -> None:
    kept = entry(tmp_path / "layers", "old")
    os.link(kept / "layer.tar", tmp_path / "given.tar")
    prune(tmp_path / "layers", 0)
    assert (tmp_path / "given.tar").read_bytes() == bytes(100)


def test_downloads_that_are_used_stay_when_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MOST_FILES_BYTES", 150)
    wanted = make_wheel(tmp_path / "made")
    cache = tmp_path / "cache"
    digest = wanted.wheel.hashes["sha256"]
    (cache / digest).mkdir(parents=True)
    (tmp_path / "made" / wanted.wheel.filename).rename(cache / digest / wanted.wheel.filename)
    aged(cache / digest, 20 * IN_USE_S)
    entry(cache, "old")
    found = fetch.gather([wanted], Shelves(folders=[], cache=cache), lambda _: None)
    assert found == {"demo": cache / digest / wanted.wheel.filename}
    assert names(cache) == [digest]


def test_nothing_to_do(tmp_path: Path) -> None:
    assert prune(tmp_path / "none", 0) == 0
    entry(tmp_path, "old")
    (tmp_path / "file").write_bytes(bytes(10))
    entry(tmp_path, f"{STRAY}x")
    assert prune(tmp_path, 100) == 0
    assert names(tmp_path) == [f"{STRAY}x", "file", "old"]


def test_an_entry_that_cannot_be_taken_away_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(tmp_path, "old")

    def refused(self: Path, target: Path) -> None:
        raise PermissionError(13, "no", str(self), None, str(target))

    monkeypatch.setattr(Path, "rename", refused)
    assert prune(tmp_path, 0) == 0
    assert names(tmp_path) == ["old"]


def test_strays_of_killed_builds_are_swept_when_old(tmp_path: Path) -> None:
    aged(entry(tmp_path, f"{STRAY}old"), 100_000)
    entry(tmp_path, f"{STRAY}new", unused_s=60)
    sweep(tmp_path)
    assert names(tmp_path) == [f"{STRAY}new"]
