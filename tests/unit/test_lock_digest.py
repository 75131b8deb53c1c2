"""The id of an environment: what is in it changes it, what is not leaves it."""

from __future__ import annotations

from typing import Any

import pytest

from envlock.lock.digest import lock_id, machine_id, short
from tests.unit.locks import DIGEST, observation

BASE = lock_id(observation(), {})


def test_the_id_of_a_known_environment_never_changes() -> None:
    assert BASE == KNOWN


def _numpy(**fields: Any) -> dict[str, Any]:
    numpy = {"version": "1.26.4", "record": f"sha256:{DIGEST}", **fields}
    return {
        "packages": {"numpy": numpy, "torch": {"version": "2.3.0", "record": f"sha256:{'1' * 64}"}}
    }


@pytest.mark.parametrize(
    "changes",
    [
        _numpy(installer="uv"),
        _numpy(source={"kind": "index"}),
        _numpy(path_class="conda"),
        {"system": {"glibc": "2.28", "kernel": "6.1"}},
        {"driver": {"version": "535.54.03"}},
        {"env": {"HOME": "/somewhere"}},
        {"exhaustive": []},
        {"seeds": {"pip": "26.1"}},
    ],
)
def test_what_is_not_in_the_id(changes: dict[str, Any]) -> None:
    assert lock_id(observation(**changes), {}) == BASE


@pytest.mark.parametrize(
    "changes",
    [
        _numpy(version="1.26.5"),
        _numpy(record=f"sha256:{'2' * 64}"),
        _numpy(record={"unknown": "no RECORD"}),
        {"python": {"version": "3.11.3", "implementation": "cpython", "abi": "cp311"}},
        {"torch": {"version": "2.3.0+cu118", "cuda": "11.8"}},
        {"torch": {"absent": True}},
    ],
)
def test_what_is_in_the_id(changes: dict[str, Any]) -> None:
    assert lock_id(observation(**changes), {}) != BASE


def test_image_variables_are_in_the_id() -> None:
    assert lock_id(observation(), {"OMP_NUM_THREADS": "4"}) != BASE


def test_the_reason_of_an_unknown_is_not_in_the_id() -> None:
    ids = {lock_id(observation(**_numpy(record={"unknown": why})), {}) for why in ("a", "b")}
    assert len(ids) == 1


def test_the_machine_has_an_id_of_its_own() -> None:
    assert machine_id(observation()) != machine_id(observation(driver={"version": "535.54.03"}))
    assert machine_id(observation()) == machine_id(observation(torch={"absent": True}))


def test_the_short_form() -> None:
    assert short(BASE) == BASE.removeprefix("envlock:v1:")[:12]


KNOWN = "envlock:v1:e70a451d4fb71f689001615c5ec2dad17c9845db8c465cca1d279b882d5373c4"
