"""Planted secrets: a real capture and every product of it, searched in four encodings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envlock.image.assemble import Sources, assemble
from envlock.image.base import BaseChoice, assembly_base
from envlock.image.fetch import Shelves
from envlock.image.layers import LayerStore
from envlock.image.output import write_oci
from envlock.image.plan import make_plan, python_version
from envlock.image.render import embedded_lock
from envlock.lock.io import parse_lock
from tests.hostile_capture import FakeEnvironment, everything_said, plant
from tests.hostile_places import GOOD
from tests.hostile_routes import encodings
from tests.unit.base_layouts import LABELS, base_layout, search

CANARY = "s3cr3t-canary"
URL = f"https://user1:{CANARY}@host.invalid/simple"
CANARIES = (
    *(CANARY, "user1", "secret-project", "hostname-canary"),
    *("GPU-00000000-1111-2222-3333-444444444444", "1320000000001"),
)
PLACES = (
    ("environment", {"HF_TOKEN": CANARY, "WANDB_API_KEY": CANARY, "GITHUB_TOKEN": CANARY}),
    ("environment", {"AWS_SECRET_ACCESS_KEY": CANARY, "MY_PAT": CANARY}),
    ("environment", {"DATABASE_URL": f"postgres://user1:{CANARY}@h.invalid/db"}),
    ("environment", {"SENTRY_DSN": f"https://{CANARY}@h.invalid/1"}),
    ("environment", {"HTTPS_PROXY": f"http://user1:{CANARY}@proxy.invalid:3128"}),
    ("environment", {"PYTORCH_CUDA_ALLOC_CONF": f"token={CANARY}"}),
    ("pip configuration and PIP_INDEX_URL", URL),
    ("pip.conf", f"index-url = {URL}\nproxy = http://user1:{CANARY}@proxy.invalid:3128"),
    ("direct_url.json", {"url": f"https://oauth2:{CANARY}@host.invalid/r.git", "vcs_info": {}}),
    ("direct_url.json", f"https://host.invalid/w.whl?X-Amz-Signature={CANARY}&token={CANARY}"),
    ("direct_url.json", f"https://host.invalid/w.whl#access_token={CANARY}"),
    ("direct_url.json", f"https:/user1:{CANARY}@host.invalid/w.whl"),
    ("channel URL", f"https://host.invalid/t/{CANARY}/channel"),
    ("editable installs, sys.prefix, LD_LIBRARY_PATH", "/home/user1/secret-project/src"),
    ("platform, uname, getuser", {"node": "hostname-canary", "user": "user1"}),
    (
        "nvidia-smi",
        {"uuid": "GPU-00000000-1111-2222-3333-444444444444", "serial": "1320000000001"},
    ),
)


def shown(text: str) -> list[str]:
    return [form for canary in CANARIES for form in encodings(canary) if form in text]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "good.lock").write_bytes(GOOD)
    made = FakeEnvironment(folder / "env")
    for place, value in PLACES:
        plant(made, place, value)
    return everything_said(made)


def test_no_product_shows_a_canary(said: dict[str, str]) -> None:
    assert len(said) == 10, said.get("capture stderr --debug")
    assert {name: found for name, text in said.items() if (found := shown(text))} == {}


def test_the_same_search_finds_what_may_be_told(said: dict[str, str]) -> None:
    """The positive control: the environment was read, and the search sees what is there."""
    forms = encodings("control.example")
    assert any(form in said["lock"] for form in forms)
    assert "planted-1" in said["lock"]
    assert shown(f"a {CANARY} b")


def test_no_layer_config_or_history_of_its_image_shows_a_canary(
    said: dict[str, str], tmp_path: Path
) -> None:
    """Assembled from the lock as it was captured: every file of the image is searched."""
    captured = parse_lock(said["lock"].encode(), "planted.lock")
    # What was planted has no wheels; the image of it installs nothing.
    lock = replace(captured, table=captured.table.changed(resolved=True))
    labels = {**LABELS, "org.envlock.base.python-version": python_version(lock)}
    base_layout(tmp_path / "base", labels=labels)
    reference = BaseChoice(reference=f"oci:{tmp_path / 'base'}")
    foundation = assembly_base(reference, search(python=python_version(lock)))
    sources = Sources(
        foundation=foundation,
        shelves=Shelves(wheelhouse=None, folders=[], cache=tmp_path / "cache"),
        store=LayerStore(tmp_path / "store"),
    )
    image = assemble(make_plan(lock, foundation.base), embedded_lock(lock), sources, lambda _: None)
    write_oci(image, tmp_path / "image", None)
    files = [path for path in (tmp_path / "image").rglob("*") if path.is_file()]
    blobs = [path.read_bytes().decode("latin-1") for path in files]
    assert any("planted-1" in blob for blob in blobs), "the search reads what is in a layer"
    assert [found for blob in blobs if (found := shown(blob))] == []
