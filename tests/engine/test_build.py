"""The main job on a real torch and a real engine: build, verify, round trip, planted faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envlock.findings import Severity
from envlock.image.buildkit import client_environment, find_client
from envlock.image.oci import Layout
from envlock.rules.behaviour import judge_behaviour
from envlock.targets.container import ContainerOptions, ImageTarget
from envlock.targets.engine import Engine
from envlock.targets.smoke import measure
from scripts.faults import FAULTS, Fault, build_fault

ENVLOCK = str(Path(sys.executable).parent / "envlock")
TAG = "envlock-test-build:good"


def envlock(*arguments: str | Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    command = [ENVLOCK, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    assert done.returncode == expect, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = os.environ.get("ENVLOCK_TEST_TORCH_PYTHON")
    assert python, "set ENVLOCK_TEST_TORCH_PYTHON to an interpreter with a CPU torch"
    path = tmp_path_factory.mktemp("lock") / "pylock.env.toml"
    envlock("capture", "--python", python, "--deep", "--smoke", "-o", path)
    return path


@pytest.fixture(scope="module")
def image(lock: Path, base_layout: Layout) -> Iterator[str]:
    envlock("build", lock, "-t", TAG, "--base", f"oci:{base_layout.folder}")
    yield TAG
    subprocess.run(["docker", "rmi", "--force", TAG], check=False, capture_output=True)


def test_build_records_what_it_built(lock: Path, image: str) -> None:
    shown = envlock("show", lock).stdout
    assert "built on   bootstrapped@sha256:" in shown


def test_verify_reads_the_lock_inside(image: str) -> None:
    verdict = json.loads(envlock("verify", image, "--no-smoke", "--format", "json").stdout)
    assert verdict["result"] == "pass"
    assert verdict["checked"] >= 40
    assert not [f for f in verdict["findings"] if f["severity"] != "info"]
    assert "driver" in verdict["unknown_subjects"]


def test_a_round_trip_gives_the_same_id_with_nothing_left_out(
    lock: Path, image: str, tmp_path: Path
) -> None:
    again = tmp_path / "again.lock"
    envlock("capture", "--image", image, "-o", again)
    assert _value(again, "id") == _value(lock, "id")
    assert "left_out" not in again.read_text()


def _value(path: Path, key: str) -> str:
    table = path.read_text().partition("[tool.envlock]")[2]
    return next(line for line in table.splitlines() if line.startswith(f"{key} = "))


_COMPILED = """
import csv, glob, os
site = "/opt/env/lib/python3.11/site-packages"
records = (csv.reader(open(path)) for path in glob.glob(site + "/*.dist-info/RECORD"))
shipped = {os.path.normpath(os.path.join(site, row[0])) for record in records for row in record}
files = {os.path.join(d, n) for d, _, names in os.walk("/opt/env") for n in names}
print(sorted(path for path in files - shipped if path.endswith(".pyc")))
"""
"""Bytecode that no wheel brought."""


def test_the_image_is_lean_and_not_root(image: str) -> None:
    inspected = subprocess.run(
        ["docker", "inspect", image], check=True, capture_output=True, text=True
    )
    config: dict[str, Any] = json.loads(inspected.stdout)[0]["Config"]
    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.envlock.python"] == "/opt/env/bin/python"
    run = ["docker", "run", "--rm", "--network", "none", image, "python", "-B", "-S", "-c"]
    assert subprocess.run([*run, _COMPILED], check=True, capture_output=True).stdout == b"[]\n"
    no_pip = subprocess.run([*run[:-2], "-c", "import pip"], check=False, capture_output=True)
    assert b"No module named 'pip'" in no_pip.stderr


def test_two_builds_without_cache_have_the_same_layers(lock: Path, base_layout: Layout) -> None:
    tags = ("envlock-test-build:first", "envlock-test-build:second")
    layers = []
    for tag in tags:
        options = ("--no-cache", "--no-verify", "--base", f"oci:{base_layout.folder}")
        envlock("build", lock, "-t", tag, *options)
        command = ["docker", "inspect", "-f", "{{json .RootFS.Layers}}", tag]
        layers.append(subprocess.run(command, check=True, capture_output=True).stdout)
    subprocess.run(["docker", "rmi", "--force", *tags], check=False, capture_output=True)
    assert layers[0] == layers[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_verify_sees_a_planted_fault(fault: Fault, lock: Path, image: str, tmp_path: Path) -> None:
    try:
        build_fault(fault, image, tmp_path)
        options = [] if fault.smoke else ["--no-smoke"]
        done = envlock("verify", fault.tag, "--lock", lock, "--format", "json", *options, expect=1)
        verdict = json.loads(done.stdout)
    finally:
        subprocess.run(["docker", "rmi", "--force", fault.tag], check=False, capture_output=True)
    assert fault.matches(verdict["findings"][0]), verdict["findings"][0]


def test_the_behaviour_is_the_recorded_one_and_a_small_shm_is_named(image: str) -> None:
    """Docker's own 64 MB: the battery's batches pass, larger ones would not."""
    options = ("--shm-size", "64", "--fail-on", "error", "--format", "json")
    verdict = json.loads(envlock("verify", image, *options).stdout)
    assert verdict["result"] == "pass"
    assert verdict["checked"] > 150
    found = {f["code"]: f["severity"] for f in verdict["findings"] if f["severity"] != "info"}
    assert found == {"EL814": "warning"}


@pytest.mark.parametrize(
    ("memory", "shm", "code"),
    [(4 << 30, 16 << 20, "EL814"), (240 << 20, 1 << 30, "EL815")],
    ids=["shared memory", "the memory limit"],
)
def test_which_of_two_limits_ended_a_worker_is_said(
    engine: Engine, image: str, memory: int, shm: int, code: str
) -> None:
    options = ContainerOptions(memory_bytes=memory, shm_bytes=shm)
    with ImageTarget(engine=engine, image=engine.resolve(image), options=options) as target:
        measured = measure(target, battery=("env", "shm"))
    findings, _, _ = judge_behaviour(None, measured)
    errors = [finding.code for finding in findings if finding.severity is Severity.ERROR]
    assert errors == [code]


def test_a_rendered_folder_builds_by_itself(base_layout: Layout, tmp_path: Path) -> None:
    """Without envlock: docker build fetches by URL and hash, with the CA bundle as a secret."""
    from envlock.image.registry import LoopbackRegistry  # noqa: PLC0415

    uv = str(Path(sys.executable).parent / "uv")
    venv = [uv, "venv", "--quiet", "--python", "/usr/bin/python3", str(tmp_path / "venv")]
    subprocess.run(venv, check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", str(python), "six==1.16.0"]
    subprocess.run(install, check=True)
    small, context, tag = tmp_path / "small.lock", tmp_path / "context", "envlock-test-build:small"
    envlock("capture", "--python", python, "-o", small)
    with LoopbackRegistry(base_layout) as registry:
        envlock("render", small, "-o", context, "--base", registry.reference)
        bundle = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
        options = ["--network", "host", "--secret", f"id=ca_bundle,src={bundle}", "--tag", tag]
        subprocess.run(
            [*find_client(os.environ), *options, str(context)],
            check=True,
            capture_output=True,
            env=client_environment(os.environ),
        )
    envlock("verify", tag, "--lock", small)
    history = subprocess.run(
        ["docker", "history", "--no-trunc", tag], check=True, capture_output=True
    )
    subprocess.run(["docker", "rmi", "--force", tag], check=False, capture_output=True)
    assert b"BEGIN CERTIFICATE" not in history.stdout


def test_a_lock_that_cannot_be_built_is_refused_by_name(lock: Path, tmp_path: Path) -> None:
    offline = tmp_path / "offline.lock"
    python = os.environ["ENVLOCK_TEST_TORCH_PYTHON"]
    envlock("capture", "--offline", "--python", python, "-o", offline)
    assert "captured with --offline" in envlock("build", offline, expect=6).stderr
    edited = tmp_path / "edited.lock"
    edited.write_text(lock.read_text().replace('release = "2.13.0"', 'release = "2.12.0"'))
    moved = edited.read_text().replace('version = "3.11.2"', 'version = "3.11.9"')
    edited.write_text(moved)
    assert "was edited" in envlock("build", edited, expect=4).stderr


def test_another_python_is_never_taken_silently(
    lock: Path, base_layout: Layout, tmp_path: Path
) -> None:
    uv = str(Path(sys.executable).parent / "uv")
    venv = tmp_path / "venv"
    if (
        "3.11.2"
        in subprocess.run([sys.executable, "-V"], check=True, capture_output=True, text=True).stdout
    ):
        pytest.fail("this test needs a Python other than the base's")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        str(venv / "bin" / "python"),
        "six==1.16.0",
    ]
    subprocess.run(install, check=True)
    other = tmp_path / "other.lock"
    envlock("capture", "--python", venv / "bin" / "python", "-o", other)
    done = envlock("build", other, "--base", f"oci:{base_layout.folder}", expect=6)
    assert "the base has Python" in done.stderr
    assert "--base" in done.stderr
