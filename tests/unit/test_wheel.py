"""A wheel that is not what it says is refused by name; one that is sound is unpacked whole."""

from __future__ import annotations

import csv
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from envlock.errors import BuildError, InputError
from envlock.image.layers import BuiltLayer, WantedLayer, write
from envlock.image.unpack import Places
from envlock.image.wheel import open_wheel
from tests.unit.wheels import PLAIN, artifact, hash_of, make_wheel

PLACES = Places(prefix="/opt/env", python="python3.11")
SITE = "opt/env/lib/python3.11/site-packages"


def layer_of(folder: Path, *wheels: object, out: str = "layer.tar") -> BuiltLayer:
    wanted = WantedLayer(name="packages", artifacts=wheels, places=PLACES)  # type: ignore[arg-type]
    paths = {one.name: folder / one.wheel.filename for one in wanted.artifacts}
    return write(wanted, paths, folder / out)


def files_of(layer: BuiltLayer) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(layer.layer.path) as tar:
        return {info.name: info for info in tar}


def text_of(layer: BuiltLayer, name: str) -> str:
    with tarfile.open(layer.layer.path) as tar:
        data = tar.extractfile(name)
        assert data
        return data.read().decode()


def refusal(folder: Path, one: object) -> str:
    with pytest.raises(InputError) as caught:
        layer_of(folder, one)
    assert caught.value.message.startswith("demo: ")
    assert caught.value.hint
    return caught.value.message


def test_a_sound_wheel_is_unpacked_whole(tmp_path: Path) -> None:
    files = {
        **PLAIN,
        "demo/program": b"#!/bin/sh\n",
        "demo/__pycache__/x.cpython-311.pyc": b"compiled",
        "demo-1.0.data/scripts/tool": b"#!python -E\nprint()\n",
        "demo-1.0.data/data/share/man/tool.1": b"man",
        "demo-1.0.data/headers/demo.h": b"int x;",
        "demo-1.0.dist-info/entry_points.txt": b"[console_scripts]\nrun = demo.a:b.c [extra]\n[other]\n/ = 1\n",
    }
    built = layer_of(
        tmp_path, make_wheel(tmp_path, files, modes={"demo/program": stat.S_IFREG | 0o755})
    )
    found = files_of(built)
    assert {name: info.mode for name, info in found.items() if info.isreg()} == {
        f"{SITE}/demo/__init__.py": 0o644,
        f"{SITE}/demo/program": 0o755,
        f"{SITE}/demo-1.0.dist-info/INSTALLER": 0o644,
        f"{SITE}/demo-1.0.dist-info/METADATA": 0o644,
        f"{SITE}/demo-1.0.dist-info/RECORD": 0o644,
        f"{SITE}/demo-1.0.dist-info/WHEEL": 0o644,
        f"{SITE}/demo-1.0.dist-info/entry_points.txt": 0o644,
        "opt/env/bin/tool": 0o755,
        "opt/env/bin/run": 0o755,
        "opt/env/share/man/tool.1": 0o644,
        "opt/env/include/site/python3.11/demo/demo.h": 0o644,
    }
    assert text_of(built, "opt/env/bin/tool") == "#!/opt/env/bin/python\nprint()\n"
    script = text_of(built, "opt/env/bin/run")
    assert "from demo.a import b\n" in script
    assert "sys.exit(b.c())" in script
    rows = list(csv.reader(io.StringIO(text_of(built, f"{SITE}/demo-1.0.dist-info/RECORD"))))
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert "../../../bin/run" in [row[0] for row in rows]
    assert ["demo/__init__.py", hash_of(PLAIN["demo/__init__.py"]), "6"] in rows


def test_a_layer_is_sorted_and_owned_by_root(tmp_path: Path) -> None:
    infos = list(files_of(layer_of(tmp_path, make_wheel(tmp_path))).values())
    names = [info.name for info in infos]
    assert names == sorted(names)
    assert names[:3] == ["opt", "opt/env", "opt/env/lib"]
    assert {(i.uid, i.gid, i.uname, i.mtime) for i in infos} == {(0, 0, "", 315532800)}
    assert {i.mode for i in infos if i.isdir()} == {0o755}


def test_the_order_in_a_wheel_does_not_matter(tmp_path: Path) -> None:
    one = layer_of(tmp_path / "a", make_wheel(tmp_path / "a"))
    other = layer_of(tmp_path / "b", make_wheel(tmp_path / "b", order=-1))
    assert one.layer.digest == other.layer.digest


def test_one_changed_byte_is_refused(tmp_path: Path) -> None:
    one = make_wheel(tmp_path)
    path = tmp_path / one.wheel.filename
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert "its hash differs" in refusal(tmp_path, one)


@pytest.mark.parametrize(
    "name",
    [
        "../escape.py",
        "demo/../../escape.py",
        "/etc/escape",
        "demo//x.py",
        "./x.py",
        "demo\\x.py",
        "demo/x\n.py",
        "demo/\u202ex.py",
        "demo/" + "x" * 300,
        "demo/" * 300 + "x",
    ],
)
def test_a_member_with_a_hostile_name_is_refused(name: str, tmp_path: Path) -> None:
    assert "member" in refusal(tmp_path, make_wheel(tmp_path, {**PLAIN, name: b"x"}))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
def test_a_link_or_device_is_refused(kind: int, tmp_path: Path) -> None:
    one = make_wheel(tmp_path, {**PLAIN, "demo/l": b"/etc/passwd"}, modes={"demo/l": kind | 0o777})
    assert "a link or a device" in refusal(tmp_path, one)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / make_wheel(tmp_path).wheel.filename
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("demo/__init__.py", b"y = 2\n")
    assert "twice" in refusal(tmp_path, artifact(path))


INIT = "demo/__init__.py"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (None, "not in RECORD"),
        (("", ""), "no sound hash"),
        ((hash_of(PLAIN[INIT]), "7"), "no sound hash"),
        (("md5=abc", "6"), "no sound hash"),
        ((hash_of(b"x = 2\n"), "6"), "not the file that RECORD names"),
    ],
)
def test_a_file_that_record_does_not_vouch_for_is_refused(
    row: tuple[str, str] | None, said: str, tmp_path: Path
) -> None:
    assert said in refusal(tmp_path, make_wheel(tmp_path, record={INIT: row}))


def test_a_row_of_record_outside_is_refused(tmp_path: Path) -> None:
    one = make_wheel(tmp_path, record={"../../../../etc/passwd": (hash_of(b""), "0")})
    assert "RECORD" in refusal(tmp_path, one)


@pytest.mark.parametrize(
    "line",
    ["../run = demo:main", "a/b = demo:main", "run = demo:main; import os", "run = demo", "= a:b"],
)
def test_an_entry_point_that_is_none_is_refused(line: str, tmp_path: Path) -> None:
    text = f"[console_scripts]\n{line}\n".encode()
    one = make_wheel(tmp_path, {**PLAIN, "demo-1.0.dist-info/entry_points.txt": text})
    assert "not an entry point" in refusal(tmp_path, one)


@pytest.mark.parametrize("name", ["bin/python", "bin/python3.11", "pyvenv.cfg"])
def test_the_environment_itself_is_not_replaced(name: str, tmp_path: Path) -> None:
    one = make_wheel(tmp_path, {**PLAIN, f"demo-1.0.data/data/{name}": b"x"})
    assert "part of the environment" in refusal(tmp_path, one)


def test_a_script_does_not_replace_the_interpreter(tmp_path: Path) -> None:
    text = b"[console_scripts]\npython = demo:main\n"
    one = make_wheel(tmp_path, {**PLAIN, "demo-1.0.dist-info/entry_points.txt": text})
    assert "part of the environment" in refusal(tmp_path, one)


def test_a_name_or_version_that_disagrees_is_refused(tmp_path: Path) -> None:
    inside = make_wheel(tmp_path, metadata="Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    assert "METADATA is not of demo 1.0" in refusal(tmp_path, inside)
    named = make_wheel(tmp_path, filename="other-1.0-py3-none-any.whl")
    assert "its name says other 1.0" in refusal(tmp_path, named)
    version = make_wheel(tmp_path, filename="demo-2.0-py3-none-any.whl")
    assert "its name says demo 2.0" in refusal(tmp_path, version)
    tags = make_wheel(tmp_path, filename="demo-1.0-cp311-cp311-linux_x86_64.whl")
    assert "tags are not those of its name" in refusal(tmp_path, tags)
    other = make_wheel(tmp_path, tag="cp311-cp311-win_amd64")
    assert "not for Linux" in refusal(tmp_path, other)


def test_another_platform_tag_is_the_work_of_repairing_tools(tmp_path: Path) -> None:
    name = "demo-1.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    layer_of(tmp_path, make_wheel(tmp_path, tag="py3-none-linux_x86_64", filename=name))


def test_what_is_no_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(InputError, match="it is no wheel"), open_wheel(path, artifact(path)):
        pass


def test_of_two_packages_with_one_path_the_later_wins(tmp_path: Path) -> None:
    shared = "shared/x.py"
    first = make_wheel(tmp_path, {shared: b"1"}, name="first")
    second = make_wheel(tmp_path, {shared: b"2"}, name="second")
    built = layer_of(tmp_path, first, second)
    assert text_of(built, f"{SITE}/{shared}") == "2"
    assert built.contested == [f"/{SITE}/{shared}: of first and second; second's"]
    same = make_wheel(tmp_path, {shared: b"1"}, name="same")
    assert layer_of(tmp_path, first, same).contested == []


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    first = make_wheel(tmp_path, {"x": b"1"}, name="first")
    second = make_wheel(tmp_path, {"x/y": b"2"}, name="second")
    with pytest.raises(BuildError, match="another package has a folder"):
        layer_of(tmp_path, first, second)
