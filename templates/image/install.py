"""Install the lock into a tree of its own, one folder a layer, with fixed times.

Runs inside the first stage of the build, with the base's own Python and nothing else. It reads
``plan.json`` beside it. Nothing it prints or writes depends on the day or the machine.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path("/run/envlock")
STAGE = Path("/stage")
BUILT = Path("/built")
CA_BUNDLE = Path("/run/secrets/ca_bundle")
EPOCH = 315532800  # 1980-01-01, the oldest time a wheel can hold
UNWANTED = ("direct_url.json", "INSTALLER", "REQUESTED", "uv_cache.json", "uv_build.json")
INSTALLER = b"envlock\n"
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
VERSION = ".".join(map(str, sys.version_info[:3]))


def main() -> None:
    plan = json.loads((HERE / "plan.json").read_text("utf-8"))
    if plan["python"] != VERSION:
        sys.exit(f"envlock: the base has Python {VERSION}, the lock needs {plan['python']}")
    prefix = Path(plan["prefix"])
    make_environment(prefix)
    site = prefix / "lib" / PYTHON / "site-packages"
    install(prefix, HERE / "requirements.txt")
    install_built(plan, prefix)
    settle_contested(plan, prefix, site)
    (prefix / ".lock").unlink(missing_ok=True)  # uv's
    for bytecode in sorted(prefix.rglob("__pycache__")):
        shutil.rmtree(bytecode)
    for dist_info in sorted(site.glob("*.dist-info")):
        drop_traces(dist_info)
    split_layers(plan, site)
    add_project(plan)
    fix_times()


def make_environment(prefix: Path) -> None:
    """The three things that make a folder a virtual environment; no activate scripts, no pip."""
    home = Path(sys.executable).resolve().parent
    (prefix / "lib" / PYTHON / "site-packages").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / PYTHON).symlink_to(home / PYTHON)
    for alias in ("python", "python3"):
        (prefix / "bin" / alias).symlink_to(PYTHON)
    settings = (f"home = {home}", "include-system-site-packages = false", f"version = {VERSION}")
    (prefix / "pyvenv.cfg").write_text("".join(f"{line}\n" for line in settings), "utf-8")


def install(prefix: Path, requirements: Path, *more: str) -> None:
    """By name, version and hash from a requirements file; no configuration of the base's."""
    options = ["--require-hashes"]
    wheels = HERE / "wheels"
    if wheels.is_dir():
        options += ["--offline", "--no-index", "--find-links", str(wheels)]
    run_uv(prefix, *options, *more, "--requirements", str(requirements))


def install_built(plan: dict[str, Any], prefix: Path) -> None:
    """The wheels that another stage built from source: exactly one each, of what the plan names."""
    for source in plan["sources"]:
        found = sorted((BUILT / source["name"]).glob("*.whl"))
        names = [re.sub(r"[-_.]+", "-", path.name).lower() for path in found]
        wanted = re.sub(r"[-_.]+", "-", f"{source['name']}-{source['version']}-").lower()
        if len(found) != 1 or not names[0].startswith(wanted):
            sys.exit(f"envlock: what was built for {source['name']} is not {wanted}: {names}")
        run_uv(prefix, "--offline", "--no-index", str(found[0]))


def run_uv(prefix: Path, *more: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    if CA_BUNDLE.exists():
        environment["SSL_CERT_FILE"] = str(CA_BUNDLE)
    command = [str(HERE / "uv"), "pip", "install", "--quiet", "--no-config", "--no-cache"]
    command += ["--no-python-downloads", "--python", str(prefix / "bin" / "python")]
    command += ["--no-deps", "--only-binary", ":all:", "--link-mode", "copy", *more]
    code = subprocess.call(command, env=environment, stdin=subprocess.DEVNULL)
    if code:
        sys.exit(f"envlock: uv could not install the locked packages (exit code {code})")


def settle_contested(plan: dict[str, Any], prefix: Path, site: Path) -> None:
    """Where packages bring one path with different contents, the last in the plan wins.

    uv installs side by side, so that which one it is would be chance.
    """
    hashes: dict[str, dict[str, str]] = {}
    for dist_info in sorted(site.glob("*.dist-info")):
        for path, value, _ in record(dist_info):
            hashes.setdefault(path, {})[name_of(dist_info)] = value
    owners = [by for by in hashes.values() if len(set(by.values())) > 1]
    rivals = {name for by in owners for name in by}
    lines = (HERE / "requirements.txt").read_text("ascii").splitlines(keepends=True)
    for name in (name for layer in plan["layers"] for name in layer["packages"]):
        if name in rivals:
            one = STAGE.with_name("one-requirement.txt")
            one.write_text("".join(x for x in lines if re.split("==| ", x)[0] == name), "ascii")
            install(prefix, one, "--reinstall")


def drop_traces(dist_info: Path) -> None:
    """Remove what says how a package came here: it differs between ways of building."""
    gone = {f"{dist_info.name}/{name}" for name in UNWANTED}
    for name in UNWANTED:
        if (dist_info / name).exists():
            (dist_info / name).unlink()
    (dist_info / "INSTALLER").write_bytes(INSTALLER)
    value = base64.urlsafe_b64encode(hashlib.sha256(INSTALLER).digest()).rstrip(b"=").decode()
    rows = [row for row in record(dist_info) if row[0] not in gone and not is_bytecode(row[0])]
    rows.append([f"{dist_info.name}/INSTALLER", f"sha256={value}", str(len(INSTALLER))])
    with (dist_info / "RECORD").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(sorted(rows))


def is_bytecode(name: str) -> bool:
    return "__pycache__" in name.split("/")[:-1]


def record(dist_info: Path) -> list[list[str]]:
    with (dist_info / "RECORD").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def split_layers(plan: dict[str, Any], site: Path) -> None:
    """Move each distribution's files below /stage/<layer>; what is left is the last layer's."""
    *heavy, rest = plan["layers"]
    for layer in heavy:
        for dist_info in sorted(site.glob("*.dist-info")):
            if name_of(dist_info) in layer["packages"]:
                for row in record(dist_info):
                    move(Path(os.path.normpath(site / row[0])), STAGE / layer["name"])
    prefix, last = Path(plan["prefix"]), STAGE / rest["name"]
    remove_empty_folders(prefix)
    target = below(last, prefix)
    target.parent.mkdir(parents=True)
    shutil.move(str(prefix), str(target))
    lock = below(last, Path(plan["lock_path"]))
    lock.parent.mkdir(parents=True)
    shutil.copyfile(HERE / "embedded.toml", lock)


def add_project(plan: dict[str, Any]) -> None:
    if plan["workdir"] is not None:
        target = below(STAGE / "project", Path(plan["workdir"]))
        shutil.copytree(HERE / "project", target, symlinks=True)


def name_of(dist_info: Path) -> str:
    return re.sub(r"[-_.]+", "-", dist_info.name.rpartition(".")[0].rpartition("-")[0]).lower()


def below(folder: Path, path: Path) -> Path:
    return folder / path.relative_to("/")


def move(path: Path, layer: Path) -> None:
    """What RECORD names and is not there was never installed (bytecode, say)."""
    if path.is_symlink() or path.exists():
        target = below(layer, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)


def remove_empty_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        if next(Path(path).iterdir(), None) is None:
            Path(path).rmdir()


def fix_times() -> None:
    for folder, names, files in os.walk(STAGE, topdown=False):
        for name in (*files, *names):
            path = Path(folder, name)
            if not path.is_symlink():
                executable = path.is_dir() or os.access(path, os.X_OK)
                path.chmod(0o755 if executable else 0o644)
            os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
    os.utime(STAGE, (EPOCH, EPOCH))


if __name__ == "__main__":
    main()
