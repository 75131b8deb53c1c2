"""What every part of the probe needs: facts, text that names nobody, and children that may crash.

A fact is a value, ``ABSENT`` (looked for, not there) or ``unknown(why)``. Nothing here judges.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable

ABSENT = {"absent": True}
TEXT_LIMIT = 2048
LINUX = sys.platform.startswith("linux")


def unknown(why: object) -> dict[str, object]:
    return {"unknown": str(why)[:400]}


notes: list[str] = []
"""For the person who captures: what was odd on the way, though it was read."""


def is_value(fact: object) -> bool:
    return not (isinstance(fact, dict) and fact.keys() in ({"absent"}, {"unknown"}))


def guarded(read: Callable[..., object], *arguments: object) -> object:
    """The fact that ``read`` returns; a failure is a reason, never the end of the probe."""
    try:
        return read(*arguments)
    except Exception as error:
        shown = show_text(str(error)[:200])
        return unknown("%s: %s" % (type(error).__name__, shown if is_value(shown) else "?"))


def read_text(path: str, limit: int = 1 << 20) -> str | None:
    """Text of a small file whatever its encoding; None when it is not there or not readable."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode("utf-8", "replace")


def read_bytes(path: str, limit: int = 1 << 20) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return None


def text_fact(text: str) -> object:
    """A text as a fact: cut texts would compare as equal, so a long one is unknown."""
    if len(text) > TEXT_LIMIT:
        return unknown("longer than %d characters" % TEXT_LIMIT)
    return text


# --- paths and URLs that name nobody ----------------------------------------------------------

# Folders that are the same on every machine. Below them everything is shown as it is.
_SYSTEM = re.compile(
    r"/(?:usr|lib|lib32|lib64|libx32|bin|sbin|etc)(?:/|$)"
    r"|/opt/(?:nvidia|rocm|conda|intel|amazon|hpcx|aws|cuda)[^/]*(?:/|$)"
)
# Words that name software, not people or projects. Others are replaced by ``*``.
_WORDS = re.compile(
    r"(?:\.?cache|\.?local|\.?config|\.?conda|\.?venv|\.?pyenv|\.?triton|\.?nv|\.?torch"
    r"|ComputeCache|versions|apps?|software|modules?|spack|easybuild|share|targets|stubs|compat"
    r"|extras|examples|site-packages|dist-packages|envs|pkgs|venv|opt|usr|var|tmp|run|dev|mnt|shm"
    r"|lib(?:32|64)?|bin|include|src|math_libs|comm_libs|compilers|extensions|kernels"
    r"|x86_64(?:-linux(?:-gnu)?)?|aarch64(?:-linux(?:-gnu)?)?|sbsa-linux|wsl"
    r"|lib[\w+.\-]*\.so(?:\.\d+)*|ptxas|python|miniconda|anaconda|miniforge|mambaforge|micromamba"
    r"|cuda(?:nn|toolkit|_runtime|_cupti|_nvrtc)?|cudnn|nccl|cublas|cufft|cusparse|cusolver|curand"
    r"|nvjitlink|nvtx|tensorrt|hpc_sdk|nvidia|nvhpc|rocm|hip|torch(?:inductor)?|pytorch|triton"
    r"|v?\d[\d.]*|huggingface|mkl|intel|oneapi|openmpi|mpi|gcc|llvm|slurm|huggingface_hub|jemalloc)"
    r"(?:[-_.]?v?\d[\w.]*)?$"
)
_HOME = re.compile(r"(?:/(?:home|Users)/[^/]+|/root|[A-Za-z]:/Users/[^/]+)(?=/|$)")
_PATH_IN_TEXT = re.compile(r"[^\s:;,\"'=]*[/\\][^\s:;,\"']*")
_DEVICE_ID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F\-]{8,}(?:/\d+)*")
_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"
)


def _homes() -> list[str]:
    homes = [os.environ.get("HOME", ""), os.environ.get("USERPROFILE", "")]
    try:
        import pwd

        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError, OSError):
        pass
    return [home.replace("\\", "/").rstrip("/") for home in homes if len(home) > 1]


HOMES = _homes()


def show_path(path: str) -> str:
    """A path without what names a person: ``~`` for home, ``*`` for any uncommon folder name.

    ``/home/ann/thesis/lib`` becomes ``~/*/lib``, ``/apps/cudnn/v8.0/lib64`` stays recognisable as
    ``/apps/cudnn/*/lib64``, and system folders stay as they are.
    """
    path = path.replace("\\", "/")
    for prefix, kind in _places():
        if path == prefix or path.startswith(prefix + "/"):
            return kind + _masked(path[len(prefix) :])
    found = _HOME.match(path)
    if found:
        return "~" + _masked(path[found.end() :])
    if _SYSTEM.match(path):
        return path
    return _masked(path)


def _places() -> list[tuple[str, str]]:
    """Folders of this process with the name that stands for each, most particular first."""
    places = [(home, "~") for home in HOMES]
    for raw, kind in ((sys.prefix, "<prefix>"), (sys.base_prefix, "<base>")):
        prefix = raw.replace("\\", "/")
        if not _SYSTEM.match(prefix):
            places.append((prefix, kind))
    return sorted(places, key=lambda place: -len(place[0]))


def _masked(path: str) -> str:
    return "/".join(
        part if part in ("", "~", ".", "..", "$ORIGIN") or _WORDS.match(part) else "*"
        for part in path.split("/")
    )


def show_text(text: str) -> object:
    """A value of a variable with its paths shown as ``show_path`` does, and no ids or addresses."""
    if "://" in text:
        return unknown("holds a URL, which is not recorded")
    text = _DEVICE_ID.sub(r"\1-*", text)
    parts, end = [], 0
    for found in _PATH_IN_TEXT.finditer(text):
        parts += [_ADDRESS.sub("*", text[end : found.start()]), show_path(found.group())]
        end = found.end()
    parts.append(_ADDRESS.sub("*", text[end:]))
    return text_fact("".join(parts))


_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.\-]*)://(?P<host>[^/?#]*)(?P<path>/[^?#]*)?", re.IGNORECASE
)
_FRAGMENT = re.compile(r"#(?P<kept>(?:sha256=[0-9a-f]{64}|subdirectory=[\w./\-]+|egg=[\w.\-]+))")


def show_url(url: str) -> object:
    """A URL without user, password, query and token; a local one is not shown.

    What does not parse as scheme://host/... is not recorded at all: ``https:/user:secret@host`` has
    no user and no host for a parser, and yet holds a secret.
    """
    found = _URL.match(url)
    if not found or any(ord(char) <= 32 or ord(char) > 126 for char in url):
        return unknown("not a URL of the form scheme://host/...")
    user, _, host = found.group("host").rpartition("@")
    if not host or found.group("scheme").lower() == "file":
        return unknown("a local path is not recorded")
    if user == "git" and "ssh" in found.group("scheme"):
        host = "git@" + host
    path = re.sub(r"/t/[^/]+", "/t/*", found.group("path") or "")
    kept = _FRAGMENT.search(url)
    suffix = "#" + kept.group("kept") if kept else ""
    return text_fact("%s://%s%s%s" % (found.group("scheme"), host, path, suffix))


def url_host(url: str) -> str | None:
    """The host name alone, or None: for index URLs nothing more is recorded."""
    found = _URL.match(url.strip())
    if not found or found.group("scheme").lower() == "file":
        return None
    host = found.group("host").rpartition("@")[2].lower()
    host = re.sub(r":\d+$", "", host)
    if re.match(r"^(\[.*\]|[\d.]+)$", host):
        return "ip-address"
    return host if re.match(r"^[a-z0-9]([a-z0-9.\-]*[a-z0-9])?$", host) else None


# --- children: what they crash or wait on costs one fact, not the probe -----------------------


class Child:
    """A function in a forked process, or a program, whose output is read later, within a limit."""

    def __init__(self, pid: int, pipe: int, limit_s: float) -> None:
        self.pid, self.pipe = pid, pipe
        self.deadline = time.monotonic() + limit_s

    def output(self) -> tuple[bytes | None, str | None]:
        """(bytes, None) or (None, reason)."""
        chunks = []
        try:
            while True:
                left = self.deadline - time.monotonic()
                if left <= 0 or not select.select([self.pipe], [], [], left)[0]:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    return None, "did not answer within its time limit"
                chunk = os.read(self.pipe, 65536)
                if not chunk:
                    break
                chunks.append(chunk)
        finally:
            os.close(self.pipe)
        status = os.waitpid(self.pid, 0)[1]
        if os.WIFSIGNALED(status):
            return None, "crashed with signal %d" % os.WTERMSIG(status)
        return b"".join(chunks), None


def start_function(function: Callable[[], object], limit_s: int = 10) -> object:
    """Run ``function`` in a fork; ``function_result`` gives what it returned."""
    if not hasattr(os, "fork"):
        return guarded(function)
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return Child(pid, ours, limit_s)
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        signal.alarm(limit_s + 1)  # should the parent be gone
        result = json.dumps(guarded(function)).encode("ascii")
        while result:
            result = result[os.write(theirs, result) :]
    finally:
        os._exit(0)


def function_result(child: object) -> object:
    """What the function returned, or an unknown with the reason."""
    if not isinstance(child, Child):
        return child
    data, reason = child.output()
    if reason is not None:
        return unknown("the child process %s" % reason)
    try:
        return json.loads(data.decode("ascii"))
    except ValueError:
        return unknown("the child process gave no answer")


def start_program(argv: list[str], limit_s: float = 5) -> Child | None:
    """Start a program with its output in a pipe; None where that is not possible."""
    if not hasattr(os, "posix_spawn"):
        return None
    ours, theirs = os.pipe()
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        actions = [
            (os.POSIX_SPAWN_DUP2, quiet, 0),
            (os.POSIX_SPAWN_DUP2, theirs, 1),
            (os.POSIX_SPAWN_DUP2, quiet, 2),
        ]
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
        os.close(quiet)
    except OSError:
        os.close(ours)
        return None
    finally:
        os.close(theirs)
    return Child(pid, ours, limit_s)


def program_output(child: object) -> str | None:
    """Text that a started program printed, or None."""
    data = child.output()[0] if child is not None else None
    return None if data is None else data.decode("utf-8", "replace")


def find_program(name: str) -> str | None:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None
