"""The search of ld.so, rule by rule, on libraries of a hundred bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.elves import AARCH64, X86_64, write_cache, write_elf
from tests.unit.probes import probe_module

elf = probe_module("observe_elf")

KIND = (2, X86_64)


def search(tmp_path: Path, library_path: str = "", cached: Path | None = None) -> Any:
    cache = write_cache(tmp_path / "cache", {"libx.so.1": cached} if cached else {})
    found = elf.Search(KIND, {"LD_LIBRARY_PATH": library_path}, str(cache))
    found.default = [str(tmp_path / "default")]
    return found


def first(found: tuple[str, str] | None, tmp_path: Path) -> tuple[str, str] | None:
    return None if found is None else (str(Path(found[0]).relative_to(tmp_path)), found[1])


def test_the_dynamic_section(tmp_path: Path) -> None:
    path = write_elf(
        tmp_path / "a" / "liba.so",
        needed=["libx.so.1", "libc.so.6"],
        soname="liba.so.1",
        rpath="$ORIGIN/../b:${ORIGIN}:/usr/lib",
    )
    read = elf.read_elf(str(path))
    assert read.kind == KIND
    assert read.needed == ["libx.so.1", "libc.so.6"]
    assert read.soname == "liba.so.1"
    assert read.rpath == [str(tmp_path / "b"), str(tmp_path / "a"), "/usr/lib"]
    assert read.runpath == []


@pytest.mark.parametrize("size", [0, 3, 63, 100, 180])
def test_a_cut_file_is_no_library(tmp_path: Path, size: int) -> None:
    path = write_elf(tmp_path / "liba.so", needed=["libx.so.1"])
    path.write_bytes(path.read_bytes()[:size])
    assert elf.read_elf(str(path)) is None


def test_what_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "script.so").write_text("GROUP ( /lib/libc.so.6 )")
    assert elf.read_elf(str(tmp_path / "script.so")) is None
    assert elf.read_elf(str(tmp_path)) is None
    assert elf.read_elf(str(tmp_path / "missing.so")) is None


@pytest.mark.parametrize("old_header", [False, True])
def test_the_cache(tmp_path: Path, *, old_header: bool) -> None:
    cache = write_cache(tmp_path / "c", {"libx.so.1": Path("/usr/lib/x")}, old_header=old_header)
    assert elf.read_cache(str(cache)) == {"libx.so.1": ["/usr/lib/x"]}


def test_no_cache(tmp_path: Path) -> None:
    assert elf.read_cache(str(tmp_path / "missing")) == {}
    (tmp_path / "junk").write_bytes(b"junk")
    assert elf.read_cache(str(tmp_path / "junk")) == {}


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """One libx.so.1 for every place of the search."""
    for place in ("rpath", "runpath", "env", "cached", "default"):
        write_elf(tmp_path / place / "libx.so.1", soname="libx.so.1")
    return tmp_path


def test_rpath_comes_before_ld_library_path(copies: Path) -> None:
    user = write_elf(copies / "u.so", needed=["libx.so.1"], rpath=str(copies / "rpath"))
    found = search(copies, str(copies / "env"), copies / "cached/libx.so.1")
    order = [first(m, copies) for m in found.matches("libx.so.1", (elf.read_elf(str(user)),))]
    assert order == [
        ("rpath/libx.so.1", "rpath"),
        ("env/libx.so.1", "ld-library-path"),
        ("cached/libx.so.1", "system"),
        ("default/libx.so.1", "system"),
    ]


def test_runpath_comes_after_ld_library_path(copies: Path) -> None:
    """The wheels that use RUNPATH are the ones that a cluster module can shadow."""
    user = write_elf(copies / "u.so", needed=["libx.so.1"], runpath=str(copies / "runpath"))
    found = search(copies, str(copies / "env"), copies / "cached/libx.so.1")
    order = [first(m, copies) for m in found.matches("libx.so.1", (elf.read_elf(str(user)),))]
    assert order[:2] == [("env/libx.so.1", "ld-library-path"), ("runpath/libx.so.1", "rpath")]


def test_runpath_silences_rpath_of_the_same_file(copies: Path) -> None:
    user = write_elf(
        copies / "u.so",
        needed=["libx.so.1"],
        rpath=str(copies / "rpath"),
        runpath=str(copies / "runpath"),
    )
    found = search(copies).first("libx.so.1", (elf.read_elf(str(user)),))
    assert first(found, copies) == ("runpath/libx.so.1", "rpath")


def test_rpath_of_who_loaded_it_counts_and_runpath_does_not(copies: Path) -> None:
    plain = write_elf(copies / "plain.so", needed=["libx.so.1"])
    by_rpath = write_elf(copies / "r.so", rpath=str(copies / "rpath"))
    by_runpath = write_elf(copies / "s.so", runpath=str(copies / "runpath"))
    found = search(copies)
    chain = [elf.read_elf(str(p)) for p in (plain, by_rpath)]
    assert first(found.first("libx.so.1", chain), copies) == ("rpath/libx.so.1", "rpath")
    chain = [elf.read_elf(str(p)) for p in (plain, by_runpath)]
    assert first(found.first("libx.so.1", chain), copies) == ("default/libx.so.1", "system")


def test_a_library_for_another_machine_is_passed_over(copies: Path) -> None:
    write_elf(copies / "env" / "libx.so.1", machine=AARCH64)
    found = search(copies, str(copies / "env")).first("libx.so.1", ())
    assert first(found, copies) == ("default/libx.so.1", "system")


def test_one_file_under_two_names_is_one_match(copies: Path) -> None:
    (copies / "link").symlink_to(copies / "env")
    found = search(copies, f"{copies / 'env'}:{copies / 'link'}::")
    assert [how for _, how in found.matches("libx.so.1", ())] == ["ld-library-path", "system"]


def test_loading_is_breadth_first_and_once(tmp_path: Path) -> None:
    """a needs b and c; b needs x from its own folder; c, loaded later, gets the same x."""
    lib = tmp_path / "default"
    write_elf(lib / "liba.so", needed=["libb.so", "libc0.so"])
    write_elf(lib / "libb.so", needed=["libx.so.1"], runpath=str(tmp_path / "b"))
    write_elf(lib / "libc0.so", needed=["libx.so.1", "libgone.so"], runpath=str(tmp_path / "c"))
    write_elf(tmp_path / "b" / "libx.so.1")
    write_elf(tmp_path / "c" / "libx.so.1")
    loaded = elf.Loaded(search(tmp_path))
    loaded.load(str(lib / "liba.so"), "rpath")
    assert first(loaded.by_name["libx.so.1"], tmp_path) == ("b/libx.so.1", "rpath")
    assert loaded.missing == ["libgone.so"]


def test_a_soname_answers_for_a_file_of_another_name(tmp_path: Path) -> None:
    lib = tmp_path / "default"
    write_elf(lib / "liba.so", needed=["libgomp-a1b2c3d4.so.1", "libgomp.so.1"])
    write_elf(lib / "libgomp-a1b2c3d4.so.1", soname="libgomp.so.1")
    loaded = elf.Loaded(search(tmp_path))
    loaded.load(str(lib / "liba.so"), "rpath")
    assert loaded.missing == []
    assert loaded.by_name["libgomp.so.1"] == loaded.by_name["libgomp-a1b2c3d4.so.1"]


def test_the_string_table(tmp_path: Path) -> None:
    path = write_elf(tmp_path / "libstdc++.so.6", symbols=["GLIBCXX_3.4.9", "GLIBCXX_3.4.30"])
    assert b"GLIBCXX_3.4.30\0" in elf.string_table(elf.read_elf(str(path)))
    machine = probe_module("observe_machine")
    assert machine._glibcxx((str(path), "system")) == "3.4.30"
