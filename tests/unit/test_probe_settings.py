"""Variables by allow-list, and hosts of indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envlock.facts.variables import variables
from tests.unit.probes import probe_module

settings = probe_module("observe_settings")
common = probe_module("observe_common")


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    values: dict[str, str] = {}
    monkeypatch.setattr(settings.os, "environ", values)
    monkeypatch.setattr(common, "HOMES", [str(tmp_path / "home")])
    monkeypatch.setattr(settings.sys, "prefix", str(tmp_path / "venv"))
    return values


def test_the_list_is_the_catalogue() -> None:
    assert set(settings.CATALOGUE) == set(variables())
    assert not set(settings.CATALOGUE) & {*settings.OTHERS, *settings.SET_ONLY}


def test_a_variable_that_is_not_set_is_a_fact(environ: dict[str, str]) -> None:
    environ["OMP_NUM_THREADS"] = "4"
    environ["CUDA_VISIBLE_DEVICES"] = ""
    found = settings.env_facts()
    assert found["OMP_NUM_THREADS"] == "4"
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert found["NCCL_DEBUG"] == common.ABSENT
    assert found["VIRTUAL_ENV"] == common.ABSENT


def test_no_other_variable_is_read(environ: dict[str, str]) -> None:
    environ.update(
        HF_TOKEN="s3cr3t-canary",
        DATABASE_URL="postgres://user1:s3cr3t-canary@h.invalid/db",
        MY_PAT="s3cr3t-canary",
        VIRTUAL_ENV="/home/user1/secret-project",
        LD_LIBRARY_PATH="/home/user1/secret-project/lib:/usr/local/cuda-12.4/lib64",
    )
    found = settings.env_facts()
    assert found["VIRTUAL_ENV"] == "set"
    assert found["LD_LIBRARY_PATH"] == "~/*/lib:/usr/local/cuda-12.4/lib64"
    for secret in ("s3cr3t-canary", "user1", "secret-project"):
        assert secret not in repr(found)


def configure(environ: dict[str, str], tmp_path: Path, text: str) -> Any:
    path = tmp_path / "pip.conf"
    path.write_text(text)
    environ["PIP_CONFIG_FILE"] = str(path)
    return settings.index_facts()


def test_hosts_of_indexes_and_nothing_else(environ: dict[str, str], tmp_path: Path) -> None:
    found = configure(
        environ,
        tmp_path,
        "[global]\n"
        "index-url = https://user1:s3cr3t-canary@one.invalid/simple\n"
        "proxy = http://user1:s3cr3t-canary@proxy.invalid:3128\n"
        "trusted-host = trusted.invalid\n"
        "extra_index_url =\n"
        "    https://two.invalid/t/s3cr3t-canary/simple\n"
        "    https://three.invalid/simple\n"
        "[install]\nfind-links = /home/user1/wheels\n",
    )
    assert found == {
        "hosts": ["one.invalid", "three.invalid", "two.invalid"],
        "find_links": True,
    }


def test_indexes_from_variables(environ: dict[str, str], tmp_path: Path) -> None:
    environ["PIP_EXTRA_INDEX_URL"] = "https://a.invalid/simple https://b.invalid/simple"
    environ["UV_INDEX"] = "torch=https://c.invalid/whl/cu121"
    assert configure(environ, tmp_path, "")["hosts"] == ["a.invalid", "b.invalid", "c.invalid"]


def test_nothing_configured_is_absent(environ: dict[str, str], tmp_path: Path) -> None:
    found = configure(environ, tmp_path, "[global]\ntimeout = 60\n")
    assert found == {"hosts": common.ABSENT, "find_links": False}
