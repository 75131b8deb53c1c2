"""Paths, values and URLs that name nobody, and yet still say what a rule needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.probes import probe_module

common = probe_module("observe_common")


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "HOMES", ["/home/ann"])
    monkeypatch.setattr(common.sys, "prefix", "/srv/lab/thesis/.venv")
    monkeypatch.setattr(common.sys, "base_prefix", "/usr")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/usr/local/cuda-12.4/lib64", "/usr/local/cuda-12.4/lib64"),
        ("/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"),
        ("/usr/lib/wsl/lib", "/usr/lib/wsl/lib"),
        ("/opt/rocm-6.1/lib", "/opt/rocm-6.1/lib"),
        ("/home/ann/thesis/lib", "~/*/lib"),
        ("/home/ann/.cache/triton", "~/.cache/triton"),
        ("/home/bob/secret-project/src", "~/*/src"),
        ("/root/x", "~/*"),
        ("/Users/bob/miniconda3/envs/paper/lib", "~/miniconda3/envs/*/lib"),
        ("C:\\Users\\bob\\paper\\bin", "~/*/bin"),
        ("/srv/lab/thesis/.venv/lib/python3.11", "<prefix>/lib/python3.11"),
        ("/apps/cudnn/v8.0.3.33-cuda.11.0/cuda/lib64", "/apps/cudnn/*/cuda/lib64"),
        ("/apps/cuda/11.0/lib64", "/apps/cuda/11.0/lib64"),
        ("/scratch/ann/libcudnn.so.8", "/*/*/libcudnn.so.8"),
        ("$ORIGIN/../lib", "$ORIGIN/../lib"),
    ],
)
def test_show_path(path: str, shown: str) -> None:
    assert common.show_path(path) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("1", "1"),
        (":4096:8", ":4096:8"),
        ("max_split_size_mb:128,expandable_segments:True", None),
        ("/usr/local/cuda/lib64::/home/ann/x", "/usr/local/cuda/lib64::~/*"),
        ("GPU-00000000-1111-2222-3333-444444444444,1", "GPU-*,1"),
        ("MIG-GPU-00000000-1111-2222-3333-444444444444/7/0", "MIG-GPU-*"),
        ("192.168.1.17", "*"),
        ("cuda>=12.1 brand=tesla,driver>=470,driver<471", None),
        ("00:1a:2b:3c:4d:5e", "*"),
        ("https://u:p@h.invalid/x", {"unknown": "holds a URL, which is not recorded"}),
        ("x" * 3000, {"unknown": "longer than 2048 characters"}),
    ],
)
def test_show_text(value: str, shown: Any) -> None:
    assert common.show_text(value) == (value if shown is None else shown)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user1:s3cr3t-canary@host.invalid/simple", "https://host.invalid/simple"),
        ("https://oauth2:s3cr3t-canary@host.invalid/r.git", "https://host.invalid/r.git"),
        ("ssh://git@host.invalid/team/repo.git", "ssh://git@host.invalid/team/repo.git"),
        ("ssh://user1@host.invalid/team/repo.git", "ssh://host.invalid/team/repo.git"),
        ("https://host.invalid/t/s3cr3t-canary/channel", "https://host.invalid/t/*/channel"),
        ("https://host.invalid/w.whl?token=s3cr3t-canary", "https://host.invalid/w.whl"),
        ("https://host.invalid/w.whl#access_token=s3cr3t-canary", "https://host.invalid/w.whl"),
        (
            "https://host.invalid/w.whl#egg=a&token=s3cr3t-canary",
            "https://host.invalid/w.whl#egg=a",
        ),
        ("https://host.invalid/w.whl#sha256=" + "0" * 64, None),
        ("https:/user1:s3cr3t-canary@host.invalid/w.whl", {"unknown"}),
        ("file:///home/user1/secret-project", {"unknown"}),
        ("https://host.invalid/a b", {"unknown"}),
        ("../secret-project", {"unknown"}),
    ],
)
def test_show_url(url: str, shown: Any) -> None:
    found = common.show_url(url)
    if isinstance(shown, set):
        assert found.keys() == shown
    else:
        assert found == (url if shown is None else shown)
    assert "s3cr3t-canary" not in json.dumps(found)
    assert "user1" not in json.dumps(found)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://user1:s3cr3t-canary@Host.invalid:8443/simple", "host.invalid"),
        ("https://10.1.2.3/simple", "ip-address"),
        ("http://[::1]:8080/simple", "ip-address"),
        ("file:///srv/wheels", None),
        ("https:/user1:s3cr3t-canary@host.invalid", None),
        ("/srv/wheels", None),
    ],
)
def test_url_host(url: str, host: str | None) -> None:
    assert common.url_host(url) == host


def test_a_failure_is_a_reason_without_paths() -> None:
    def fail() -> None:
        raise OSError(2, "No such file", "/home/bob/secret-project/x")

    fact = common.guarded(fail)
    assert fact.keys() == {"unknown"}
    assert fact["unknown"].startswith("FileNotFoundError")
    assert "bob" not in fact["unknown"]
    assert "secret-project" not in fact["unknown"]


def test_reading_what_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"caf\xe9\n")
    assert common.read_text(str(tmp_path / "x")) == "caf\ufffd\n"
    assert common.read_text(str(tmp_path / "missing")) is None
    assert common.read_text(str(tmp_path)) is None
