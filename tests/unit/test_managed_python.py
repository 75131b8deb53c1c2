"""A standalone Python as a layer: what becomes of an archive, and which archives are refused."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from envlock.errors import BuildError, InputError
from envlock.image import managed_python
from envlock.image.base import BaseChoice, assembly_base
from envlock.image.fetch import Shelves
from envlock.image.foundation import read_layers
from envlock.image.managed_python import artifact, managed_layout
from envlock.image.oci import Layout
from envlock.image.plan import EPOCH
from envlock.image.unpack import Places
from envlock.lock.model import ManagedPython
from tests.unit.base_layouts import FILES, LABELS, base_layout, search

VERSION = "3.12.4"
NAME = f"cpython-{VERSION}+20240713-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"
URL = f"https://host.example/releases/20240713/{NAME.replace('+', '%2B')}"
PLACES = Places(prefix="/opt/env", python="python3.12")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))


def member(name: str, content: bytes | str | None = b"x", **more: object) -> tarfile.TarInfo:
    """A file, a symbolic link (a text) or a folder (None)."""
    info = tarfile.TarInfo(name)
    if content is None:
        info.type = tarfile.DIRTYPE
    elif isinstance(content, str):
        info.type, info.linkname = tarfile.SYMTYPE, content
    else:
        info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info


GOOD = (
    member("python/bin/python3.12", b"x" * 7, mode=0o755, uid=501, uname="builder", mtime=17),
    member("python/bin/python3", "python3.12"),
    member("python/lib", None, mode=0o700),
    member("python/lib/os.py", mode=0o664),
    member("python/lib/same.py", b"", type=tarfile.LNKTYPE, linkname="python/lib/os.py"),
    member("python/lib/libpython3.so", "../lib/os.py"),
)


def shelf(folder: Path, *members: tarfile.TarInfo, cut: int | None = None) -> ManagedPython:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / NAME, "w:gz") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(b"x" * info.size))
    data = (folder / NAME).read_bytes()[:cut]
    (folder / NAME).write_bytes(data)
    return ManagedPython(url=URL, sha256=hashlib.sha256(data).hexdigest())


def made(folder: Path, python: ManagedPython) -> Layout:
    system = base_layout(folder / "system", {"usr/bin/python3.11": "another"})
    shelves = Shelves(folders=[folder / "shelf"], cache=folder / "cache", offline=True)
    return managed_layout(python, VERSION, system, shelves, lambda _: None)


def test_the_layer_stands_above_the_systems_own(tmp_path: Path) -> None:
    layout = made(tmp_path, shelf(tmp_path / "shelf", *GOOD))
    system, python = read_layers(layout)
    with tarfile.open(python.path) as tar:
        rows = [(i.name, i.mode, i.uid, i.uname, i.mtime, i.linkname) for i in tar.getmembers()]
    epoch = EPOCH
    assert rows == [
        ("opt", 0o755, 0, "", epoch, ""),
        ("opt/python", 0o755, 0, "", epoch, ""),
        ("opt/python/bin", 0o755, 0, "", epoch, ""),
        ("opt/python/bin/python3.12", 0o755, 0, "", epoch, ""),
        ("opt/python/bin/python3", 0o777, 0, "", epoch, "python3.12"),
        ("opt/python/lib", 0o755, 0, "", epoch, ""),
        ("opt/python/lib/os.py", 0o644, 0, "", epoch, ""),
        ("opt/python/lib/same.py", 0o644, 0, "", epoch, ""),
        ("opt/python/lib/libpython3.so", 0o777, 0, "", epoch, "../lib/os.py"),
    ]
    assert system.diff_id == layout.config()["rootfs"]["diff_ids"][0]


def test_it_is_a_base_of_exactly_that_python(tmp_path: Path) -> None:
    layout = made(tmp_path, shelf(tmp_path / "shelf", *GOOD))
    choice = BaseChoice(reference=f"oci:{layout.folder}")
    foundation = assembly_base(choice, search(python=VERSION))
    environment = foundation.environment(PLACES, VERSION)
    settings = environment["/opt/env/pyvenv.cfg"].content
    assert isinstance(settings, bytes)
    assert settings.startswith(b"home = /opt/python/bin\n")
    with pytest.raises(BuildError, match=f"the base has Python {VERSION}, the lock needs 3.12.5"):
        foundation.environment(PLACES, "3.12.5")


def test_the_same_archive_gives_the_same_base_whenever(tmp_path: Path) -> None:
    python = shelf(tmp_path / "shelf", *GOOD)
    first = made(tmp_path, python)
    (tmp_path / "kept").rename(tmp_path / "gone")
    (tmp_path / "system").rename(tmp_path / "gone" / "system")
    assert made(tmp_path, python).manifest_digest == first.manifest_digest
    other = shelf(tmp_path / "shelf", *GOOD, member("python/x"))
    (tmp_path / "system").rename(tmp_path / "gone" / "again")
    assert made(tmp_path, other).manifest_digest != first.manifest_digest


@pytest.mark.parametrize(
    "strange",
    [
        member("elsewhere/x"),
        member("/python/x"),
        member("python/../x"),
        member("python//x"),
        member("python/./x"),
        member("python/a\nb"),
        member("python/\u202ex"),
        member("python/x", "/etc/passwd"),
        member("python/x", "../../etc/passwd"),
        member("python/x", "a\nb"),
        member("python/x", b"", type=tarfile.CHRTYPE),
        member("python/x", b"", type=tarfile.FIFOTYPE),
        member("python/x", b"", type=tarfile.LNKTYPE, linkname="python/x"),
        member("python/x", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    ],
    ids=lambda info: f"{info.name!r} {info.type!r} {info.linkname!r}",
)
def test_an_archive_that_is_something_else_is_refused(
    strange: tarfile.TarInfo, tmp_path: Path
) -> None:
    python = shelf(tmp_path / "shelf", *GOOD, strange)
    with pytest.raises(InputError, match="not a build of Python"):
        made(tmp_path, python)
    assert [*(tmp_path / "kept" / "envlock" / "bases").iterdir()] == []


@pytest.mark.parametrize("cut", [0, 1, 20, 150])
def test_an_archive_that_was_cut_off_is_refused(cut: int, tmp_path: Path) -> None:
    python = shelf(tmp_path / "shelf", *GOOD, cut=cut)
    with pytest.raises(InputError, match="not a build of Python"):
        made(tmp_path, python)


def test_an_archive_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed_python, "_MOST_BYTES", 8)
    made(tmp_path, shelf(tmp_path / "shelf", *GOOD[:2]))
    with pytest.raises(InputError, match="is refused"):
        made(tmp_path / "b", shelf(tmp_path / "b" / "shelf", *GOOD, member("python/y", b"x" * 2)))


def test_an_altered_archive_is_not_used(tmp_path: Path) -> None:
    python = shelf(tmp_path / "shelf", *GOOD)
    with (tmp_path / "shelf" / NAME).open("ab") as file:
        file.write(b"more")
    with pytest.raises(BuildError, match="is not the file that the lock names"):
        made(tmp_path, python)


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.replace(VERSION, "3.12.5"),
        lambda url: url.replace("cpython", "pypy"),
        lambda url: url.replace(".tar.gz", ".whl"),
        lambda url: url + "%2F..%2Fx",
        lambda url: url.rpartition("/")[0],
    ],
)
def test_a_url_of_something_else_is_refused(change: Callable[[str], str]) -> None:
    python = ManagedPython(url=URL, sha256="0" * 64)
    assert artifact(python, VERSION).wheel.filename == NAME
    with pytest.raises(InputError, match="is not a standalone build of Python"):
        artifact(ManagedPython(url=change(URL), sha256="0" * 64), VERSION)


def test_what_the_lock_recorded_is_taken_again(tmp_path: Path) -> None:
    """Without asking a registry or uv: its archive, upon this machine's bootstrapped base."""
    python = shelf(tmp_path / "shelf", *GOOD)
    system = base_layout(tmp_path / "kept" / "envlock" / "base", FILES, labels=LABELS)
    asked = search(python=VERSION)
    shelves = replace(asked.shelves, folders=[tmp_path / "shelf"])
    base = assembly_base(BaseChoice(python=python), replace(asked, shelves=shelves)).base
    assert (base.name, base.managed, base.python) == (
        "managed-python",
        python,
        "/opt/python/bin/python3.12",
    )
    assert base.layers[:-1] == tuple(system.config()["rootfs"]["diff_ids"])


def test_without_the_system_that_was_recorded_it_says_so(tmp_path: Path) -> None:
    python = shelf(tmp_path / "shelf", *GOOD)
    with pytest.raises(BuildError, match="bootstrapped base that this lock was first built upon"):
        assembly_base(BaseChoice(python=python), search(python=VERSION))
