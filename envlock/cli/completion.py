from __future__ import annotations

import argparse
import enum
import sys
from typing import Annotated

from envlock.cli.app import SHORT, load
from envlock.cli.parser import Argument, parser_of


class Shell(enum.Enum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, Argument(metavar="bash|zsh|fish", help="The shell to complete in.")],
) -> None:
    """Print what makes a shell complete envlock's commands and options.

    eval "$(envlock completion bash)"              in ~/.bashrc; zsh alike
    envlock completion fish > ~/.config/fish/completions/envlock.fish
    """
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415

    sys.stdout.write(shellcode(["envlock"], shell=shell.value))


def complete() -> None:
    """Answer the shell that asks what could come next; does not return."""
    import argcomplete  # noqa: PLC0415

    parser = argparse.ArgumentParser("envlock")
    commands = parser.add_subparsers()
    for name in SHORT:
        commands.add_parser(name, parents=[parser_of(load(name), name)], add_help=False)
    argcomplete.autocomplete(parser)
