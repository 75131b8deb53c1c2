"""Planted secrets: a real capture and every product of it, searched in four encodings."""

from __future__ import annotations

import pytest

from tests.hostile_capture import FakeEnvironment, everything_said, plant
from tests.hostile_places import GOOD
from tests.hostile_routes import encodings

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
