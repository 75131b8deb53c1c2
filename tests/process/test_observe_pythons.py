"""The probe in real interpreters, old and new, with environments as people have them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from envlock.errors import TargetError
from envlock.lock.observation import Observation
from envlock.targets.answer import probe_arguments, read_answer
from envlock.targets.base import ProbeCall
from envlock.targets.local import LocalInterpreter
from envlock.targets.observe import observe
from envlock.targets.process import Completed, Limits, run
from tests.process.interpreters import interpreters

PYTHONS = interpreters()
CALL = ProbeCall(probe="observe")
TOKEN = "f00d" * 8


def probe(python: Path, *flags: str, cwd: Path, **environ: str) -> Completed:
    return run(
        [python, *flags, *probe_arguments(CALL, TOKEN)],
        limits=Limits(timeout_s=60),
        stdin=CALL.source(),
        env={"PATH": os.environ["PATH"], **environ},
        cwd=cwd,
    )


def seen(done: Completed) -> Observation:
    answer = read_answer(done, CALL, TOKEN, "python")
    return Observation.read(answer["observed"])


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> Path:
    return PYTHONS[request.param]


def test_it_runs_and_tells_its_version(python: Path, tmp_path: Path) -> None:
    found = seen(probe(python, cwd=tmp_path))
    ask = "import platform; print(platform.python_version())"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    assert found.find("python.version") == done.stdout.strip()
    assert found.find("python.flags") == {}


def test_without_site_packages(python: Path, tmp_path: Path) -> None:
    found = seen(probe(python, "-S", cwd=tmp_path))
    assert found.find("python.flags") == {"no_site": 1}
    assert found.packages == {}


def test_in_the_c_locale_without_a_home(python: Path, tmp_path: Path) -> None:
    """A folder name that is no text, in a locale that has no letters for it."""
    odd = os.fsencode(tmp_path / "libs") + b"/caf\xe9-1.0.dist-info"
    os.makedirs(odd)  # noqa: PTH103 - the name is bytes
    found = seen(
        probe(
            python,
            cwd=tmp_path,
            LC_ALL="C",
            PYTHONUTF8="0",
            PYTHONCOERCECLOCALE="0",
            PYTHONPATH=str(tmp_path / "libs"),
        )
    )
    assert any(b.folder.startswith("caf") for b in found.find("broken"))


def test_what_start_up_files_print_is_no_answer(python: Path, tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        'print(\'Welcome! {"cuda":"12.9"}\', end="")\n'
        'atexit.register(print, "goodbye")\n'
        "sys.stdout.write('x' * 100)\n"
    )
    done = probe(python, cwd=tmp_path, PYTHONPATH=str(tmp_path / "libs"))
    assert b"Welcome" in done.stdout
    (shown,) = seen(done).find("python.pythonpath")
    assert shown.endswith("/*")
    assert "pytest" not in shown, "folders of people are not named"


def test_the_users_modules_are_not_taken_for_the_standard_library(
    python: Path, tmp_path: Path
) -> None:
    libs = tmp_path / "libs"
    libs.mkdir()
    for name in ("json", "queue", "struct", "base64", "glob", "hashlib"):
        (libs / f"{name}.py").write_text("raise SystemExit('not mine')\n")
    found = seen(probe(python, cwd=tmp_path, PYTHONPATH=str(libs)))
    assert found.find("python.pythonpath")


def test_it_writes_nothing(python: Path, tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "sitecustomize.py").write_text("import helper\n")
    (tmp_path / "libs" / "helper.py").write_text("")
    probe(python, cwd=tmp_path, PYTHONPATH=str(tmp_path / "libs"), HOME=str(tmp_path / "home"))
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["helper.py", "libs", "sitecustomize.py"]


def test_torch_is_read_and_not_run(python: Path, tmp_path: Path) -> None:
    torch = tmp_path / "libs" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('imported')")
    (torch / "version.py").write_text("raise SystemExit('run')\n__version__ = '2.3.0+cu121'\n")
    found = seen(probe(python, cwd=tmp_path, PYTHONPATH=str(tmp_path / "libs")))
    assert found.find("torch.version") == "2.3.0+cu121"
    assert found.find("torch.path_class") == "source"
    assert found.libraries == {}


def test_distributions_as_importlib_sees_them(tmp_path: Path) -> None:
    """An independent reader agrees on every name and version of this very environment."""
    found = seen(probe(Path(sys.executable), cwd=tmp_path))
    program = (
        "import importlib.metadata as m, json, re, sys\n"
        "print(json.dumps({re.sub('[-_.]+', '-', d.metadata['Name']).lower(): d.version"
        " for d in reversed(list(m.distributions())) if d.metadata['Name']}))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path, env={})
    packages = found.find("packages")
    assert {name: package.version for name, package in packages.items()} == json.loads(done.stdout)


# --- secrets ------------------------------------------------------------------------------------

CANARY = "s3cr3t-canary"
NAMES = ("user1", "secret-project", "hostname-canary", CANARY)


def test_planted_secrets_are_not_in_the_answer(tmp_path: Path) -> None:
    home = tmp_path / "home" / "user1"
    site = home / "secret-project" / "site"
    for name, direct_url in (
        ("one", {"url": f"https://oauth2:{CANARY}@h.invalid/r.git", "vcs_info": {"vcs": "git"}}),
        ("two", {"url": f"https://h.invalid/t/{CANARY}/x.whl", "archive_info": {}}),
        ("three", {"url": f"https://h.invalid/w.whl?token={CANARY}", "archive_info": {}}),
        ("four", {"url": f"https://h.invalid/w.whl#access_token={CANARY}", "archive_info": {}}),
        ("five", {"url": f"https:/user1:{CANARY}@h.invalid/w.whl", "archive_info": {}}),
        ("six", {"url": f"file://{home}/secret-project", "dir_info": {"editable": True}}),
    ):
        folder = site / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n\n")
        (folder / "direct_url.json").write_text(json.dumps(direct_url))
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(
        f"[global]\nindex-url = https://user1:{CANARY}@one.invalid/simple\n"
        f"proxy = http://user1:{CANARY}@proxy.invalid:3128\n"
    )
    done = probe(
        Path(sys.executable),
        cwd=tmp_path,
        HOME=str(home),
        USER="user1",
        HOSTNAME="hostname-canary",
        PYTHONPATH=str(site),
        LD_LIBRARY_PATH=str(home / "secret-project" / "lib"),
        TRITON_CACHE_DIR=str(home / "secret-project"),
        CUDA_VISIBLE_DEVICES="GPU-00000000-1111-2222-3333-444444444444",
        HF_TOKEN=CANARY,
        DATABASE_URL=f"postgres://user1:{CANARY}@h.invalid/db",
        PIP_EXTRA_INDEX_URL=f"https://user1:{CANARY}@two.invalid/simple",
    )
    found = seen(done)
    assert found.find("indexes.hosts") == ["one.invalid", "two.invalid"]
    assert {"one", "two", "three", "four", "five", "six"} <= set(found.find("packages"))
    for text in (*NAMES, "GPU-00000000"):
        for form in encodings(text):
            assert form.lower() not in done.stdout.lower(), form


def encodings(text: str) -> list[bytes]:
    raw = text.encode()
    quoted = urllib.parse.quote(text, safe="").encode()
    return [raw, quoted, base64.b64encode(raw).rstrip(b"="), raw.hex().encode()]


# --- targets that misbehave ---------------------------------------------------------------------


def script(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "python3"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return LocalInterpreter(path)


FRAME = """printf 'envlock-begin %s\\n{"schema":"envlock-probe/1","probe":"observe",\
"result":"ok","observed":{}}\\nenvlock-end %s\\n' "$4" "$4"\n"""


def test_a_script_that_answers_well(tmp_path: Path) -> None:
    """So that the faults below are seen for what they are."""
    assert observe(script(tmp_path, FRAME)).find("torch.version").unknown == "not recorded"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exit 0", "gave no answer"),
        ("echo garbage", "garbage"),
        ("echo oops >&2; exit 1", "exit code 1"),
        ("kill -SEGV $$", "exit code 139"),
        ("kill -9 $$", "exit code 137"),
        (FRAME + FRAME, "2 beginnings"),
        (FRAME + "exit 3", "exit code 3"),
        ('printf "envlock-begin $4\\n\\377\\376\\nenvlock-end $4\\n"', "not UTF-8"),
        ("exec yes", "too much output"),
        ("exec /no/such/interpreter", "exit code 127"),
    ],
)
def test_misbehaviour(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        observe(script(tmp_path, text))


def test_a_target_that_hangs_and_ignores_requests_to_end(tmp_path: Path) -> None:
    hangs = script(tmp_path, "trap '' TERM INT; while :; do sleep 1; done")
    with pytest.raises(TargetError, match="timed out"):
        hangs.run_probe(ProbeCall(probe="observe", timeout_s=1))


def test_a_grandchild_that_keeps_the_pipe_open(tmp_path: Path) -> None:
    assert observe(script(tmp_path, "sleep 30 &\n" + FRAME)) is not None


@pytest.mark.parametrize("program", ["/bin/true", "/bin/cat", "/bin/sh", "/bin/bash"])
def test_what_is_no_python(program: str) -> None:
    with pytest.raises(TargetError):
        observe(LocalInterpreter(Path(program)))
