"""Disks and compile caches, as the probe reads them; no name of a person in what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envlock.lock.machine import Preflight
from tests.unit.probes import probe_module

preflight = probe_module("observe_preflight")
common = probe_module("observe_common")
ABSENT = preflight.ABSENT
VARIABLES = [
    "TMPDIR",
    "TEMP",
    "TMP",
    "PWD",
    "XDG_CACHE_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_HOME",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "LOGNAME",
    "USER",
    "LNAME",
    "USERNAME",
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home" / "ann-canary"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USER", "3ann-canary")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(common, "HOMES", [str(folder)])
    return folder


def test_the_answer_fits_the_model_and_names_nobody(home: Path) -> None:
    answer = preflight.work([])["preflight"]
    found = Preflight.read(answer)
    assert set(found.places) == {"working", "temporary", "cache"}
    assert set(found.caches) == {"inductor", "triton", "cuda"}
    assert "canary" not in json.dumps(answer)
    assert answer["places"]["cache"]["path"] == "~/.cache"
    assert answer["caches"]["inductor"]["path"].endswith("/torchinductor_*")
    assert (
        0 < answer["places"]["working"]["free_bytes"] < answer["places"]["working"]["total_bytes"]
    )


def test_where_the_person_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert preflight.working_folder() == str(tmp_path)
    monkeypatch.setenv("PWD", "/usr")
    assert preflight.working_folder() == "/usr"
    monkeypatch.setenv("PWD", str(tmp_path / "gone"))
    assert preflight.working_folder() == str(tmp_path)


def test_the_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert preflight.temporary_folder() == str(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    assert preflight.temporary_folder() == "/tmp"


def test_a_place_that_is_not_there_yet_is_where_it_would_be_made(home: Path) -> None:
    assert preflight.place(str(home / "a" / "b"))["writable"] is True
    (home / "file").write_text("")
    assert preflight.place(str(home / "file" / "b"))["writable"] is False


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 22 0:40 / /home rw - nfs4 server:/home rw
32 31 0:41 / /home/a\\040b/scratch rw - xfs /dev/sdb rw
33 22 0:42 / /data rw - ext4 /dev/sdc rw
34 33 0:43 / /data rw - lustre mgs:/x rw
not a line of it
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/usr", "ext4"),
        ("/", "ext4"),
        ("/home/ann", "nfs4"),
        ("/homes", "ext4"),
        ("/home/a b/scratch/x", "xfs"),
        ("/data/set", "lustre"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert preflight.filesystem(path, MOUNTS) == kind


def test_no_list_of_mounts_is_unknown() -> None:
    assert "unknown" in preflight.filesystem("/usr", "")


def test_caches_by_default(home: Path) -> None:
    kept = home / ".triton" / "cache"
    kept.mkdir(parents=True)
    (kept / "kernel.cubin").write_bytes(b"x" * 1000)
    found = preflight.triton_cache(str(home))
    assert (found["used_bytes"], found["counted_all"]) == (1000, True)
    assert found["named_by"] == ABSENT
    assert preflight.cuda_cache(str(home))["used_bytes"] == ABSENT
    assert preflight.cuda_cache(str(home))["limit_bytes"] == 1 << 30


def test_caches_named_by_variables(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(home / "t"))
    assert preflight.triton_cache(str(home))["named_by"] == "TRITON_CACHE_DIR"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(home / "secret-canary"))
    assert preflight.inductor_cache("/tmp")["path"] == "~/*"
    monkeypatch.setenv("CUDA_CACHE_MAXSIZE", "99999999999")
    assert preflight.cuda_cache(str(home))["limit_bytes"] == 4 << 30
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "1")
    assert preflight.cuda_cache(str(home)) == ABSENT


def test_counting_ends_in_time_and_follows_no_link(home: Path) -> None:
    (home / "deep" / "er").mkdir(parents=True)
    (home / "deep" / "er" / "file").write_bytes(b"x" * 10)
    (home / "loop").symlink_to(home)
    size, complete = preflight.folder_size(str(home))
    assert complete
    assert 10 <= size < 10 + 4096
    assert preflight.folder_size(str(home), limit_s=-1) == (0, False)
