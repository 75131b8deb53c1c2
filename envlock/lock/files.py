"""Reading and saving files that matter: bounded, whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from envlock.errors import InputError

MAX_BYTES = 64 << 20
_STRAY_AGE_S = 3600
_MARK = ".envlock-tmp-"


def read_bounded(path: Path, *, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes.

    Raises InputError for anything else: a folder, a pipe, a device, a file that is too large or
    that cannot be read.
    """
    try:
        # O_NONBLOCK: opening a pipe without a writer would wait for ever.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}", hint="check the path"
        ) from error
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise InputError(f"{path}: not a regular file", hint="give the path of a file")
        if info.st_size > limit:
            raise _too_large(f"{path}", f"{info.st_size} bytes; at most {limit}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise _too_large(f"{path}", f"at most {limit} bytes")
    return data


def read_stream(stream: IO[bytes], name: str) -> bytes:
    """The bytes of a pipe, at most as many as of a file. Raises InputError."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _too_large(name, f"at most {MAX_BYTES} bytes")
    return data


def _too_large(name: str, sizes: str) -> InputError:
    return InputError(f"{name}: too large ({sizes})", hint="see that it is the file that you meant")


def save(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step; a failure leaves what was there.

    A link is replaced, not followed. The mode of an old file is kept, a new one gets the umask's.
    Raises InputError when it cannot be written.
    """
    try:
        with _sibling(path) as temporary:
            _write_through(temporary, text.encode("utf-8"), _mode_for(path))
            temporary.replace(path)
            _sync_folder(path.parent)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}",
            hint="nothing was changed; choose another place with -o",
        ) from error


@contextlib.contextmanager
def _sibling(path: Path) -> Iterator[Path]:
    _sweep(path.parent)
    handle, name = tempfile.mkstemp(prefix=_MARK, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write_through(path: Path, data: bytes, mode: int) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(mode)


def _mode_for(path: Path) -> int:
    with contextlib.suppress(OSError):
        info = path.lstat()
        if stat.S_ISREG(info.st_mode):
            return stat.S_IMODE(info.st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system can sync a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove what a killed save left, once no running save can own it."""
    with contextlib.suppress(OSError):
        for stray in folder.glob(f"{_MARK}*"):
            with contextlib.suppress(OSError):
                if time.time() - stray.lstat().st_mtime > _STRAY_AGE_S:
                    stray.unlink()
