"""What a base brings: shown and recorded in every way of building, and refused where it would act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envlock.image.oci import Layout, read_layout
from tests.engine.test_assemble import Case, make_case, no_images_left
from tests.unit.base_layouts import derived
from tests.unit.wheels import make_wheel

__all__ = ["no_images_left"]

ENGINES = ("none", "docker", "buildah")
INSIDE = {
    "Entrypoint": ["/bin/echo", "forged\nbase USER root"],
    "User": "65534",
    "OnBuild": None,
}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, base_layout: Layout) -> Case:
    folder = tmp_path_factory.mktemp("base")
    return make_case(folder, base_layout, make_wheel(folder / "wheels", {"demo.py": b"x = 1\n"}))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_containers_of_the_base_get_is_shown_and_recorded(
    engine: str, case: Case, base_layout: Layout, tmp_path: Path
) -> None:
    odd = derived(base_layout, tmp_path / "odd", INSIDE)
    file = tmp_path / "build.json"
    into = ("-o", f"oci:{tmp_path}/out", "--metadata", file, "--no-verify")
    said = case.build("--engine", engine, "--base", f"oci:{odd.folder}", *into).stderr.splitlines()
    assert r"base ENTRYPOINT /bin/echo forged\nbase USER root: the image has none" in said
    assert "base USER 65534: the image has 10001:10001" in said
    assert any(line.startswith("base ENV PATH=/") for line in said)
    report = json.loads(file.read_text())
    base = report["base"]
    assert (base["entrypoint"], base["user"]) == (["/bin/echo", r"forged\nbase USER root"], "65534")
    assert base["env"]["PATH"].startswith("/")
    check_report(report, read_layout(tmp_path / "out"), case)


def check_report(report: dict[str, Any], image: Layout, case: Case) -> None:
    """The ids are those of what was written; sizes and times of every part are there."""
    diff_ids = image.config()["rootfs"]["diff_ids"]
    assert report["image_id"] == json.loads(image.manifest)["config"]["digest"]
    assert [*report["base"]["layers"], *(one["diff_id"] for one in report["layers"])] == diff_ids
    assert f'id = "{report["lock_id"]}"' in case.lock.read_text()
    assert report["outputs"] == [f"oci:{image.folder}"]
    sizes = [one["size_bytes"] for one in report["layers"]]
    assert report["sizes"]["layers_bytes"] == sum(sizes) > 0
    making = "layers" if report["way"] == "assembler" else "build"
    assert {"base", making, "output"} <= set(report["seconds"])


@pytest.mark.parametrize("engine", ENGINES)
def test_onbuild_is_refused(engine: str, case: Case, base_layout: Layout, tmp_path: Path) -> None:
    odd = derived(base_layout, tmp_path / "odd", {"OnBuild": ["RUN touch /canary"]})
    into = ("-o", f"oci:{tmp_path}/out", "--no-verify", "--base", f"oci:{odd.folder}")
    done = case.build("--engine", engine, *into, expect=4)
    assert "has ONBUILD instructions, which would run in this build" in done.stderr
    assert not (tmp_path / "out").exists()
