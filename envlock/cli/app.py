"""The application and its commands, in the order in which ``--help`` lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from envlock import __version__
from envlock.cli.build import build
from envlock.cli.capture import capture
from envlock.cli.diff import diff
from envlock.cli.doctor import doctor
from envlock.cli.explain import explain
from envlock.cli.fetch import fetch
from envlock.cli.render import render
from envlock.cli.requires import requires
from envlock.cli.show import show
from envlock.cli.smoke import smoke
from envlock.cli.verify import verify

app = typer.Typer(
    name="envlock",
    help="Lock a PyTorch/CUDA environment, say what a difference means, rebuild it, prove it.",
    epilog="Start with: envlock capture · envlock diff colleague.lock · envlock build",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(on: bool) -> None:
    if on:
        typer.echo(f"envlock {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


SHORT: dict[Callable[..., Any], str] = {
    capture: "Write a lock of an environment, to compare or rebuild.",
    diff: "Say what the differences between two environments mean.",
    doctor: "Find the faults that one environment shows by itself.",
    build: "Build a pinned image from a lock, and verify it.",
    render: "Write the folder of the build context instead.",
    verify: "Prove that an image is what its lock says.",
    smoke: "Measure how torch behaves: memory peaks, leaks, losses.",
    show: "Say what a lock holds, and what was left out.",
    explain: "Say what a finding means and what to do.",
    requires: "Say on which machines a lock runs.",
    fetch: "Bring every file of a lock into one folder.",
}
"""The commands and what they do, in a line that 80 columns hold."""

for command, line in SHORT.items():
    app.command(short_help=line)(command)
