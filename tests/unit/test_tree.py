"""Layers as one tree: later ones replace, whiteouts remove; what differs is named."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from envlock.image.tree import differing, read_tree, tree_digest


def layer(path: Path, files: dict[str, str], *, mode: int = 0o644, mtime: int = 0) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.mode, info.mtime, info.size = mode, mtime, len(content)
            if content.startswith("-> "):
                info.type, info.linkname, info.size = tarfile.SYMTYPE, content[3:], 0
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            tar.addfile(info, io.BytesIO(content.encode()))
    return path


def test_whiteouts_remove_and_later_layers_replace(tmp_path: Path) -> None:
    low = layer(tmp_path / "1", {"./a/": "", "a/x": "1", "a/y/z": "2", "b": "3", "c/d": "4"})
    high = layer(tmp_path / "2", {"a/.wh.y": "", "b": "-> a/x", "c/e": "5", "c/.wh..wh..opq": ""})
    tree = read_tree([low, high])
    assert list(tree) == ["a", "a/x", "b", "c/e"]
    assert (tree["b"].kind, tree["b"].link) == ("link", "a/x")


def test_times_and_order_do_not_count_and_all_else_does(tmp_path: Path) -> None:
    plain = read_tree([layer(tmp_path / "1", {"a": "1", "b": "2"})])
    same = read_tree([layer(tmp_path / "2", {"b": "2", "a": "1"}, mtime=9)])
    assert tree_digest(plain) == tree_digest(same)
    others = [
        read_tree([layer(tmp_path / "3", {"a": "1", "b": "2"}, mode=0o755)]),
        read_tree([layer(tmp_path / "4", {"a": "1", "b": "x"})]),
        read_tree([layer(tmp_path / "5", {"a": "1", "b": "-> a"})]),
        read_tree([layer(tmp_path / "6", {"a": "1"})]),
    ]
    assert len({tree_digest(plain), *map(tree_digest, others)}) == 5
    assert [list(differing(plain, one)) for one in others] == [
        ["a: mode", "b: mode"],
        ["b: sha256"],
        ["b: kind, size, sha256, link"],
        ["b: only in the first"],
    ]
