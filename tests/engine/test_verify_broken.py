"""A folder's worth of broken images: each refused for the right reason, and the good one passes."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.faults import PYTHON, SITE, Fault, build_fault
from tests.engine.test_build import envlock, image, lock

__all__ = ["image", "lock"]

_REBUILT = f"""
import base64, csv, hashlib, io, pathlib, sys
site = pathlib.Path("{SITE}")
version = site / "torch" / "version.py"
text = version.read_text().replace("+cpu", "+cu126").replace("cuda: Optional[str] = None", "cuda = '12.6'")
version.write_text(text)
digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
for record in site.glob("torch-*.dist-info/RECORD"):
    rows = list(csv.reader(io.StringIO(record.read_text())))
    for row in rows:
        if row[0] == "torch/version.py":
            row[1:] = ["sha256=" + digest, str(len(text))]
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\\n").writerows(rows)
"""
"""Another build of torch under the same version number, consistent with its RECORD."""


@dataclass(frozen=True, kw_only=True)
class Broken:
    fault: Fault
    policy: str = ""
    exit_code: int = 1
    said: str = ""
    """On standard error, where there is no report."""


def broken(
    name: str,
    *instructions: str,
    leads: str = "",
    policy: str = "",
    files: dict[str, str] | None = None,
    exit_code: int = 1,
    said: str = "",
) -> Broken:
    fault = Fault(
        name=name,
        files=files or {},
        instructions=["USER 0:0", *instructions],
        code_family=leads,
        subject="",
    )
    return Broken(fault=fault, policy=policy, exit_code=exit_code, said=said)


BROKEN = [
    broken(
        "other-build",
        'COPY ["rebuilt.py", "/rebuilt.py"]',
        f'RUN ["{PYTHON}", "/rebuilt.py"]',
        files={"rebuilt.py": _REBUILT},
        leads="EL202",
    ),
    broken("missing-package", f"RUN rm -r {SITE}/sympy {SITE}/sympy-*", leads="EL111"),
    broken(
        "shadowed-library",
        f"RUN mkdir /shadow && cp {SITE}/torch/lib/libc10.so /shadow/",
        "ENV LD_LIBRARY_PATH=/shadow",
        leads="EL709",
    ),
    broken("no-caching", "ENV PYTORCH_NO_CUDA_MEMORY_CACHING=1", leads="EL7"),
    broken("too-large", policy='[image]\nmax_size = "100 MB"\n', leads="EL952"),
    broken("another-base", policy='[image]\nbases = ["docker.io/*"]\n', leads="EL953"),
    broken("not-for-that-gpu", policy='[requires]\ngpus = ["9.0"]\n', leads="EL954"),
    broken("onbuild", "ONBUILD RUN touch /onbuild", leads="EL955"),
    broken(
        "no-python",
        f"RUN rm -rf {SITE}/../../../bin /usr/bin/python3*",
        exit_code=5,
        said="no such program (127)",
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.fault.name)
def test_each_is_refused_for_its_reason(
    case: Broken, lock: Path, image: str, tmp_path: Path
) -> None:
    """No instruction is left out of the good image for it: without the fault it passes, below."""
    built, policy = tmp_path / "context", tmp_path / "envlock.toml"
    built.mkdir()
    policy.write_text(case.policy)
    fault = case.fault
    try:
        build_fault(fault, image, built)
        options = ("--lock", lock, "--policy", policy, "--no-smoke", "--format", "json")
        done = envlock("verify", fault.tag, *options, expect=case.exit_code)
    finally:
        subprocess.run(["docker", "rmi", "--force", fault.tag], check=False, capture_output=True)
    if case.exit_code != 1:
        assert case.said in done.stderr
        assert "hint:" in done.stderr
        return
    lead = json.loads(done.stdout)["findings"][0]
    assert lead["code"].startswith(fault.code_family), lead
    assert lead["severity"] == "error"


POLICY = """
[image]
max_size = "2 GB"
bases = ["bootstrapped"]
"""


def test_the_good_image_passes_every_gate(lock: Path, image: str, tmp_path: Path) -> None:
    (tmp_path / "envlock.toml").write_text(POLICY)
    options = ("--lock", lock, "--policy", tmp_path / "envlock.toml", "--no-smoke")
    without = json.loads(envlock("verify", image, *options[:2], *options[4:], "-f", "json").stdout)
    gated = json.loads(envlock("verify", image, *options, "-f", "json").stdout)
    assert (without["result"], gated["result"]) == ("pass", "pass")
    assert gated["checked"] == without["checked"] + 2


def test_several_images_in_the_order_given(lock: Path, image: str, tmp_path: Path) -> None:
    """One that is not there and one that is broken: the others are reported all the same."""
    other = Fault(
        name="second", instructions=["ENV NVIDIA_TF32_OVERRIDE=1"], code_family="", subject=""
    )
    try:
        build_fault(other, image, tmp_path)
        images = (image, "envlock-test-none:x", other.tag)
        done = envlock("verify", *images, "--lock", lock, "--no-smoke", "-f", "json", expect=5)
    finally:
        subprocess.run(["docker", "rmi", "--force", other.tag], check=False, capture_output=True)
    reports: list[dict[str, Any]] = json.loads(done.stdout)["reports"]
    assert [report["right"].split(" ")[0] for report in reports] == [
        f"image:{image}",
        f"image:{other.tag}",
    ]
    assert [report["result"] for report in reports] == ["pass", "fail"]
    assert "error: envlock-test-none:x: " in done.stderr
    assert f"{image}: verifying image:{image}" in done.stderr
