"""``python -m envlock.allocator.child``: read one recording from anybody, print JSON.

    python -m envlock.allocator.child [--memory-limit BYTES] [--torch V] [--alloc-conf TEXT]...
                                      [--card BYTES] [--outside BYTES] FILE | -

Run it in a process of its own: it limits its own memory and time before it reads anything. A
snapshot (pickle), and an ``alloc-trace/1`` as JSON or gzip, are told apart by how they begin.
Standard output holds one JSON object; ``{"error", "hint"}`` with code 4 where the input is refused.
A pickle can also overflow the stack of the interpreter, so a caller takes an end by a signal for a
refusal too.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from envlock.allocator.history import History
from envlock.allocator.recording import GZIP_BEGIN, parse_recording, read_text
from envlock.allocator.rules import parse_torch_release
from envlock.allocator.snapshot import read_snapshot
from envlock.allocator.study import Question, study
from envlock.errors import EnvlockError, InputError

DEFAULT_LIMIT: Final = 8 << 30
"""Bytes of address space. A snapshot takes five to ten times its own size."""
DEFAULT_CPU_S: Final = 600


def read_histories(file: BufferedReader, source: str) -> tuple[History, ...]:
    """Whatever the file is. Raises InputError."""
    head = file.peek(2)[:2]
    if head == GZIP_BEGIN or head.lstrip()[:1] == b"{":
        return (parse_recording(source, read_text(file, source)),)
    return read_snapshot(file, source)


def answer(arguments: list[str]) -> dict[str, Any]:
    """The answer to a command line. Raises InputError."""
    chosen = _parser().parse_args(arguments)
    _limit(chosen.memory_limit, chosen.cpu_limit)
    question = Question(
        torch=parse_torch_release(chosen.torch) if chosen.torch else None,
        settings=tuple(chosen.alloc_conf),
        card=chosen.card,
        outside=chosen.outside,
    )
    try:
        if chosen.file == "-":
            with open(sys.stdin.fileno(), "rb", closefd=False) as file:
                histories = read_histories(file, "standard input")
        else:
            with Path(chosen.file).open("rb") as file:
                histories = read_histories(file, Path(chosen.file).name)
        return study(histories, question)
    except MemoryError as error:
        raise InputError(
            f"the recording needs more than {chosen.memory_limit >> 20} MiB of memory",
            hint="record fewer events (max_entries of _record_memory_history), or allow more",
        ) from error
    except OSError as error:
        raise InputError(
            f"{chosen.file} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error


def main(arguments: list[str] | None = None) -> int:
    gc.disable()  # nothing here makes cycles, and a large file makes millions of containers
    try:
        result = answer(sys.argv[1:] if arguments is None else arguments)
    except EnvlockError as error:
        json.dump({"error": error.message, "hint": error.hint}, sys.stdout)
        return error.code
    json.dump(result, sys.stdout)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envlock.allocator.child")
    parser.add_argument("file", help="a snapshot or an alloc-trace/1; - is standard input")
    parser.add_argument("--memory-limit", type=int, default=DEFAULT_LIMIT, metavar="BYTES")
    parser.add_argument("--cpu-limit", type=int, default=DEFAULT_CPU_S, metavar="SECONDS")
    parser.add_argument("--torch", default="", metavar="VERSION")
    parser.add_argument("--alloc-conf", action="append", default=[], metavar="TEXT")
    parser.add_argument("--card", type=int, default=None, metavar="BYTES")
    parser.add_argument("--outside", type=int, default=0, metavar="BYTES")
    return parser


def _limit(memory: int, cpu_s: int) -> None:
    try:
        import resource  # noqa: PLC0415 - not there on Windows, where the caller's time limit holds
    except ImportError:
        return
    for kind, wanted in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, cpu_s)):
        allowed = resource.getrlimit(kind)[1]
        limit = wanted if allowed == resource.RLIM_INFINITY else min(wanted, allowed)
        # macOS refuses a limit below what is mapped already; the caller's time limit holds
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
