"""The application and its commands, in the order in which ``--help`` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from envlock import __version__
from envlock.cli.build import build
from envlock.cli.capture import capture
from envlock.cli.diff import diff
from envlock.cli.doctor import doctor
from envlock.cli.explain import explain
from envlock.cli.fetch import fetch
from envlock.cli.render import render
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


for command in (capture, diff, doctor, build, render, verify, smoke, show, explain, fetch):
    app.command()(command)
