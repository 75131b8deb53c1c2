"""The user's project: what .dockerignore says stays out, and what an image should not hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envlock.errors import InputError
from envlock.image.project import is_left_out, parse_rules, read_project
from envlock.image.unpack import Link


def project(folder: Path, *names: str, ignore: str | None = None) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    if ignore is not None:
        (folder / ".dockerignore").write_text(ignore)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.removeprefix("/workspace/") for path in read_project(folder))


@pytest.mark.parametrize(
    ("ignore", "name", "out"),
    [
        ("*.pyc", "a.pyc", True),
        ("*.pyc", "a/b.pyc", False),
        ("**/*.pyc", "a/b/c.pyc", True),
        ("**/*.pyc", "c.pyc", True),
        ("data", "data/x/y.bin", True),
        ("data", "database", False),
        ("/data/", "data/x", True),
        ("./data", "data/x", True),
        ("data/**", "data/x", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[a-c]x", "bx", True),
        ("[^a-c]x", "bx", False),
        ("# data", "# data", False),
        ("*\n!keep", "keep/x", False),
        ("*\n!keep\nkeep/x", "keep/x", True),
        ("a.b", "aXb", False),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        ("", "x", False),
    ],
)
def test_patterns_mean_what_they_mean_to_docker(ignore: str, name: str, out: bool) -> None:  # noqa: FBT001
    assert is_left_out(name, parse_rules(ignore)) is out


def test_files_links_and_modes_are_taken(tmp_path: Path) -> None:
    project(tmp_path, "train.py", "conf/a.toml", ".git/config", "data/big", "data/small")
    (tmp_path / "train.py").chmod(0o700)
    (tmp_path / "now").symlink_to("conf/a.toml")
    (tmp_path / "settings").symlink_to("conf")
    (tmp_path / ".dockerignore").write_text("data\n!data/small\n")
    entries = read_project(tmp_path)
    assert names(tmp_path) == [
        ".dockerignore",
        "conf/a.toml",
        "data/small",
        "now",
        "settings",
        "train.py",
    ]
    assert entries["/workspace/train.py"].executable
    assert not entries["/workspace/conf/a.toml"].executable
    assert entries["/workspace/settings"].content == Link(target="conf")


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside"])
def test_a_link_that_leads_outside_is_refused(target: str, tmp_path: Path) -> None:
    project(tmp_path, "x")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(InputError, match="leads outside"):
        read_project(tmp_path)
    (tmp_path / ".dockerignore").write_text("link")
    assert names(tmp_path) == [".dockerignore", "x"]


def test_a_pipe_and_a_strange_name_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="neither a file nor a link"):
        read_project(tmp_path)
    (tmp_path / "pipe").unlink()
    (tmp_path / "a\nb").write_text("")
    with pytest.raises(InputError, match="not a plain file name"):
        read_project(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        read_project(tmp_path / "missing")


def test_a_folder_that_cannot_be_read_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, "a/x", "b")
    listed = os.scandir

    def denied(place: str) -> object:
        if str(place).endswith("/a"):
            raise PermissionError(13, "Permission denied", str(place))
        return listed(place)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(InputError, match="/a: cannot be read"):
        read_project(tmp_path)
    (tmp_path / ".dockerignore").write_text("a\n")
    assert names(tmp_path) == [".dockerignore", "b"]
