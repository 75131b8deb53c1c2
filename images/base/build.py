#!/usr/bin/env python3
"""Bootstrap a small Debian (or Ubuntu) base image of this machine's own release as an OCI layout.

    python images/base/build.py [OUTPUT-FOLDER]

For places where no base image can be pulled. Needs mmdebstrap; nothing of a container engine. The
packages come from the mirrors that this machine's apt is set up for. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from envlock.errors import EnvlockError, TargetError
from envlock.image.base import PYTHON_LABEL
from envlock.image.foundation import PYTHON_VERSION_LABEL
from envlock.image.oci import ImageConfig, write_layer, write_layout
from envlock.targets.process import Limits, find_program, run

EPOCH = 1577836800
"""2020-01-01, unless SOURCE_DATE_EPOCH is set. After 1980, or zip files cannot hold the files."""
PACKAGES = ("python3", "libgomp1", "libstdc++6")
"""What compiled wheels expect from the system beside glibc; torch's own need no more."""
PYTHON = "/usr/bin/python3"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

NOT_UNPACKED = ("doc", "info", "lintian", "locale", "man")
"""Below /usr/share; copyright files stay. Also kept out of later layers, through dpkg's settings."""
EMPTIED = (
    "dev",
    "proc",
    "run",
    "sys",
    "tmp",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
    "var/tmp",
)
"""Folders that stay, without what is in them: mount points, caches, logs."""
DROPPED = ("etc/hostname", "etc/machine-id", "etc/resolv.conf", "var/lib/dbus/machine-id")
"""Of the machine that builds, not of the image."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Bootstrap envlock's base image.")
    parser.add_argument("output", nargs="?", type=Path, default=default_output())
    output: Path = parser.parse_args().output
    try:
        digest = build(output, epoch=int(os.environ.get("SOURCE_DATE_EPOCH", EPOCH)))
    except EnvlockError as error:
        sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
        return error.code
    sys.stdout.write(f"{digest}\n")
    return 0


def default_output() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "envlock" / "base"


def build(output: Path, *, epoch: int) -> str:
    """Replace the folder with a fresh layout and return its manifest digest."""
    output.parent.mkdir(parents=True, exist_ok=True)
    # Beside the output, so that the finished layout is renamed into place in one step.
    with tempfile.TemporaryDirectory(prefix=".base-", dir=output.parent) as scratch:
        root = Path(scratch) / "root.tar"
        codename, architecture = this_machine()
        bootstrap(codename, root, epoch=epoch)
        layout = Path(scratch) / "layout"
        with tarfile.open(root) as tree:
            layer = write_layer(Path(scratch) / "layer.tar", entries(tree, epoch), epoch=epoch)
            packages = installed(tree)
        config = ImageConfig(
            architecture=architecture,
            epoch=epoch,
            env={"PATH": PATH, "LANG": "C.UTF-8"},
            labels={PYTHON_LABEL: PYTHON, PYTHON_VERSION_LABEL: python_version(packages)},
            cmd=["python3"],
        )
        digest = write_layout(layout, [layer], config)
        (layout / "packages.tsv").write_text(packages)
        shutil.rmtree(output, ignore_errors=True)
        layout.rename(output)
    return digest


def this_machine() -> tuple[str, str]:
    """Codename of the release, and the architecture as images name it."""
    try:
        codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
        return codename, ARCHITECTURES[platform.machine()]
    except (OSError, KeyError) as error:
        raise TargetError(
            f"the base cannot be bootstrapped on this machine: {error} is not known",
            hint="use a released Debian or Ubuntu on x86_64 or aarch64",
        ) from error


def bootstrap(codename: str, target: Path, *, epoch: int) -> None:
    """Install the release's essential packages, apt and Python into a tar."""
    argv: list[str | Path] = [
        find_program("mmdebstrap", hint="apt-get install mmdebstrap"),
        "--variant=minbase",
        "--format=tar",
        f"--include={','.join(PACKAGES)}",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in NOT_UNPACKED),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        "--",
        codename,
        target,
        "-",
    ]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    done = run(argv, limits=Limits(timeout_s=900), stdin=sources(codename).encode(), env=env)
    if done.code != 0:
        raise TargetError(
            f"mmdebstrap ended with code {done.code}:\n{done.stderr_tail()}",
            hint="run 'apt-get update' and try again; mmdebstrap needs root or user namespaces",
        )


def sources(codename: str) -> str:
    """This machine's own apt sources for its own release, one per line, other vendors left out."""
    form = "$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)"
    apt = find_program("apt-get", hint="the base is bootstrapped on Debian or Ubuntu only")
    done = run(
        [apt, "indextargets", "--format", form, "Created-By: Packages"],
        limits=Limits(timeout_s=60),
    )
    rows = [line.split("|", 3) for line in done.stdout.decode().splitlines()]
    lines = {
        f"deb {uri} {release} {component}"
        for origin, release, component, uri in rows
        if origin in ("Debian", "Ubuntu")
        and (release == codename or release.startswith(f"{codename}-"))
    }
    if not lines:
        raise TargetError(f"apt knows no source of {codename}", hint="run 'apt-get update' first")
    return "\n".join(sorted(lines)) + "\n"


def entries(
    tree: tarfile.TarFile, epoch: int
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """What goes into the layer, sorted by path; of hard links the first by path is the file."""
    members = {clean_name(m.name): m for m in tree.getmembers() if belongs(clean_name(m.name))}
    files: dict[str, str] = {}  # name of the file in the tree -> its first name in the layer
    for name, member in sorted(members.items()):
        info = member.replace(name=name)
        if not (member.isreg() or member.islnk()):
            yield info, None
            continue
        target = clean_name(member.linkname) if member.islnk() else name
        if target in files:
            yield info.replace(linkname=files[target], deep=False), None
            continue
        files[target] = name
        yield from regular(tree, name, members[target], epoch)


def regular(
    tree: tarfile.TarFile, name: str, member: tarfile.TarInfo, epoch: int
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    data = tree.extractfile(member)
    assert data
    content = data.read()
    if name.endswith(".pyc") and content[4:8] == bytes(4):
        # Such a .pyc is used only if it records its source's mtime, which the layer sets.
        content = content[:8] + epoch.to_bytes(4, "little") + content[12:]
    if name == "etc/apt/sources.list":
        content = re.sub(rb"://[^/@\s]*@", b"://", content)  # a mirror's password
    info = member.replace(name=name)
    info.size = len(content)
    yield info, io.BytesIO(content)


def python_version(packages: str) -> str:
    """The release that the distribution's python3 is, from its package's version."""
    found = re.search(r"^python3\.[0-9]+-minimal\t([0-9.]+)", packages, re.MULTILINE)
    if found is None:
        raise TargetError(
            "the bootstrapped tree has no python3", hint="see what python3 depends on"
        )
    return found[1]


def clean_name(name: str) -> str:
    return name.removeprefix("./").rstrip("/")


def belongs(name: str) -> bool:
    return (
        name not in ("", ".", *DROPPED)
        and not name.endswith(("-old", "/ld.so.cache~"))
        and not any(name.startswith(f"{folder}/") for folder in EMPTIED)
    )


def installed(tree: tarfile.TarFile) -> str:
    """Name, version and architecture of every package, from dpkg's own list."""
    data = tree.extractfile("./var/lib/dpkg/status")
    assert data
    rows = []
    for paragraph in data.read().decode().split("\n\n"):
        fields = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if ": " in line and not line.startswith(" ")
        )
        if "Package" in fields:
            rows.append(f"{fields['Package']}\t{fields['Version']}\t{fields['Architecture']}\n")
    return "".join(sorted(rows))


if __name__ == "__main__":
    sys.exit(main())
