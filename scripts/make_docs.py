"""Write docs/codes.md and docs/commands.md from the program itself.

python scripts/make_docs.py            write them
python scripts/make_docs.py --check    write nothing; exit 1 where one is not current
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from envlock.cli import app
from envlock.cli.parser import WIDTH, parser_of
from envlock.rules.registry import Page, all_codes, manual

DOCS = Path(__file__).resolve().parent.parent / "docs"
FAMILIES = {
    "1": "Python and packages",
    "2": "The torch build and its companions",
    "3": "CUDA libraries and toolkit",
    "4": "Driver",
    "5": "GPU",
    "6": "System and container limits",
    "7": "Variables and backend switches",
    "8": "Behaviour",
    "9": "The lock and the check itself",
}


def codes() -> str:
    """Every code with severity, title and manual, as ``envlock explain`` has them."""
    pages = [page for code in all_codes() if (page := manual(code))]
    return "\n".join(_codes(pages))


def _codes(pages: list[Page]) -> Iterator[str]:
    yield "# Codes\n"
    yield "Made by `scripts/make_docs.py` from the rules; `envlock explain CODE` prints one page."
    yield "The severity is the rule's own: one finding may be milder, and `verify` is stricter."
    for digit, family in FAMILIES.items():
        yield f"\n## EL{digit}xx: {family}"
        for page in pages:
            if page.code[2] == digit:
                yield f"\n### {page.code} ({page.severity.value})\n"
                yield f"**{page.title}**\n"
                yield page.text
    yield ""


def commands() -> str:
    """The help of every command, 100 columns wide."""
    return "\n".join(_commands())


def _commands() -> Iterator[str]:
    os.environ["COLUMNS"] = str(WIDTH)  # wherever it runs
    yield "# Commands\n"
    yield "Made by `scripts/make_docs.py`: what `envlock COMMAND --help` prints."
    yield f"\n## envlock\n\n```text\n{_tidy(app.overview().format_help())}\n```"
    for name in app.SHORT:
        parser = parser_of(app.load(name), f"envlock {name}")
        yield f"\n## envlock {name}\n\n```text\n{_tidy(parser.format_help())}\n```"
    yield ""


def _tidy(text: str) -> str:
    return re.sub(r"[ \t]+$", "", inspect.cleandoc(text), flags=re.MULTILINE)


PAGES = {"codes.md": codes, "commands.md": commands}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    old = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            old.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    print("\n".join(f"{name}: not current" if check else f"{name}: written" for name in old))
    return 1 if check and old else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
