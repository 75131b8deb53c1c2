"""Metadata folders as people have them: whole, broken, doubled, and full of secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.unit.probes import probe_module

packages = probe_module("observe_packages")

HASH = "sha256=" + "A" * 43
OTHER_HASH = "sha256=" + "B" * 43


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    return folder


def install(
    site: Path,
    name: str,
    version: str,
    files: dict[str, str] | None = None,
    *,
    metadata: str | None = None,
    **extra: str,
) -> Path:
    """A dist-info folder with RECORD for ``files`` (path -> content), which are written too."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    text = metadata if metadata is not None else f"Name: {name}\nVersion: {version}\n"
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\n{text}\nA description.\nName: no\n")
    lines = [f"{folder.name}/RECORD,,", f"{folder.name}/METADATA,{HASH},10"]
    for path, content in (files or {}).items():
        lines.append(f"{path},sha256={content[0] * 43},{len(content)}")
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    (folder / "RECORD").write_text("\n".join(lines) + "\n")
    for file, content in extra.items():
        (folder / file.replace("_json", ".json")).write_text(content)
    return folder


def scan(*sites: Path) -> Any:
    return packages.scan([(str(site), "wheel") for site in sites])


def test_a_plain_distribution(site: Path) -> None:
    install(site, "Num_Py", "1.26.4", {"numpy/x.py": "a"}, INSTALLER="uv\n", WHEEL="Tag: b\nTag: a")
    assert scan(site).dists["num-py"].fact() == {
        "version": "1.26.4",
        "record": packages.record_digest(
            {"numpy/x.py": ("sha256=" + "a" * 43, "1")}
            | {"Num_Py-1.26.4.dist-info/METADATA": (HASH, "10")}
        ),
        "installer": "uv",
        "source": {"kind": "index"},
        "path_class": "wheel",
        "tags": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "the folder is empty"),
        ({"INSTALLER": "uv"}, "no METADATA"),
        ({"METADATA": "Metadata-Version: 2.1\n\n"}, "no Name and no Version"),
        ({"METADATA": "Name:\nVersion: 1\n\n"}, "no Name"),
        ({"METADATA": "Name: numpy\n\nVersion: 1\n"}, "no Version"),
        ({"METADATA": "Name: ../x\nVersion: 1\n\n"}, "no valid name"),
    ],
)
def test_broken_metadata_is_a_fact(site: Path, content: dict[str, str] | None, reason: str) -> None:
    folder = site / "numpy-1.26.4.dist-info"
    folder.mkdir()
    for name, text in (content or {}).items():
        (folder / name).write_text(text)
    found = scan(site)
    assert found.dists == {}
    assert [b["folder"] for b in found.broken] == [folder.name]
    assert reason in found.broken[0]["reason"]


def test_what_pip_left_of_an_uninstall(site: Path) -> None:
    install(site, "~umpy", "1.26.4", metadata="Name: numpy\nVersion: 1.26.4\n")
    install(site, "numpy", "1.26.5")
    found = scan(site)
    assert found.dists["numpy"].version == "1.26.5"
    assert "did not finish" in found.broken[0]["reason"]
    assert found.duplicates == {}


def test_of_two_copies_in_one_folder_the_one_on_disk_wins(site: Path) -> None:
    install(site, "numpy", "1.26.4", {"numpy/version.py": "a" * 10})
    install(site, "numpy", "2.0.0", {"numpy/version.py": "b" * 12})
    (site / "numpy/version.py").write_text("a" * 10)
    found = scan(site)
    assert found.dists["numpy"].version == "1.26.4"
    assert found.duplicates == {"numpy": ["1.26.4", "2.0.0"]}
    (site / "numpy/version.py").write_text("b" * 12)
    assert scan(site).duplicates == {"numpy": ["2.0.0", "1.26.4"]}


def test_between_folders_the_first_on_the_path_wins(site: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    install(site, "torch", "2.3.0")
    install(user, "torch", "1.13.1")
    assert scan(user, site).dists["torch"].version == "1.13.1"
    assert scan(user, site).duplicates == {"torch": ["1.13.1", "2.3.0"]}


def test_old_forms_of_metadata(site: Path) -> None:
    (site / "single-1.0.egg-info").write_text("Metadata-Version: 1.1\nName: single\nVersion: 1.0\n")
    folder = site / "plain-2.0.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Name: plain\nVersion: 2.0\n\nlong text\n")
    (folder / "requires.txt").write_text(
        'numpy>=1\n\n[:python_version < "3.9"]\nold\n\n[docs]\nsphinx\n\n[x:os_name=="nt"]\nwin\n'
    )
    egg = site / "zipped-3.0-py3.11.egg" / "EGG-INFO"
    egg.mkdir(parents=True)
    (egg / "PKG-INFO").write_text("Name: zipped\nVersion: 3.0\n")
    found = scan(site)
    assert {name: dist.version for name, dist in found.dists.items()} == {
        "single": "1.0",
        "plain": "2.0",
        "zipped": "3.0",
    }
    assert found.dists["plain"].record == packages.ABSENT
    requires = [str(Requirement(text)) for text in found.dists["plain"].requires]
    assert requires == ["numpy>=1", 'old; python_version < "3.9"']


def test_requirements_of_extras_are_left_out(site: Path) -> None:
    install(
        site,
        "a",
        "1",
        metadata=(
            "Name: a\nVersion: 1\nRequires-Dist: b (>=1)\n"
            "Requires-Dist: c ; extra == 'x'\nRequires-Dist: d ; os_name == 'posix'\n"
        ),
    )
    assert scan(site).dists["a"].requires == ["b (>=1)", "d ; os_name == 'posix'"]


def test_a_broken_record_is_unknown(site: Path) -> None:
    folder = install(site, "a", "1")
    (folder / "RECORD").write_text("a.py\nb.py,sha256=x,1\n")
    assert "1 lines" in scan(site).dists["a"].record["unknown"]


# --- the digest ---------------------------------------------------------------------------------


def test_layouts_that_hold_the_same_wheel_agree() -> None:
    """Paths as pip and uv write them in a venv, in dist-packages and on Windows."""
    wheel = {
        "a/x.py": (HASH, "1"),
        "../../../share/man/man1/a.1": (HASH, "2"),
        "../../../include/site/python3.11/a/a.h": (HASH, "3"),
        "a-1.dist-info/METADATA": (HASH, "4"),
    }
    elsewhere = {
        "a\\x.py": (HASH, "1"),
        "../../share/man/man1/a.1": (HASH, "2"),
        "../../../../include/python3.12/a/a.h": (HASH, "3"),
        "a-1.dist-info/METADATA": (HASH, "4"),
        # what installers add
        "../../../bin/a": (OTHER_HASH, "200"),
        "..\\..\\Scripts\\a.exe": (OTHER_HASH, "9000"),
        "a/__pycache__/x.cpython-311.pyc": ("", ""),
        "a-1.dist-info/INSTALLER": (HASH, "4"),
        "a-1.dist-info/REQUESTED": (HASH, "0"),
        "a-1.dist-info/direct_url.json": (HASH, "50"),
        "a-1.dist-info/uv_cache.json": (HASH, "50"),
        "a-1.dist-info/RECORD": ("", ""),
    }
    assert packages.record_digest(wheel) == packages.record_digest(elsewhere)


@pytest.mark.parametrize(
    "change",
    [
        {"a/x.py": (OTHER_HASH, "1")},
        {"a/x.py": (HASH, "2")},
        {"a/INSTALLER": (HASH, "1")},
        {"a/bin/tool": (HASH, "1")},
        {"a/uv_thing.py": (HASH, "1")},
        {"../../../share/a": (HASH, "1")},
    ],
)
def test_any_other_difference_shows(change: dict[str, tuple[str, str]]) -> None:
    files = {"a/x.py": (HASH, "1"), "a/y.py": (HASH, "1")}
    assert packages.record_digest(files) != packages.record_digest(files | change)


def test_the_digest_does_not_depend_on_order() -> None:
    files = {"b": (HASH, "1"), "a": (HASH, "2")}
    assert packages.record_digest(files) == packages.record_digest(dict(reversed(files.items())))


def test_record_lines_with_commas_and_odd_bytes() -> None:
    files, bad = packages.parse_record(b'"a,""b"".py",sha256=x,1\r\n\xff.py,sha256=y,2\nbad\n')
    assert files == {'a,"b".py': ("sha256=x", "1"), "\udcff.py": ("sha256=y", "2")}
    assert bad == 1
    assert packages.record_digest(files).startswith("sha256:")


# --- contested files ----------------------------------------------------------------------------


def test_one_library_of_two_distributions(site: Path) -> None:
    """nvidia-nccl-cu12 and -cu11 both bring nvidia/nccl/lib/libnccl.so.2: one file is there."""
    library = "nvidia/nccl/lib/libnccl.so.2"
    install(site, "nvidia_nccl_cu12", "2.20.5", {library: "b" * 20})
    install(site, "nvidia_nccl_cu11", "2.14.3", {library: "a" * 14})
    found = scan(site)
    assert found.contested == {library: ["nvidia-nccl-cu11", "nvidia-nccl-cu12"]}
    assert found.claim_of(str(site / library)) == ("nvidia-nccl-cu11", "14")
    (site / library).write_text("b" * 20)
    assert scan(site).claim_of(str(site / library)) == ("nvidia-nccl-cu12", "20")


def test_a_shared_library_is_contested_even_when_equal(site: Path) -> None:
    install(site, "a", "1", {"lib/libx.so.2": "x"})
    install(site, "b", "1", {"lib/libx.so.2": "x"})
    assert scan(site).contested == {"lib/libx.so.2": ["a", "b"]}


def test_equal_text_files_are_not_contested(site: Path) -> None:
    install(site, "nvidia_a", "1", {"nvidia/__init__.py": "x"})
    install(site, "nvidia_b", "1", {"nvidia/__init__.py": "x"})
    assert scan(site).contested == {}


def test_the_same_path_in_two_folders_is_not_contested(site: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    install(site, "a", "1", {"x.so": "1"})
    install(user, "b", "1", {"x.so": "22"})
    assert scan(user, site).contested == {}


# --- where a distribution came from -------------------------------------------------------------

COMMIT = "0123456789" * 4


@pytest.mark.parametrize(
    ("direct_url", "expected"),
    [
        (
            {"url": "https://h.invalid/x.whl#sha256=" + "a" * 64, "archive_info": {}},
            {"kind": "archive", "url": "https://h.invalid/x.whl#sha256=" + "a" * 64},
        ),
        (
            {
                "url": "ssh://git@h.invalid/team/r.git",
                "vcs_info": {"vcs": "git", "commit_id": COMMIT},
            },
            {"kind": "vcs", "url": "ssh://git@h.invalid/team/r.git", "commit": COMMIT},
        ),
        (
            {"url": "https://h.invalid/r.git", "vcs_info": {"vcs": "git", "commit_id": "main"}},
            {
                "kind": "vcs",
                "url": "https://h.invalid/r.git",
                "commit": {"unknown": "no full commit id in direct_url.json"},
            },
        ),
        (
            {"url": "file:///home/user1/p", "dir_info": {"editable": True}},
            {"kind": "editable", "url": {"unknown": "a local path is not recorded"}},
        ),
        (
            {"url": "file:///home/user1/p", "dir_info": {}},
            {"kind": "directory", "url": {"unknown": "a local path is not recorded"}},
        ),
        (["not", "a", "table"], {"unknown": "direct_url.json cannot be read"}),
    ],
)
def test_source(site: Path, direct_url: Any, expected: Any) -> None:
    install(site, "a", "1", direct_url_json=json.dumps(direct_url), INSTALLER="pip")
    assert scan(site).dists["a"].source == expected


def test_an_editable_has_no_digest_of_its_code(site: Path) -> None:
    direct_url = {"url": "file:///home/user1/p", "dir_info": {"editable": True}}
    install(
        site,
        "a",
        "1",
        {"__editable__.a.pth": "/home/user1/p"},
        direct_url_json=json.dumps(direct_url),
    )
    fact = scan(site).dists["a"].fact()
    assert fact["path_class"] == "source"
    assert "editable" in fact["record"]["unknown"]


def test_who_installed_it_is_unknown_without_a_note(site: Path) -> None:
    install(site, "a", "1")
    assert "unknown" in scan(site).dists["a"].source


# --- conda --------------------------------------------------------------------------------------


def test_conda_packages(tmp_path: Path) -> None:
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    (meta / "history").write_text("")
    channel = "https://h.invalid/t/s3cr3t-canary/conda-forge/linux-64"
    (meta / "cuda-nvcc-12.4.131-h_0.json").write_text(json.dumps({"channel": channel}))
    (meta / "mkl-2024.1-intel_691.json").write_text('{"channel": "defaults"}')
    (meta / "odd-1-0.json").write_text("not JSON")
    assert packages.conda_packages(str(tmp_path)) == {
        "cuda-nvcc": {
            "version": "12.4.131",
            "build": "h_0",
            "channel": "https://h.invalid/t/*/conda-forge/linux-64",
        },
        "mkl": {"version": "2024.1", "build": "intel_691", "channel": "defaults"},
        "odd": {"version": "1", "build": "0", "channel": {"unknown": "conda-meta does not say"}},
    }


def test_no_conda(tmp_path: Path) -> None:
    assert packages.conda_packages(str(tmp_path)) == packages.ABSENT
