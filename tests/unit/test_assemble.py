"""Assembled images: a function of lock, base and format; layers found again; written whole."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from envlock.errors import BuildError, InputError, TargetError, UsageError
from envlock.image import layers
from envlock.image.assemble import Assembled, Sources, assemble
from envlock.image.base import BaseChoice, assembly_base, chosen_base
from envlock.image.fetch import Shelves
from envlock.image.layers import LayerStore, WantedLayer, layer_store
from envlock.image.oci import read_layout
from envlock.image.output import Kind, Output, archive, parse_output, write_archive, write_oci
from envlock.image.plan import Artifact, BuildPlan, Layer
from envlock.image.reproduce import compare
from envlock.image.tree import differing, read_tree, tree_digest
from envlock.image.unpack import Entry, Places
from envlock.targets.engine import Engine
from envlock.targets.image_info import image_info
from tests.unit.base_layouts import FILES, LABELS, base_layout, changed_base, search
from tests.unit.wheels import make_wheel

VERSION = "3.11.2"


@pytest.fixture
def wheels(tmp_path: Path) -> list[Artifact]:
    folder = tmp_path / "wheels"
    return [
        make_wheel(folder, {"torch/lib.so": b"t" * 5000}, name="torch"),
        make_wheel(folder, {"six.py": b"s"}, name="six"),
    ]


def build(tmp_path: Path, wheels: list[Artifact], base: str = "base", store: str = "store") -> Any:
    folder = tmp_path / base
    if not folder.exists():
        base_layout(folder)
    foundation = assembly_base(BaseChoice(reference=f"oci:{folder}"), search())
    plan = BuildPlan(
        base=foundation.base,
        python_version=VERSION,
        artifacts=tuple(wheels),
        layers=(
            Layer(name="torch", packages=("torch",)),
            Layer(name="packages", packages=tuple(w.name for w in wheels if w.name != "torch")),
        ),
        env=(("OMP_NUM_THREADS", "4"),),
        labels=(("org.envlock.format", "1"),),
    )
    shelves = Shelves(wheelhouse=tmp_path / "wheels", folders=[], cache=tmp_path / "cache")
    sources = Sources(foundation=foundation, shelves=shelves, store=LayerStore(tmp_path / store))
    return assemble(plan, b"the lock", sources, lambda _: None)


def test_the_same_inputs_give_the_same_image(tmp_path: Path, wheels: list[Artifact]) -> None:
    first = build(tmp_path, wheels)
    before = os.umask(0o077)
    try:
        second = build(tmp_path, wheels, store="other")
    finally:
        os.umask(before)
    assert (second.image_id, second.config) == (first.image_id, first.config)
    assert first.image_id == f"sha256:{hashlib.sha256(first.config).hexdigest()}"
    compare(first, second, ids=True)


def test_the_config_is_the_bases_with_what_the_plan_sets(
    tmp_path: Path, wheels: list[Artifact]
) -> None:
    image = build(tmp_path, wheels)
    config = json.loads(image.config)
    inside = config["config"]
    assert inside["Env"] == [
        "LANG=C.UTF-8",
        "PATH=/opt/env/bin:/usr/bin:/bin",
        "OMP_NUM_THREADS=4",
    ]
    assert inside["Labels"] == {**LABELS, "org.envlock.format": "1"}
    assert (inside["User"], inside["Cmd"], inside["Entrypoint"]) == (
        "10001:10001",
        ["python"],
        None,
    )
    assert config["created"] == "1980-01-01T00:00:00Z"
    assert len(config["history"]) == len(config["rootfs"]["diff_ids"]) == 3
    tree = read_tree([one.layer.path for one in image.layers])
    assert tree["opt/env/bin/python3.11"].link == "/usr/bin/python3.11"
    assert tree["opt/envlock/pylock.env.toml"].size == len(b"the lock")


def test_a_layer_whose_pins_did_not_change_is_not_written_again(
    tmp_path: Path, wheels: list[Artifact]
) -> None:
    first = build(tmp_path, wheels)
    wheels[1] = make_wheel(tmp_path / "wheels", {"six.py": b"new"}, name="six", version="2.0")
    (tmp_path / "wheels" / wheels[0].wheel.filename).unlink()  # it is not needed
    second = build(tmp_path, wheels)
    assert [one.reused for one in second.layers] == [True, False]
    assert second.diff_ids[0] == first.diff_ids[0]
    assert second.diff_ids[1] != first.diff_ids[1]


def test_the_base_is_not_part_of_a_layer(tmp_path: Path, wheels: list[Artifact]) -> None:
    first = build(tmp_path, wheels)
    base_layout(tmp_path / "other", {**FILES, "etc": "x"})
    second = build(tmp_path, wheels, base="other", store="other-store")
    assert second.diff_ids == first.diff_ids
    assert second.image_id != first.image_id


def test_a_wheel_at_hand_that_was_altered_is_refused_though_its_layer_is_known(
    tmp_path: Path, wheels: list[Artifact]
) -> None:
    build(tmp_path, wheels)
    path = tmp_path / "wheels" / wheels[0].wheel.filename
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(BuildError, match=r"torch: .*its hash differs"):
        build(tmp_path, wheels)


def test_a_wheel_that_cannot_be_read_is_named(tmp_path: Path, wheels: list[Artifact]) -> None:
    path = tmp_path / "wheels" / wheels[0].wheel.filename
    path.unlink()
    path.symlink_to("/proc/self/mem")  # a file that opens, and whose first byte nobody can read
    with pytest.raises(InputError, match=r"^torch: .*cannot be read: ") as caught:
        build(tmp_path, wheels)
    assert caught.value.hint


def test_a_stored_layer_that_was_touched_is_written_again(
    tmp_path: Path, wheels: list[Artifact]
) -> None:
    first = build(tmp_path, wheels)
    path = first.layers[0].layer.path
    data = path.read_bytes()
    path.write_bytes(data[:600] + b"!" + data[601:])
    second = build(tmp_path, wheels)
    assert [one.reused for one in second.layers] == [False, True]
    assert second.image_id == first.image_id
    assert path.read_bytes() == data


def test_a_refused_wheel_leaves_nothing(tmp_path: Path, wheels: list[Artifact]) -> None:
    wheels[1] = make_wheel(tmp_path / "wheels", {"../x": b""}, name="six")
    with pytest.raises(InputError, match=r"^six: "):
        build(tmp_path, wheels)
    stored = list((tmp_path / "store").iterdir())
    assert not [path for path in stored if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("files", "labels", "said"),
    [
        (FILES, {**LABELS, "org.envlock.base.python-version": "3.11.9"}, "Python 3.11.9, the lock"),
        (FILES, {}, "nothing in it says"),
        ({"usr/bin/python3": "-> python3.10", "usr/bin/python3.10": "p"}, LABELS, "no python3.11"),
        ({"usr/bin/python3": "-> python3"}, LABELS, "no python3.11"),
        ({**FILES, "opt": "-> var"}, LABELS, "/opt is not a folder"),
    ],
)
def test_a_base_that_does_not_fit_is_refused(
    files: dict[str, str],
    labels: dict[str, str],
    said: str,
    tmp_path: Path,
    wheels: list[Artifact],
) -> None:
    base_layout(tmp_path / "bad", files, labels=labels)
    with pytest.raises(BuildError, match=said) as caught:
        build(tmp_path, wheels, base="bad")
    assert "--base" in (caught.value.hint or "")


def test_pythons_version_is_read_from_what_official_and_debian_images_say(
    tmp_path: Path, wheels: list[Artifact]
) -> None:
    official = {"usr/local/bin/python3": "-> python3.11", "usr/local/bin/python3.11": "p"}
    env = {"PATH": "/usr/local/bin:/usr/bin", "PYTHON_VERSION": VERSION}
    base_layout(tmp_path / "official", official, labels={}, env=env)
    image = build(tmp_path, wheels, base="official")
    tree = read_tree([image.layers[-1].layer.path])
    assert tree["opt/env/bin/python3.11"].link == "/usr/local/bin/python3.11"
    status = (
        "Package: python3.11\nVersion: 3.11.1-1\n\nPackage: python3.11-minimal\n"
        f"Status: install ok installed\nVersion: {VERSION}-6+deb12u6\n\n"
    )
    base_layout(tmp_path / "debian", {**FILES, "var/lib/dpkg/status": status}, labels={})
    build(tmp_path, wheels, base="debian")


def test_an_altered_layer_of_the_base_is_refused(tmp_path: Path, wheels: list[Artifact]) -> None:
    build(tmp_path, wheels)
    blobs = tmp_path / "base" / "blobs" / "sha256"
    largest = max(blobs.iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="missing or altered"):
        build(tmp_path, wheels)


def test_a_layout_holds_the_image_and_the_bases_layers_untouched(
    tmp_path: Path, wheels: list[Artifact]
) -> None:
    image = build(tmp_path, wheels)
    out = tmp_path / "out"
    digest = write_oci(image, out, "team/train:1")
    layout = read_layout(out)
    assert layout.manifest_digest == digest
    manifest = json.loads(layout.manifest)
    assert manifest["config"]["digest"] == image.image_id
    base = json.loads(read_layout(tmp_path / "base").manifest)
    assert manifest["layers"][0] == base["layers"][0]
    for row in manifest["layers"]:
        blob = layout.blob(row["digest"])
        assert blob
        assert f"sha256:{hashlib.sha256(blob.read_bytes()).hexdigest()}" == row["digest"]
    write_oci(image, out)  # its own is replaced


def test_what_envlock_did_not_write_is_not_replaced(tmp_path: Path, wheels: list[Artifact]) -> None:
    image = build(tmp_path, wheels)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("x")
    for folder in (mine, tmp_path / "base"):
        with pytest.raises(InputError, match="not an image that envlock wrote"):
            write_oci(image, folder)
    assert (mine / "thesis.txt").exists()


def test_an_archive_is_what_docker_save_writes(tmp_path: Path, wheels: list[Artifact]) -> None:
    image = build(tmp_path, wheels)
    path = tmp_path / "image.tar"
    write_archive(image, path, "team/train:1")
    with tarfile.open(path) as tar:
        data = tar.extractfile("manifest.json")
        assert data
        (manifest,) = json.load(data)
        assert manifest["RepoTags"] == ["team/train:1"]
        for name, blob in zip(manifest["Layers"], image.blobs, strict=True):
            layer = tar.extractfile(name)
            assert layer
            assert f"sha256:{hashlib.sha256(layer.read()).hexdigest()}" == blob.diff_id
    partial = b"".join(archive(image, None, left_out=2))
    assert len(partial) < path.stat().st_size


@pytest.fixture
def two_trees(tmp_path: Path, wheels: list[Artifact]) -> tuple[Assembled, Assembled]:
    first = build(tmp_path, wheels)
    wheels[1] = make_wheel(tmp_path / "wheels", {"six.py": b"new", "seven.py": b""}, name="six")
    return first, build(tmp_path, wheels)


def test_files_that_differ_are_named(two_trees: tuple[Assembled, Assembled]) -> None:
    first, second = two_trees
    with pytest.raises(BuildError) as caught:
        compare(first, second, ids=True)
    assert "site-packages/seven.py: only in the second" in caught.value.message
    assert "site-packages/six.py: size, sha256" in caught.value.message
    assert "torch/lib.so" not in caught.value.message
    trees = [read_tree([one.layer.path for one in image.layers]) for image in two_trees]
    assert tree_digest(trees[0]) != tree_digest(trees[1])
    assert not differing(trees[0], dict(trees[0]))


def test_places_for_an_image() -> None:
    assert parse_output("docker") == Output(kind=Kind.DOCKER)
    assert parse_output("oci:a:b") == Output(kind=Kind.OCI, path=Path("a:b"))
    for text in ("", "oci", "oci:", "tar:x", "docker:x"):
        with pytest.raises(UsageError):
            parse_output(text)


def test_a_layers_key_is_its_content(wheels: list[Artifact], tmp_path: Path) -> None:
    places = Places(prefix="/opt/env", python="python3.11")
    plain = WantedLayer(name="a", artifacts=wheels, places=places)
    assert replace(plain, name="b").key == plain.key
    changed = [
        replace(plain, artifacts=wheels[:1]),
        replace(plain, places=Places(prefix="/opt/env", python="python3.12")),
        replace(plain, files={"/x": Entry(content=b"")}),
    ]
    assert len({plain.key, *(one.key for one in changed)}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"config": "text"},
        {"config": ["text"]},
        {"config": {"Labels": ["a"]}},
        {"config": {"Labels": {"org.envlock.base.python": 5}}},
        {"config": {"Env": 5}},
        {"config": {"Env": [5]}},
        {"config": {"Entrypoint": "sh"}},
        {"config": {"User": 0.5}},
        {"history": ["a"]},
        {"rootfs": {}},
        {"rootfs": {"diff_ids": []}},
        {"os": "windows"},
        {"architecture": "arm64"},
    ],
)
def test_a_base_whose_config_is_odd_is_refused(
    change: dict[str, Any], tmp_path: Path, wheels: list[Artifact]
) -> None:
    changed_base(tmp_path / "odd", change)
    with pytest.raises(InputError) as caught:
        build(tmp_path, wheels, base="odd")
    assert caught.value.hint


def test_a_base_whose_layer_has_another_size_is_refused(
    tmp_path: Path, wheels: list[Artifact]
) -> None:
    changed_base(tmp_path / "odd", {}, size=1)
    with pytest.raises(InputError, match="missing or altered"):
        build(tmp_path, wheels, base="odd")


def test_a_base_with_onbuild_is_refused_both_ways(tmp_path: Path, wheels: list[Artifact]) -> None:
    changed_base(tmp_path / "odd", {"config": {"OnBuild": ["RUN x"]}})
    choice = BaseChoice(reference=f"oci:{tmp_path / 'odd'}")
    engine = mock.create_autospec(Engine, instance=True)
    with pytest.raises(InputError, match="ONBUILD"):
        build(tmp_path, wheels, base="odd")
    with (
        pytest.raises(InputError, match="ONBUILD"),
        chosen_base(choice, search(engine)),
    ):
        pass


def test_an_engine_that_fails_later_is_not_taken_for_a_missing_base() -> None:
    engine = mock.create_autospec(Engine, instance=True)
    digest = f"sha256:{'0' * 64}"
    engine.resolve.return_value = image_info(
        "python", {"Id": digest, "RepoDigests": [f"python@{digest}"]}
    )
    with (
        pytest.raises(TargetError, match=f"gone from {digest}"),
        chosen_base(BaseChoice(), search(engine)) as base,
    ):
        raise TargetError(f"gone from {base.digest}")


def test_what_a_base_says_of_its_containers_is_shown_on_one_line_each(tmp_path: Path) -> None:
    inside = {
        "Entrypoint": ["/bin/sh", "-c", "a\nbase USER \x1b[1mforged"],
        "Env": ["PATH=/bin", "API_TOKEN=abcdefgh12345", "LINES=1\n2\u2028\u202e3"],
        "User": "ann\r",
    }
    changed_base(tmp_path / "odd", {"config": {**inside, "Labels": LABELS}})
    choice = BaseChoice(reference=f"oci:{tmp_path / 'odd'}")
    settings = assembly_base(choice, search()).base.settings
    assert settings.lines() == [
        r"base ENTRYPOINT /bin/sh -c a\nbase USER \x1b[1mforged: the image has none",
        r"base USER ann\r: the image has 10001:10001",
        "base ENV PATH=/bin",
        "base ENV API_TOKEN=***",
        r"base ENV LINES=1\n2\u2028\u202e3",
    ]
    assert settings.told().env["API_TOKEN"] == "***"


def test_a_base_that_says_nothing_of_its_containers_is_shown_too(tmp_path: Path) -> None:
    layout = base_layout(tmp_path / "base")
    choice = BaseChoice(reference=f"oci:{layout.folder}")
    settings = assembly_base(choice, search()).base.settings
    assert settings.lines()[:2] == [
        "base ENTRYPOINT none",
        "base USER root: the image has 10001:10001",
    ]


def test_layers_of_earlier_builds_go_when_there_are_too_many(
    tmp_path: Path, wheels: list[Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(layers, "MOST_LAYERS_BYTES", 1)
    kept = tmp_path / "envlock" / "layers"
    build(tmp_path, wheels, store="envlock/layers")
    both = sorted(path.name for path in kept.iterdir())
    with layer_store(kept=True):
        pass
    assert sorted(path.name for path in kept.iterdir()) == both  # a build may be using them
    for path in kept.iterdir():
        os.utime(path, (0, 0))
    six = make_wheel(tmp_path / "wheels", {"six.py": b"other"}, name="six")
    build(tmp_path, [wheels[0], six], store="envlock/layers")
    with layer_store(kept=True):
        pass
    left = sorted(path.name for path in kept.iterdir())
    assert len(left) == 2
    assert len(set(left) & set(both)) == 1  # torch's, which the second build used
