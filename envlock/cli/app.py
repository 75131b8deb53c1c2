"""The commands, in the order in which ``--help`` lists them, and how one of them is run."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence

from envlock import __version__
from envlock.cli.parser import Command, Parser, did_you_mean, parser_of, values_of
from envlock.errors import UsageError

SHORT = {
    "capture": "Write a lock of an environment, to compare or rebuild.",
    "diff": "Say what the differences between two environments mean.",
    "doctor": "Find the faults that one environment shows by itself.",
    "build": "Build a pinned image from a lock, and verify it.",
    "render": "Write the folder of the build context instead.",
    "verify": "Prove that an image is what its lock says.",
    "smoke": "Measure how torch behaves: memory peaks, leaks, losses.",
    "memory": "Say what a recorded run needs on another card.",
    "show": "Say what a lock holds, and what was left out.",
    "explain": "Say what a finding means and what to do.",
    "requires": "Say on which machines a lock runs.",
    "fetch": "Bring every file of a lock into one folder.",
    "completion": "Print what makes a shell complete envlock's commands.",
}
"""Each command, ``envlock.cli.NAME``, and what it does, in a line that 80 columns hold."""


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name. Raises what it raises, UsageError for a bad call."""
    name = arguments[0] if arguments else "--help"
    if name in SHORT:
        command = load(name)
        values = values_of(parser_of(command, f"envlock {name}"), arguments[1:])
        if values.get("debug"):
            from envlock.cli.talk import log_to_stderr  # noqa: PLC0415

            log_to_stderr(logging.DEBUG)
        return command(**values) or 0
    if not name.startswith("-"):
        raise UsageError(
            f"no such command: {name}{did_you_mean(name, list(SHORT))}",
            hint="envlock --help lists them",
        )
    values_of(overview(), arguments)
    return 0


def load(name: str) -> Command:
    command: Command = getattr(importlib.import_module(f"envlock.cli.{name}"), name)
    return command


def overview() -> Parser:
    """What ``envlock --help`` shows."""
    column = max(map(len, SHORT))
    lines = "\n".join(f"  {name:{column}}  {line}" for name, line in SHORT.items())
    parser = Parser(
        "envlock",
        "Lock a PyTorch/CUDA environment, say what a difference means, rebuild it, prove it.\n\n"
        f"commands:\n{lines}",
    )
    parser.usage = "envlock [-h] [--version] COMMAND ..."
    parser.epilog = "Start with: envlock capture · envlock diff colleague.lock · envlock build"
    parser.add_argument(
        "--version", action="version", version=f"envlock {__version__}", help="Print the version."
    )
    return parser
