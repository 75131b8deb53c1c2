"""What foreign code sees of a person's variables."""

from __future__ import annotations

import pytest

from envlock.targets.environment import passed_on
from tests.unit.probes import probe_module

settings = probe_module("observe_settings")
PROGRAMS = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "SYSTEMROOT", "PWD")
SMOKE = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "PYTHONMALLOC", "DYLD_LIBRARY_PATH", "OMP_PLACES")


@pytest.mark.parametrize(
    "name", [*settings.CATALOGUE, *settings.OTHERS, *settings.SET_ONLY, *PROGRAMS, *SMOKE]
)
def test_what_is_measured_or_needed_is_passed_on(name: str) -> None:
    assert passed_on({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "GITHUB_TOKEN",
        "WANDB_API_KEY",
        "NVIDIA_API_KEY",
        "TORCH_HUB_TOKEN",
        "UV_PUBLISH_TOKEN",
        "UV_INDEX_TEAM_PASSWORD",
        "CONDA_AUTH",
        "DATABASE_URL",
        "SSH_AUTH_SOCK",
        "CUSTOMER",
        "MY_PATH",
        "LDAP",
    ],
)
def test_no_other_variable_is(name: str) -> None:
    assert passed_on({name: "x"}) == {}


def test_an_index_goes_without_its_password() -> None:
    passed = passed_on({"PIP_INDEX_URL": "https://ann:s3cret@index.example/simple"})
    assert "index.example/simple" in passed["PIP_INDEX_URL"]
    assert "s3cret" not in passed["PIP_INDEX_URL"]
