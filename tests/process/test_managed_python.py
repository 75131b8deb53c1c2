"""The real uv brings a standalone Python: from a mirror, checked against what its list says."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from envlock.errors import BuildError
from envlock.image.fetch import Shelves
from envlock.image.managed_python import artifact, find_managed
from tests.uv_mirror import Mirror, make_mirror

VERSION = "3.12.4"


@pytest.fixture
def shelves(tmp_path: Path) -> Shelves:
    return Shelves(folders=[], cache=tmp_path / "cache")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    program = tmp_path / "python3.12"
    program.write_text(
        "# system configuration generated and used by the sysconfig module\nbuild_time_vars = {}\n"
    )

    def fill(tar: tarfile.TarFile) -> None:
        tar.add(program, "python/bin/python3.12")
        # Without it uv takes no tree for a Python.
        tar.add(program, "python/lib/python3.12/_sysconfigdata__linux_x86_64-linux-gnu.py")

    made = make_mirror(tmp_path, VERSION, fill)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def test_what_uv_brings_is_kept_under_its_digest(mirror: Mirror, shelves: Shelves) -> None:
    said: list[str] = []
    found = find_managed(VERSION, shelves, said.append, None)
    assert found.url.startswith("https://"), "not the mirror of this machine"
    assert found.url.endswith(mirror.place)
    assert found.sha256 == mirror.sha256
    (kept,) = (path for path in shelves.cache.rglob("*") if path.is_file())
    assert kept == shelves.cache / found.sha256 / artifact(found, VERSION).wheel.filename
    assert kept.read_bytes() == mirror.archive.read_bytes()
    assert said == [f"asking uv for {mirror.archive.name}"]


def test_an_altered_file_in_the_mirror_is_refused(mirror: Mirror, shelves: Shelves) -> None:
    with mirror.archive.open("ab") as file:
        file.write(b"more")
    with pytest.raises(BuildError, match=r"uv could not bring Python 3\.12\.4") as caught:
        find_managed(VERSION, shelves, lambda _: None, None)
    assert "Hash mismatch" in caught.value.message
    assert [path for path in shelves.cache.rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("mirror")
def test_a_version_that_uv_does_not_have(shelves: Shelves) -> None:
    with pytest.raises(BuildError, match=r"no standalone build of Python 3\.12\.99"):
        find_managed("3.12.99", shelves, lambda _: None, None)


def test_nothing_is_fetched_offline(mirror: Mirror, tmp_path: Path) -> None:
    shelves = Shelves(folders=[], cache=tmp_path / "cache", offline=True)
    with pytest.raises(BuildError, match="has to be fetched") as caught:
        find_managed(VERSION, shelves, lambda _: None, None)
    assert mirror.archive.name in caught.value.message
    assert not shelves.cache.exists()


def test_uvs_own_list_has_the_builds(monkeypatch: pytest.MonkeyPatch, shelves: Shelves) -> None:
    """The list is inside uv: with a mirror that has nothing, it is the file that is missing."""
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "file:///nonexistent")
    with pytest.raises(BuildError, match=r"uv could not bring Python 3\.11\.9"):
        find_managed("3.11.9", shelves, lambda _: None, None)
