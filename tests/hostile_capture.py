"""A made-up environment full of what must not be told, and a real capture of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envlock.report import Format
from tests import hostile_command
from tests.hostile_inputs import Input
from tests.hostile_routes import Line, encodings

_URL_FIELDS = ("direct_url.json", "channel URL")


@dataclass(slots=True)
class FakeEnvironment:
    """A folder that is a virtual environment, as far as a probe looks."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.site.mkdir(parents=True)
        (self.folder / "bin").mkdir()
        base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info[1]}"
        self.python.symlink_to(base if base.exists() else sys.executable)
        (self.folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
        self.home.mkdir()
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))},
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        self.add_distribution({"url": "https://control.example/w.whl", "archive_info": {}})

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python3"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def site(self) -> Path:
        release = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return self.folder / "lib" / release / "site-packages"

    def add_distribution(self, direct_url: Mapping[str, Any] | None) -> None:
        self.count += 1
        place = self.site / f"planted_{self.count}-1.0.dist-info"
        place.mkdir()
        head = f"Metadata-Version: 2.1\nName: planted-{self.count}\nVersion: 1.0\n"
        (place / "METADATA").write_text(head)
        (place / "RECORD").write_text("")
        if direct_url is not None:
            (place / "direct_url.json").write_text(json.dumps(direct_url))

    def add_pip_conf(self, line: str) -> None:
        for path in (self.folder / "pip.conf", self.home / ".config" / "pip" / "pip.conf"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"[global]\n{line}\n")

    def add_start_up(self, program: str) -> None:
        with (self.site / "sitecustomize.py").open("a") as file:
            file.write(program + "\n")

    def add_program(self, name: str, output: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
        path.chmod(0o755)
        self.environ["PATH"] = f"{path.parent}:{os.environ['PATH']}"

    def add_conda_channel(self, url: str) -> None:
        meta = self.folder / "conda-meta"
        meta.mkdir(exist_ok=True)
        record = {"name": "numpy", "version": "1.26.4", "build": "py311_0", "channel": url}
        (meta / "numpy-1.26.4-py311_0.json").write_text(json.dumps({**record, "url": url}))


def plant(made: FakeEnvironment, place: str, value: Any) -> None:  # noqa: C901 - one branch a place
    """Put a value of the inputs where its ``field`` says. Raises KeyError for an unknown one."""
    if place == "environment":
        made.environ.update(value)
    elif place.startswith("pip configuration"):
        made.environ.update({"PIP_INDEX_URL": value, "PIP_EXTRA_INDEX_URL": value})
        made.add_pip_conf(f"index-url = {value}\nextra-index-url = {value}\nfind-links = {value}")
    elif place == "pip.conf":
        made.add_pip_conf(value)
    elif place == "direct_url.json":
        made.add_distribution(value if isinstance(value, dict) else {"url": value})
        if not isinstance(value, dict):
            made.add_distribution({"url": value, "archive_info": {}})
    elif place == "channel URL":
        made.add_conda_channel(value)
        made.add_distribution({"url": value, "archive_info": {}})
    elif place.startswith("editable"):
        made.add_distribution({"url": f"file://{value}", "dir_info": {"editable": True}})
        for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME"):
            made.environ[name] = value
    elif place.startswith("platform"):
        made.environ.update(HOSTNAME=value["node"], USER=value["user"], LOGNAME=value["user"])
        names = f"posix.uname_result(('Linux', {value['node']!r}, '6.1.0', '#1', 'x86_64'))"
        made.add_start_up(
            f"import os, posix, socket\nos.uname = posix.uname = lambda: {names}\n"
            f"socket.gethostname = lambda: {value['node']!r}"
        )
    elif place == "nvidia-smi":
        made.add_program("nvidia-smi", ", ".join(value.values()))
    elif place == "error output":
        made.add_start_up(f"import sys; sys.stderr.write({value + chr(10)!r}); sys.exit(3)")
    else:
        raise KeyError(place)


def everything_said(made: FakeEnvironment) -> dict[str, str]:
    """Capture, and every product that follows: name -> text."""
    lock = made.folder.parent / "captured.lock"
    arguments = ["capture", "--offline", "--debug", "--python", str(made.python), "-o", str(lock)]
    done = hostile_command.command(arguments, made.folder.parent, made.environ)
    said = {"capture stdout": done.stdout, "capture stderr --debug": done.stderr}
    if not lock.exists():
        return said
    said["lock"] = lock.read_text()
    other = made.folder.parent / "good.lock"
    for format_ in Format:
        arguments = ["diff", lock.name, other.name, "-f", format_.value, "--verbose", "--debug"]
        done = hostile_command.command(arguments, made.folder.parent, made.environ)
        said[f"diff {format_.value}"] = done.text
    return said


def captured_lines(item: Input, folder: Path) -> Iterator[Line]:
    from tests.hostile_places import GOOD  # noqa: PLC0415 - it renders a lock at import

    (folder / "good.lock").write_bytes(GOOD)
    for number, value in enumerate([*item.values, *([item.twin] if item.twin else [])]):
        place = folder / f"{number}"
        place.mkdir()
        (place / "good.lock").write_bytes(GOOD)
        made = FakeEnvironment(place / "env")
        plant(made, item.field, value)
        said = everything_said(made)
        for route, text in said.items():
            found = [form for secret in item.secrets for form in encodings(secret) if form in text]
            faults = [f"shows {found}"] if found else []
            faults += (
                ["a traceback"] if item.field != "error output" and "Traceback" in text else []
            )
            yield Line(input=item.id, route=route, faults=faults)
        if item.field != "error output":
            lost = "lock" not in said or "control.example" not in said["lock"]
            faults = ["what may be told is not in the lock"] if lost else []
            yield Line(input=item.id, route="positive control", faults=faults)
