"""From a probe's answer to an Observation: what follows from it, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from envlock.errors import TargetError
from envlock.lock.observation import ABSENT, Observation, Unknown
from envlock.targets.base import ProbeCall
from envlock.targets.observe import observe

RECORD = "sha256:" + "a" * 64


@dataclass
class FakeTarget:
    """Answers from a table, and remembers what was asked."""

    answers: dict[str, Any]
    calls: list[ProbeCall] = field(default_factory=list)
    set_by_envlock: tuple[str, ...] = ()

    def describe(self) -> str:
        return "python:fake"

    def run_probe(self, call: ProbeCall) -> dict[str, Any]:
        self.calls.append(call)
        answer: dict[str, Any] = json.loads(json.dumps(self.answers[call.probe]))
        return answer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "envlock" / "deep"


def answer(
    packages: dict[str, str], requires: dict[str, list[str]] | None = None, **observed: Any
) -> dict[str, Any]:
    entries = {name: {"version": version} for name, version in packages.items()}
    if "torch" in entries:
        entries["torch"]["record"] = RECORD
    return {
        "observed": {"packages": entries, **observed},
        "requires": requires or {},
        "markers": {"python_version": "3.11", "sys_platform": "linux", "os_name": "posix"},
    }


def seen(observed: dict[str, Any]) -> Observation:
    return observe(FakeTarget({"observe": observed}))


# --- seeds and unmet requirements ---------------------------------------------------------------


def test_pip_is_a_seed_even_when_required() -> None:
    found = seen(answer({"pip": "23.0", "a": "1"}, {"a": ["pip>=20"]}))
    assert found.seeds == {"pip": "23.0"}
    assert found.find("packages.a.version") == "1"
    assert "pip" not in found.find("packages")


def test_setuptools_is_a_seed_unless_required() -> None:
    packages = {"setuptools": "66.1", "wheel": "0.40", "torch": "2.13"}
    assert seen(answer(packages)).seeds == {"setuptools": "66.1", "wheel": "0.40"}
    assert seen(answer(packages, {"torch": ["Setuptools"]})).seeds == {"wheel": "0.40"}


def test_a_requirement_for_another_python_does_not_count() -> None:
    requires = {"torch": ["setuptools; python_version >= '3.12'"]}
    assert seen(answer({"setuptools": "66.1", "torch": "2.4"}, requires)).seeds == {
        "setuptools": "66.1"
    }


def test_seeds_do_not_keep_each_other() -> None:
    requires = {"wheel": ["setuptools"], "pip": ["wheel"]}
    found = seen(answer({"setuptools": "1", "wheel": "1", "pip": "1"}, requires))
    assert found.packages == {}


@pytest.mark.parametrize(
    ("requirement", "installed"),
    [
        ("numpy>=2", "1.26.4"),
        ("absent-one", ABSENT),
        ("triton==2.3.0; sys_platform == 'linux'", ABSENT),
    ],
)
def test_unmet(requirement: str, installed: object) -> None:
    found = seen(answer({"numpy": "1.26.4", "a": "1"}, {"a": [requirement]}))
    assert [(u.distribution, u.installed) for u in found.unmet] == [("a", installed)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "requirement",
    [
        "NumPy (>=1.20)",
        "numpy>=1.26.0rc1",
        "win-only; sys_platform == 'win32'",
        "torch>=2.3",
        "not a requirement at all ==",
    ],
)
def test_met_or_of_no_matter(requirement: str) -> None:
    found = seen(answer({"numpy": "1.26.4", "torch": "2.3.0+cu121"}, {"a": [requirement]}))
    assert found.unmet == []


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observed", "spot"),
    [
        ({"torch": {"version": 2}}, "observed.torch.version"),
        ({"colour": "red"}, "observed.colour"),
        ({"exhaustive": ["everything"]}, "observed.exhaustive[0]"),
    ],
)
def test_the_message_names_the_spot(observed: dict[str, Any], spot: str) -> None:
    with pytest.raises(TargetError) as caught:
        seen(answer({}, None, **observed))
    assert spot in caught.value.message
    assert caught.value.code == 5


def test_no_observation_at_all() -> None:
    with pytest.raises(TargetError, match="holds no observation"):
        seen({"observed": []})


def test_odd_helpers_are_not_a_crash() -> None:
    odd = answer({"a": "1"}) | {
        "requires": {"a": "b", "c": [{}], "d": ["x; os_name > 7"]},
        "markers": 7,
    }
    assert seen(odd).unmet == []


def test_a_second_redaction_stands_behind_the_first() -> None:
    found = seen(
        answer(
            {},
            None,
            env={"TRITON_CACHE_DIR": "/home/user1/x"},
            indexes={"hosts": ["user1:s3cr3t-canary@host.invalid"]},
        )
    )
    text = str(found.plain())
    assert "user1" not in text
    assert "s3cr3t-canary" not in text


def test_what_is_asked_of_the_probe() -> None:
    places = {"places": {"working": {"free_bytes": 7}}}
    target = FakeTarget({"observe": answer({}), "observe_preflight": {"preflight": places}})
    found = observe(target, check_files=True, preflight=True)
    assert target.calls[0].arguments == ["--check-files", "--gpu-state"]
    assert target.calls[0].timeout_s > 60
    assert found.find("preflight.places.working.free_bytes") == 7
    quick = observe(target)
    assert [call.probe for call in target.calls] == ["observe", "observe_preflight", "observe"]
    assert target.calls[2].arguments == []
    assert isinstance(quick.preflight, Unknown)


# --- the deep look ------------------------------------------------------------------------------

FAST = {"version": "2.3.0+cu121", "cxx11_abi": False}
DEEP = {
    "observed": {
        "torch": {
            "importable": True,
            "arch_list": ["sm_80", "sm_90"],
            "config": {"USE_CUDA": "ON"},
            "cxx11_abi": {"unknown": "this torch does not tell"},
            "num_threads": 8,
        },
        "cudnn": {"compiled": "8.9.2", "loaded": {"unknown": "no driver"}},
        "nccl": {"compiled": "2.20.5"},
    }
}


def torch_target() -> FakeTarget:
    observed = {
        "torch": FAST,
        "read_from": {"torch": "torch/version.py"},
        "cudnn": {"loaded": "8.9.2", "path_class": "wheel"},
    }
    return FakeTarget(
        {
            "observe": answer({"torch": "2.3.0"}, None, nccl={"absent": True}, **observed),
            "observe_torch": DEEP,
        }
    )


def test_deep_facts_are_laid_over_the_others() -> None:
    found = observe(torch_target(), deep=True)
    assert found.find("torch.version") == "2.3.0+cu121"
    assert found.find("torch.arch_list") == ["sm_80", "sm_90"]
    assert found.find("torch.cxx11_abi") is False, "unknown hides nothing"
    assert found.find("cudnn.loaded") == "8.9.2", "unknown hides nothing"
    assert found.find("cudnn.compiled") == "8.9.2"
    assert found.find("nccl.compiled") == "2.20.5"


def test_a_torch_that_cannot_be_imported() -> None:
    target = torch_target()
    target.answers["observe_torch"] = {
        "observed": {"torch": {"importable": {"unknown": "import torch failed: OSError: x"}}}
    }
    found = observe(target, deep=True)
    assert isinstance(found.find("torch.importable"), Unknown)
    assert found.find("torch.version") == "2.3.0+cu121"


def test_a_later_fast_look_knows_the_build(cache: Path) -> None:
    observe(torch_target(), deep=True)
    found = observe(torch_target())
    assert found.find("torch.arch_list") == ["sm_80", "sm_90"]
    assert found.find("cudnn.compiled") == "8.9.2"
    assert "RECORD digest" in found.read_from["torch.arch_list"]
    assert isinstance(found.find("torch.num_threads"), Unknown), "that depends on the machine"
    assert isinstance(found.find("torch.importable"), Unknown)
    assert [path.name for path in cache.iterdir()] == ["a" * 64 + ".json"]


def test_another_torch_does_not_get_them() -> None:
    observe(torch_target(), deep=True)
    other = torch_target()
    other.answers["observe"]["observed"]["packages"]["torch"]["record"] = "sha256:" + "b" * 64
    assert isinstance(observe(other).find("torch.arch_list"), Unknown)


def test_a_torch_without_a_digest_is_not_kept(cache: Path) -> None:
    target = torch_target()
    target.answers["observe"]["observed"]["packages"]["torch"]["record"] = {"absent": True}
    observe(target, deep=True)
    assert not cache.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"torch": {"arch_list": 1}}',
        b'{"torch": {"version": "9"}}',
        b'{"driver": {"version": "1"}}',
        b"[" * 100_000,
    ],
)
def test_a_spoilt_cache_is_no_cache(cache: Path, content: bytes) -> None:
    cache.mkdir(parents=True)
    (cache / ("a" * 64 + ".json")).write_bytes(content)
    found = observe(torch_target())
    assert isinstance(found.find("torch.arch_list"), Unknown)
    assert found.find("torch.version") == "2.3.0+cu121"


def test_a_folder_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert observe(torch_target(), deep=True).find("torch.arch_list") == ["sm_80", "sm_90"]


def test_no_home_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "")
    assert observe(torch_target()).find("torch.version") == "2.3.0+cu121"
