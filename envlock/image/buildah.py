"""Build a context folder with Buildah: no daemon, and nothing left of it but the image's files.

Each build has a storage of its own that goes with it. The steps run in ``chroot`` isolation, which
works inside containers too, and cannot cut a step off from the network: what a step may reach is the
installer's to decide, as ``uv --offline`` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envlock.errors import BuildError, InputError, TargetError
from envlock.image import oci
from envlock.image.buildkit import Progress, client_environment, secret_options
from envlock.image.fetch import cannot_write
from envlock.image.foundation import BaseLayer, Foundation
from envlock.image.options import Say
from envlock.image.output import Packed
from envlock.image.plan import EPOCH
from envlock.targets.process import Completed, Limits, find_program, run, stream

_LOOK = Limits(timeout_s=20, stdout_bytes=1 << 20)
_COPY = Limits(timeout_s=3600, stdout_bytes=1 << 20)
_BUILD = Limits(timeout_s=7200)
BASE = "localhost/base"
"""What the storage of a build calls its base, and FROM names: the same name on every machine."""
_HINT = "install buildah from the distribution, or build with a Docker Engine"


@dataclass(frozen=True, kw_only=True, slots=True)
class Buildah:
    """One build's storage. Made by ``opened``."""

    program: Path
    scratch: Path

    def build(
        self, context: Path, foundation: Foundation, secrets: Mapping[str, Path], say: Say
    ) -> Packed:
        """Build ``context/Dockerfile``, which is FROM ``BASE``.

        Raises BuildError for a failing instruction, TargetError when Buildah itself cannot work.
        """
        id_file = self.scratch / "id"
        self._import(foundation)
        progress = Progress(show=say)
        options = [
            *("--format", "oci", "--layers", "--force-rm", "--pull-never", "--no-cache"),
            *("--timestamp", str(EPOCH), "--isolation", "chroot", "--network", "host"),
            *("--iidfile", str(id_file), *secret_options(secrets)),
        ]
        code = stream(
            [*self._storage, "bud", *options, "--", context.resolve()],
            limits=_BUILD,
            on_output=progress.feed,
            env=self._environment,
        )
        progress.close()
        if code != 0:
            raise BuildError(
                f"the build failed (code {code}):\n{progress.tail()}",
                hint="the last lines above are the failing step's",
            )
        return self._export(id_file.read_text("ascii").strip(), foundation)

    def _import(self, foundation: Foundation) -> None:
        """Where a layout lies would be part of its name: it is named from beside it."""
        link = self.scratch / "base"
        if not link.is_symlink():
            link.symlink_to(foundation.folder.resolve())
            self._run("pull", "--quiet", "oci:base")

    def _export(self, image_id: str, foundation: Foundation) -> Packed:
        """Layers as they are, uncompressed; the base's are those that it came with."""
        out = Path(tempfile.mkdtemp(prefix="out-", dir=self.scratch))
        self._run("push", "--quiet", "--disable-compression", image_id, f"dir:{out}")
        base = foundation.layers
        try:
            manifest = json.loads((out / "manifest.json").read_bytes())
            config = (out / str(manifest["config"]["digest"]).removeprefix("sha256:")).read_bytes()
            diff_ids = json.loads(config)["rootfs"]["diff_ids"]
            rows = list(zip(manifest["layers"], diff_ids, strict=True))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TargetError(
                f"what Buildah exports is not an image: {error}", hint=_HINT
            ) from error
        if diff_ids[: len(base)] != [layer.diff_id for layer in base]:
            raise BuildError("Buildah did not build upon the base's layers as they are", hint=_HINT)
        own = [_layer(out, row["digest"], diff_id) for row, diff_id in rows[len(base) :]]
        return Packed(image_id=oci.sha256(config), config=config, blobs=(*base, *own))

    @property
    def _storage(self) -> list[str | Path]:
        place = ["--root", str(self.scratch / "root"), "--runroot", str(self.scratch / "run")]
        return [self.program, *place]

    @property
    def _environment(self) -> dict[str, str]:
        env = {**client_environment(os.environ), "TMPDIR": str(self.scratch)}
        if driver := os.environ.get("STORAGE_DRIVER"):
            env["STORAGE_DRIVER"] = driver
        return env

    def _run(self, *arguments: str) -> Completed:
        command = [*self._storage, *arguments]
        done = run(command, limits=_COPY, env=self._environment, cwd=self.scratch)
        if done.code != 0:
            raise TargetError(f"Buildah cannot work here: {done.stderr_tail()}", hint=_HINT)
        return done

    def clear(self) -> None:
        """Also what a build that was cut off had mounted, and what belongs to its other users."""
        commands: list[Sequence[str | Path]] = [[*self._storage, "rm", "--all"]]
        if os.geteuid() != 0:
            root = self.scratch / "root"
            commands.append([self.program, "unshare", "rm", "-rf", root, self.scratch / "run"])
        for command in commands:
            with contextlib.suppress(TargetError):
                run(command, limits=_LOOK, env=self._environment)
        shutil.rmtree(self.scratch, ignore_errors=True)


@contextlib.contextmanager
def opened(cache: Path) -> Iterator[Buildah]:
    """Raises TargetError without Buildah, InputError when ``cache`` cannot be written."""
    program = find_program("buildah", hint=_HINT)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".buildah-", dir=cache))
    except OSError as error:
        raise cannot_write(cache, error) from error
    buildah = Buildah(program=program, scratch=scratch)
    try:
        yield buildah
    finally:
        buildah.clear()


def describe() -> str:
    """``Buildah 1.28.2``; raises TargetError without it."""
    said = run([find_program("buildah", hint=_HINT), "--version"], limits=_LOOK).stdout
    found = re.search(rb"version ([0-9]+\.[0-9]+\.[0-9]+)", said)
    return f"Buildah {found[1].decode()}" if found else "Buildah"


def _layer(folder: Path, digest: str, diff_id: str) -> BaseLayer:
    path = folder / digest.removeprefix("sha256:")
    if digest != diff_id or not path.is_file():
        raise InputError(f"Buildah exported {digest} for the layer {diff_id}", hint=_HINT)
    return BaseLayer(
        path=path,
        digest=digest,
        size_bytes=path.stat().st_size,
        media_type=oci.LAYER_TYPE,
        diff_id=diff_id,
    )
