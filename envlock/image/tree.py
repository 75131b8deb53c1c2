"""The files of layers, to compare images whatever built them: path, mode, size, content, link."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from envlock.image.oci import canonical_json, sha256

T = TypeVar("T")
_CHUNK = 1 << 20
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    kind: str
    """``file``, ``folder``, ``link``, or tarfile's type for what no image of envlock's has."""
    mode: int
    size: int = 0
    sha256: str = ""
    link: str = ""


Tree = Mapping[str, Node]


def read_tree(layers: Iterable[Path]) -> Tree:
    """The files of some layers, the lowest first: later ones replace, whiteouts remove."""
    tree: dict[str, Node] = {}
    for layer in layers:
        with tarfile.open(layer) as tar:
            stack(tree, tar, lambda info: _node(tar, info))
    return dict(sorted(tree.items()))


def tree_digest(tree: Tree) -> str:
    return sha256(canonical_json({path: asdict(node) for path, node in sorted(tree.items())}))


def differing(left: Tree, right: Tree) -> Sequence[str]:
    """Paths that are not the same on both sides, with what is not the same about them."""
    lines = []
    for path in sorted({*left, *right}):
        one, other = left.get(path), right.get(path)
        if one is None or other is None:
            lines.append(f"{path}: only in the {'second' if one is None else 'first'}")
        elif one != other:
            before, after = asdict(one), asdict(other)
            what = ", ".join(key for key in before if before[key] != after[key])
            lines.append(f"{path}: {what}")
    return lines


def _node(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Node:
    mode = info.mode & 0o7777
    if info.isdir():
        return Node(kind="folder", mode=mode)
    if info.issym() or info.islnk():
        return Node(kind="link" if info.issym() else "hard link", mode=mode, link=info.linkname)
    if not info.isreg():
        return Node(kind=info.type.decode("ascii", "replace"), mode=mode)
    data = tar.extractfile(info)
    assert data
    digest = hashlib.sha256()
    while chunk := data.read(_CHUNK):
        digest.update(chunk)
    return Node(kind="file", mode=mode, size=info.size, sha256=digest.hexdigest())


def stack(tree: dict[str, T], tar: tarfile.TarFile, node: Callable[[tarfile.TarInfo], T]) -> None:
    """Put a layer upon what ``tree`` holds.

    Whiteouts hide what is in lower layers, wherever in theirs they stand (image-spec 1.1, layer.md).
    """
    files = [(info.name.removeprefix("./").strip("/"), info) for info in tar]
    for name, _ in files:
        folder, _, last = name.rpartition("/")
        if last.startswith(".wh."):
            hidden = folder if last == _OPAQUE else f"{folder}/{last[4:]}".strip("/")
            if last != _OPAQUE:
                tree.pop(hidden, None)
            for below in [path for path in tree if path.startswith(f"{hidden}/")]:
                del tree[below]
    for name, info in files:
        if name and not name.rpartition("/")[2].startswith(".wh."):
            tree[name] = node(info)
