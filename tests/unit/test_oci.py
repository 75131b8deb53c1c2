"""Layouts: same input, same bytes; what is read back is what was written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from envlock.errors import InputError
from envlock.image.oci import (
    ImageConfig,
    Layer,
    canonical_json,
    read_layout,
    sha256,
    write_layer,
    write_layout,
)

EPOCH = 1_577_836_800
CONFIG = ImageConfig(
    architecture="amd64", epoch=EPOCH, env={"B": "2", "A": "1"}, labels={"k": "v"}, cmd=["sh"]
)


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, io.BytesIO(content)


def a_layer(folder: Path, **fields: object) -> Layer:
    return write_layer(
        folder / "layer.tar",
        [entry("etc", type=tarfile.DIRTYPE), entry("etc/f", b"x", **fields)],
        epoch=EPOCH,
    )


def test_only_what_belongs_to_the_image_reaches_the_layer(tmp_path: Path) -> None:
    plain = a_layer(tmp_path)
    noisy = a_layer(
        tmp_path, mtime=99, uname="me", gname="us", pax_headers={"comment": "c", "atime": "1.5"}
    )
    assert noisy.digest == plain.digest
    for changed in ("uid", "gid", "mode"):
        assert a_layer(tmp_path, **{changed: 0o4755}).digest != plain.digest
    with_xattr = a_layer(tmp_path, pax_headers={"SCHILY.xattr.security.capability": "x"})
    assert with_xattr.digest != plain.digest


def test_a_layer_has_the_digest_and_size_of_its_bytes(tmp_path: Path) -> None:
    layer = a_layer(tmp_path)
    data = layer.path.read_bytes()
    assert layer.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert layer.size_bytes == len(data)
    with tarfile.open(layer.path) as tar:
        assert [(m.name, m.mtime, m.uname) for m in tar] == [
            ("etc", EPOCH, ""),
            ("etc/f", EPOCH, ""),
        ]


def test_links_keep_their_targets(tmp_path: Path) -> None:
    soft = entry("soft", type=tarfile.SYMTYPE, linkname="f")
    hard = entry("hard", b"content that a link does not have", type=tarfile.LNKTYPE, linkname="f")
    layer = write_layer(tmp_path / "l.tar", [entry("f", b"1"), hard, soft], epoch=EPOCH)
    with tarfile.open(layer.path) as tar:
        assert tar.extractfile("hard").read() == b"1"  # type: ignore[union-attr]
        assert tar.getmember("soft").linkname == "f"


def test_the_same_image_has_the_same_digest(tmp_path: Path) -> None:
    first = write_layout(tmp_path / "1", [a_layer(tmp_path)], CONFIG)
    second = write_layout(tmp_path / "2", [a_layer(tmp_path)], CONFIG)
    assert first == second
    later = ImageConfig(architecture="amd64", epoch=EPOCH + 1)
    assert write_layout(tmp_path / "3", [a_layer(tmp_path)], later) != first


def test_a_layout_is_complete(tmp_path: Path) -> None:
    layer = a_layer(tmp_path)
    digest = write_layout(tmp_path / "image", [layer], CONFIG)
    layout = read_layout(tmp_path / "image")
    assert layout.manifest_digest == digest == sha256(layout.manifest)
    manifest = json.loads(layout.manifest)
    for part in (manifest["config"], *manifest["layers"]):
        blob = layout.blob(part["digest"])
        assert blob is not None
        assert blob.stat().st_size == part["size"]
        assert sha256(blob.read_bytes()) == part["digest"]
    config = json.loads((layout.blob(manifest["config"]["digest"]) or Path()).read_bytes())
    assert config["rootfs"]["diff_ids"] == [layer.digest]
    assert config["created"] == "2020-01-01T00:00:00Z"
    assert config["config"]["Env"] == ["A=1", "B=2"]
    assert len(config["history"]) == 1


def test_a_blob_is_named_by_digest_and_nothing_else(tmp_path: Path) -> None:
    write_layout(tmp_path / "image", [a_layer(tmp_path)], CONFIG)
    layout = read_layout(tmp_path / "image")
    for name in (
        "sha256:../../oci-layout",
        "sha256:" + "0" * 64,
        "sha512:" + "0" * 64,
        "",
        "index.json",
    ):
        assert layout.blob(name) is None


def spoil_manifest(folder: Path) -> None:
    digest = read_layout(folder).manifest_digest.removeprefix("sha256:")
    (folder / "blobs" / "sha256" / digest).write_bytes(b"{}")


def remove_index(folder: Path) -> None:
    (folder / "index.json").unlink()


def junk_index(folder: Path) -> None:
    (folder / "index.json").write_bytes(b"\xff")


def deep_index(folder: Path) -> None:
    (folder / "index.json").write_bytes(b"[" * 200_000)


def two_images(folder: Path) -> None:
    index = json.loads((folder / "index.json").read_bytes())
    index["manifests"] *= 2
    (folder / "index.json").write_bytes(canonical_json(index))


@pytest.mark.parametrize(
    "spoil", [spoil_manifest, remove_index, junk_index, deep_index, two_images]
)
def test_a_bad_layout_is_refused(tmp_path: Path, spoil: object) -> None:
    write_layout(tmp_path / "image", [a_layer(tmp_path)], CONFIG)
    assert callable(spoil)
    spoil(tmp_path / "image")
    with pytest.raises(InputError) as caught:
        read_layout(tmp_path / "image")
    assert str(tmp_path / "image") in caught.value.message
    assert caught.value.hint


def test_a_failed_layout_is_no_layout(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "image")  # noqa: PTH102
    with pytest.raises(InputError):
        read_layout(tmp_path / "image")
