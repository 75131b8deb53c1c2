"""What counts as a difference, as equal and as unknown."""

from __future__ import annotations

import time

import pytest

from envlock.diff.compare import Comparison, DeltaKind, compare
from tests.unit.envs import Facts, env, gpu, package


def compared(left: Facts, right: Facts) -> Comparison:
    return compare(env(left), env(right))


def test_a_changed_fact_has_both_values() -> None:
    (delta,) = compared({"torch/cuda": "12.1"}, {"torch/cuda": "11.8"}).deltas
    assert (delta.subject, delta.left, delta.right) == ("torch.cuda", "12.1", "11.8")
    assert delta.kind is DeltaKind.CHANGED


def test_equal_facts_are_counted() -> None:
    found = compared({"torch/cuda": "12.1"}, {"torch/cuda": "12.1"})
    assert found.deltas == ()
    assert found.equal == 1


def test_two_absences_are_equal() -> None:
    assert compared({"torch/hip": None}, {"torch/hip": None}).equal == 1


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [("3.7", None, DeltaKind.ONLY_LEFT), (None, "3.7", DeltaKind.ONLY_RIGHT)],
)
def test_a_fact_of_one_side(left: str | None, right: str | None, kind: DeltaKind) -> None:
    (delta,) = compared({"torch/hip": left}, {"torch/hip": right}).deltas
    assert delta.kind is kind
    assert {"absent": True} in (delta.left, delta.right)


def test_unknown_equals_nothing_not_even_itself() -> None:
    unknown = {"torch/cuda": {"unknown": "the text does not say"}}
    found = compared(unknown, unknown)
    assert found.equal == 0
    assert found.deltas == ()
    assert "torch.cuda" in found.unknown
    assert "torch.cuda" not in found.one_sided


def test_a_left_out_fact_is_unknown() -> None:
    found = compared({"torch/cuda": "12.1"}, {"torch/version": "2.3.0"})
    assert found.deltas == ()
    assert {"torch.cuda", "torch.version"} <= set(found.one_sided)


def test_a_name_missing_from_a_complete_table_is_absent() -> None:
    left = {"packages": {"numpy": package("1.26.4")}, "exhaustive": ["packages"]}
    right = {"packages": {}, "exhaustive": ["packages"]}
    (delta,) = compared(left, right).deltas
    assert (delta.subject, delta.kind) == ("packages.numpy", DeltaKind.ONLY_LEFT)


def test_a_name_missing_from_a_partial_table_is_unknown() -> None:
    left = {"packages": {"numpy": package("1.26.4")}, "exhaustive": ["packages"]}
    found = compared(left, {"packages": {"scipy": package("1.13.0")}})
    assert [d.subject for d in found.deltas] == ["packages.scipy"]  # complete on the left only
    assert "packages.numpy" in found.unknown


def test_each_variable_is_a_fact() -> None:
    left = {"env": {"A": "1", "B": "2"}, "exhaustive": ["env"]}
    right = {"env": {"A": "1", "C": "3"}, "exhaustive": ["env"]}
    found = compared(left, right)
    assert [d.subject for d in found.deltas] == ["env.B", "env.C"]
    assert found.equal == 1


def test_names_may_hold_dots() -> None:
    def library(version: str) -> Facts:
        return {"libraries": {"libcudnn.so.9": {"version": version}}}

    (delta,) = compared(library("9.1"), library("9.2")).deltas
    assert delta.subject == "libraries.libcudnn.so.9.version"


def test_gpus_are_compared_one_by_one() -> None:
    left = {"gpus": [gpu("8.6"), gpu("8.6")], "exhaustive": ["gpus"]}
    right = {"gpus": [gpu("8.6")], "exhaustive": ["gpus"]}
    (delta,) = compared(left, right).deltas
    assert (delta.subject, delta.kind) == ("gpus.1", DeltaKind.ONLY_LEFT)


@pytest.mark.parametrize(
    "facts",
    [
        {"packages": {"numpy": package("1.26.4", installer="uv", source={"kind": "index"})}},
        {"gpus": [gpu("8.6", used_bytes=1), gpu("8.6", ecc_uncorrected=3)]},
        {"seeds": {"pip": "24.0"}, "read_from": {"torch": "somewhere"}},
        {"contested": {"a.so": ["x", "y"]}, "duplicates": {"x": ["1", "2"]}},
        {"files": {"checked": 3, "altered": {"a.py": "x"}}},
        {"python/site_folders": ["lib64/python3.11/site-packages"]},
    ],
)
def test_what_is_of_the_moment_or_of_one_side_is_not_compared(facts: Facts) -> None:
    bare = {"packages": {"numpy": package("1.26.4")}, "gpus": [gpu("8.6"), gpu("8.6")]}
    found = compare(env(bare), env(bare, facts))
    assert found.deltas == ()


def test_envlock_itself_never_counts() -> None:
    left = {"packages": {}, "exhaustive": ["packages"]}
    right = {"packages": {"torch-envlock": package("0.1.0")}, "exhaustive": ["packages"]}
    assert compared(left, right).deltas == ()


def test_installers_that_came_with_the_environment_never_count() -> None:
    left = {"packages": {}, "seeds": {"pip": "23.0"}, "exhaustive": ["packages"]}
    right = {"packages": {"pip": package("25.0")}, "exhaustive": ["packages"]}
    assert compared(left, right).deltas == ()


def test_facts_that_envlock_set_are_not_compared() -> None:
    left = {"env": {"OMP_NUM_THREADS": "8"}, "limits/shm_bytes": 1}
    right = {"env": {"OMP_NUM_THREADS": "1"}, "limits/shm_bytes": 2}
    ours = {"set_by_envlock": ["env.OMP_NUM_THREADS", "limits"]}
    found = compare(env(left), env(right, ours))
    assert (found.deltas, found.equal) == ((), 0)


def test_a_flag_is_no_number() -> None:
    left, right = {"python/flags": {"optimize": 1}}, {"python/flags": {"optimize": 0}}
    assert len(compared(left, right).deltas) == 1


def test_two_full_observations_take_milliseconds() -> None:
    record = "sha256:" + "0" * 64
    names = [f"package-{n}" for n in range(200)]
    full = env(
        {
            "packages": {name: package("1.0", record=record, installer="pip") for name in names},
            "env": {f"VARIABLE_{n}": "x" for n in range(100)},
            "exhaustive": ["packages", "env"],
        }
    )
    started = time.perf_counter()
    found = compare(full, full)
    took = time.perf_counter() - started
    assert found.equal == 500
    assert took < 0.1  # 2 ms on an idle core; the bound only catches a change of order
