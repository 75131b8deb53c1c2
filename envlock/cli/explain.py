from __future__ import annotations

from typing import Annotated

from envlock.cli import options as opt
from envlock.cli.parser import Argument
from envlock.errors import UsageError


def explain(
    code: Annotated[
        str | None, Argument(metavar="CODE", help="A code such as EL201; none: all of them.")
    ] = None,
    *,
    debug: opt.Debug = False,
) -> None:
    """Say what a finding means, why it matters and what to do.

    envlock explain EL201
    envlock explain              the list of all codes
    """
    from envlock.rules.registry import all_codes, manual  # noqa: PLC0415

    if code is None:
        pages = [page for known in all_codes() if (page := manual(known))]
        opt.write_product("".join(f"{page.code}  {page.title}\n" for page in pages), None)
        return
    page = manual(code)
    if page is None:
        raise UsageError(f"{code}: no such code", hint="envlock explain lists them all")
    opt.write_product(f"{page.code}  {page.title}\n\n{page.text}\n", None)
