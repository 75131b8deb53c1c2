"""Images of random locks: what an engine then has is what the lock says, and nothing ran."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from envlock.image import buildkit
from envlock.image.base import BaseChoice, chosen_base
from envlock.image.dockerfile import temporary_context
from envlock.image.oci import Layout
from envlock.image.plan import LABEL, make_plan, python_version
from envlock.lock.digest import lock_id
from envlock.lock.io import load_lock
from envlock.lock.model import ImageTable
from envlock.targets.engine import Engine
from tests.engine.test_assemble import Case, make_case
from tests.unit.base_layouts import search
from tests.unit.locks import random_variables
from tests.unit.wheels import make_wheel

SEED = 20260202
LOCKS = int(os.environ.get("ENVLOCK_TEST_LOCKS", "10"))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Case:
    folder = tmp_path_factory.mktemp("random")
    return make_case(folder, base_layout, make_wheel(folder / "wheels"))


def built(context: Path) -> str:
    return buildkit.build(
        context,
        tag=None,
        secrets={},
        network="none",
        no_cache=False,
        on_progress=lambda _: None,
    )


def test_variables_and_labels_come_back_unchanged(case: Case, engine: Engine) -> None:
    """The values pass no grammar first, as those of a lock have to: the rendering alone holds."""
    captured = load_lock(case.lock)
    wheels = {"demo": next(iter(case.wheels.glob("*.whl")))}
    random_ = random.Random(SEED)
    asked = search(engine, python=python_version(captured))
    seen = set()
    with chosen_base(BaseChoice(reference=case.base), asked) as base:
        for _ in range(LOCKS):
            env = random_variables(random_)
            table = captured.table.changed(
                id=lock_id(captured.observed, env), image=ImageTable(env=env)
            )
            lock = replace(captured, table=table)
            plan = make_plan(lock, base)
            with temporary_context(lock, plan, wheels, {}) as context:
                image_id = built(context)
            info = engine.resolve(image_id)
            try:
                assert {name: info.env[name] for name in env} == env
                assert set(info.env) - set(env) == {"PATH", *base.settings.env}
                assert info.labels[f"{LABEL}.lock.id"] == lock.table.id
                assert info.onbuild == ()
                assert len(info.layers) == len(base.layers) + 1
            finally:
                engine.remove(image_id)
            seen.add(info.layers[-1])
    assert len(seen) == LOCKS, "each image carries its own lock"


def test_a_value_that_a_builder_obeys_would_be_seen(case: Case, engine: Engine) -> None:
    """The positive control: without quoting, the same check finds it."""
    captured = load_lock(case.lock)
    wheels = {"demo": next(iter(case.wheels.glob("*.whl")))}
    asked = search(engine, python=python_version(captured))
    with chosen_base(BaseChoice(reference=case.base), asked) as base:
        plan = make_plan(captured, base)
        with temporary_context(captured, plan, wheels, {}) as context:
            file = context / "Dockerfile"
            file.write_text(file.read_text().replace("USER 10001", "ENV A=$PATH B=c\nUSER 10001"))
            image_id = built(context)
    info = engine.resolve(image_id)
    engine.remove(image_id)
    assert info.env["A"] != "$PATH"
    assert info.env["B"] == "c"
