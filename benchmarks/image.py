"""Building an image, against a Dockerfile with one ``RUN pip install`` of the same wheel files.

    python -m benchmarks.image [LOCK WHEELHOUSE]

1. Cold, no cache of layers: to an OCI layout at most 0.5 times as long, into the Docker Engine at
   most 0.9 times; and the image no larger.
2. One small pure-Python package changed, from the lock to the image in a registry on this machine:
   at most 1/20 of the time of the same change in the Dockerfile, and under 20 MB sent.

Both sides stand upon the same base, with a layer in it that no engine has seen, so that nothing of
an earlier run is found again. Without LOCK the environment with a CPU torch is taken. Prints a line
a figure; exits 1 where a limit is missed. Needs a Docker Engine, docker-registry and skopeo.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.pylock import Package as LockedPackage
from packaging.utils import canonicalize_name
from packaging.version import Version

from benchmarks.speed import ratio
from envlock.image import oci
from envlock.image.buildkit import client_environment, find_client
from envlock.image.fetch import place, place_file
from envlock.image.foundation import read_layers
from envlock.image.plan import Artifact
from envlock.image.registry import LoopbackRegistry
from envlock.lock.digest import lock_id
from envlock.lock.io import load_lock, render_lock, with_end
from envlock.lock.model import Lock
from envlock.lock.observation import Package
from scripts.environments import BUILD, TORCH, check, ensure_base, ensure_engine, ensure_environment
from tests.unit.wheels import make_wheel

ENVLOCK = str(Path(sys.executable).parent / "envlock")
PIP = "pip==25.3"
SMALL = "envlock-bench-small"
TAG = "envlock-bench"
MOST_SENT = 20_000_000

_NAIVE = """\
FROM {base}
RUN --mount=type=bind,target=/context python3 /context/pip.whl/pip install --no-index --no-deps \
    --no-cache-dir --root-user-action=ignore --break-system-packages /context/wheels/*.whl
"""


def main() -> int:
    ensure_engine()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=BUILD) as name:
        folder = Path(name)
        lock, wheels = _given(folder)
        base = _fresh_base(ensure_base(), folder / "base")
        pip = _pip_wheel(folder)
        locks = [_with_small(lock, wheels, folder, version) for version in ("1.0", "2.0")]
        with LoopbackRegistry(base) as registry, _served_images(folder) as store:
            contexts = [
                _context(folder / f"context-{number}", where, pip, registry.reference)
                for number, (_, where) in enumerate(locks)
            ]
            bench = _Bench(folder, base, store)
            missed = bench.run(locks, contexts)
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


class _Bench:
    def __init__(self, folder: Path, base: oci.Layout, store: _Registry) -> None:
        self._folder, self._store, self._made = folder, store, list[str]()
        self._base = ["--base", f"oci:{base.folder}"]
        self._environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}

    def run(self, locks: Sequence[tuple[Path, Path]], contexts: Sequence[Path]) -> list[str]:
        try:
            return self._cold(locks[0], contexts[0]) + self._change(locks, contexts)
        finally:
            made = [f"{TAG}:ours", *self._made]
            subprocess.run(["docker", "rmi", "--force", *made], check=False, capture_output=True)

    def _cold(self, lock: tuple[Path, Path], context: Path) -> list[str]:
        layout = f"oci:{self._folder}/out"
        to_layout = self._ours(lock, "--no-cache", "--engine", "none", "-o", layout)
        shutil.rmtree(self._folder / "out")
        to_engine = self._ours(lock, "--no-cache", "-t", f"{TAG}:ours")
        naive = self._naive(context)
        sizes = [int(_inspect(f"{TAG}:{one}", "{{.Size}}")) for one in ("ours", "naive")]
        print(f"assembled to a layout {to_layout:.1f} s, into the engine {to_engine:.1f} s")
        print(f"one RUN pip install   {naive:.1f} s")
        print(f"sizes {sizes[0] >> 20} MiB and {sizes[1] >> 20} MiB")
        return [
            *ratio("to a layout / pip", to_layout / naive, 0.5),
            *ratio("into the engine / pip", to_engine / naive, 0.9),
            *ratio("size / size by pip", sizes[0] / sizes[1], 1.0),
        ]

    def _change(self, locks: Sequence[tuple[Path, Path]], contexts: Sequence[Path]) -> list[str]:
        seconds, sent = [0.0, 0.0], [0, 0]
        for lock, context in zip(locks, contexts, strict=True):  # the second is what counts
            for side in (0, 1):
                before = self._store.received
                started = time.perf_counter()
                if side == 0:
                    out = f"oci:{self._folder}/out"
                    self._ours(lock, "--engine", "none", "-o", out, "--push", self._named("ours"))
                else:
                    self._naive(context)
                    check(["docker", "tag", f"{TAG}:naive", self._named("naive")])
                    check(["docker", "push", "--quiet", self._named("naive")])
                seconds[side] = time.perf_counter() - started
                sent[side] = self._store.received - before
        print(
            f"one small package changed, lock to registry: {seconds[0]:.1f} s, {sent[0]:,} B sent"
        )
        print(f"the same by pip: {seconds[1]:.1f} s, {sent[1]:,} B sent")
        return [
            *ratio("small change / pip", seconds[0] / seconds[1], 0.05),
            *ratio("bytes sent / 20 MB", sent[0] / MOST_SENT, 1.0),
        ]

    def _named(self, name: str) -> str:
        return f"127.0.0.1:{self._store.port}/{TAG}/{name}:1"

    def _ours(self, lock: tuple[Path, Path], *options: str) -> float:
        path, wheels = lock
        started = time.perf_counter()
        command = [ENVLOCK, "build", str(path), "--wheelhouse", str(wheels), "--offline"]
        command += [*self._base, "--no-verify", *options]
        done = subprocess.run(command, env=self._environ, check=False, capture_output=True)
        if done.returncode != 0:
            sys.exit(done.stderr.decode())
        return time.perf_counter() - started

    def _naive(self, context: Path) -> float:
        client = find_client(os.environ)
        started = time.perf_counter()
        command = [*client, "--no-cache", "--network", "none", "-t", f"{TAG}:naive", str(context)]
        environ = client_environment(os.environ)
        done = subprocess.run(command, env=environ, check=False, capture_output=True)
        if done.returncode != 0:
            sys.exit(done.stderr.decode())
        seconds = time.perf_counter() - started
        self._made.append(_inspect(f"{TAG}:naive", "{{.Id}}"))
        return seconds


def _given(folder: Path) -> tuple[Lock, Path]:
    if len(sys.argv) == 3:
        return load_lock(Path(sys.argv[1])), Path(sys.argv[2])
    lock, wheels = folder / "torch.lock", folder / "torch-wheels"
    check([ENVLOCK, "capture", "--python", ensure_environment(TORCH), "-o", lock])
    check([ENVLOCK, "fetch", lock, "-d", wheels])
    return load_lock(lock), wheels


def _fresh_base(base: Path, folder: Path) -> oci.Layout:
    """The base, and a layer that is new to every engine, since ids of layers hold those below."""
    layout = oci.read_layout(base)
    info = tarfile.TarInfo("etc/envlock-bench")
    nonce = secrets.token_hex(16).encode()
    info.size = len(nonce)
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer = oci.write_layer(folder / "new.tar", [(info, io.BytesIO(nonce))], epoch=0)
    layer.path.rename(blobs / layer.digest.removeprefix("sha256:"))
    below = read_layers(layout)
    for one in below:
        place_file(one.path, blobs / one.digest.removeprefix("sha256:"))
    config = layout.config()
    config["rootfs"]["diff_ids"].append(layer.digest)
    config.pop("history", None)
    data = oci.canonical_json(config)
    (blobs / oci.sha256(data).removeprefix("sha256:")).write_bytes(data)
    oci.write_index(
        folder,
        oci.descriptor(oci.CONFIG_TYPE, oci.sha256(data), len(data)),
        [
            *(oci.descriptor(one.media_type, one.digest, one.size_bytes) for one in below),
            oci.descriptor(oci.LAYER_TYPE, layer.digest, layer.size_bytes),
        ],
    )
    return oci.read_layout(folder)


def _with_small(lock: Lock, wheels: Path, folder: Path, version: str) -> tuple[Path, Path]:
    """The lock with one more package, and its wheelhouse."""
    where = folder / f"wheels-{version}"
    place(wheels.glob("*.whl"), where)
    one: Artifact = make_wheel(
        where,
        {"small.py": f"x = {version!r}\n".encode()},
        name=SMALL.replace("-", "_"),
        version=version,
    )
    package = LockedPackage(
        name=canonicalize_name(SMALL), version=Version(version), wheels=[one.wheel]
    )
    packages = lock.observed.packages
    assert isinstance(packages, dict)
    observed = lock.observed.changed(packages={**packages, SMALL: Package(version=version)})
    table = lock.table.changed(observed=observed, id=lock_id(observed, lock.table.image.env))
    everything = (*lock.packages, package)
    path = folder / f"{version}.lock"
    path.write_text(
        render_lock(replace(lock, packages=everything, table=with_end(table, everything)))
    )
    return path, where


def _context(folder: Path, wheels: Path, pip: Path, base: str) -> Path:
    place(wheels.glob("*.whl"), folder / "wheels")
    (folder / "Dockerfile").write_text(_NAIVE.format(base=base))
    shutil.copyfile(pip, folder / "pip.whl")
    return folder


def _pip_wheel(folder: Path) -> Path:
    check(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder / "pip", PIP]
    )
    return next((folder / "pip").glob("pip-*.whl"))


def _inspect(image: str, what: str) -> str:
    command = ["docker", "inspect", "-f", what, image]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class _Registry:
    """A door before a registry that counts what comes in."""

    def __init__(self, behind: int) -> None:
        self.received = 0
        self._behind = behind
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._open, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _open(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.create_connection(("127.0.0.1", self._behind))
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, counted: bool) -> None:  # noqa: FBT001
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.received += len(data) if counted else 0
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def _served_images(folder: Path) -> Iterator[_Registry]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = {
        "version": 0.1,
        "log": {"accesslog": {"disabled": True}, "level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
        "http": {"addr": f"127.0.0.1:{port}", "relativeurls": True},
    }
    path = folder / "registry.yml"
    path.write_text(json.dumps(config))
    program = subprocess.Popen(["docker-registry", "serve", str(path)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        door = _Registry(port)
        yield door
        door.close()
    finally:
        program.terminate()
        program.wait()


if __name__ == "__main__":
    sys.exit(main())
