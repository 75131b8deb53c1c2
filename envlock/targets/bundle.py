"""One program out of a probe and the sibling files that it imports.

A probe is fed on standard input, so that nothing is written in the target. To keep its files of a
readable size it may ``import observe_elf`` like any script in its folder; the bundle carries those
sources along and puts them in ``sys.modules`` before the probe itself runs. Run by hand, ``python
envlock/probe/observe.py TOKEN`` finds the same files without any of this.
"""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r"^import ([a-z_]+)$", re.MULTILINE)

_LOADER = """\
import os
import sys

def is_standard(folder, home=os.path.dirname(os.__file__)):
    below = folder[len(home):] if folder.startswith(home) else "packages"
    return "packages" not in below or folder.endswith((".zip", "DLLs"))

folders = sys.path[:]
sys.path[:] = filter(is_standard, folders)
for name, text in SIBLINGS:
    module = sys.modules[name] = type(sys)(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)
sys.path[:] = folders
exec(compile(MAIN, "probe.py", "exec"))
"""
"""While the siblings import what they need, only the standard library is on the path: a json.py or
a queue.py in a folder of PYTHONPATH is a fact about the environment, not a part of the probe."""


def bundle(folder: Path, probe: str) -> bytes:
    """The whole program of ``folder/probe.py``, in ASCII, as the target's Python reads it."""
    siblings = {name: _source(folder, name) for name in _in_order(folder, probe)}
    main = siblings.pop(probe)
    if not siblings:
        return main.encode("ascii")
    return f"SIBLINGS = {list(siblings.items())!a}\nMAIN = {main!a}\n{_LOADER}".encode("ascii")


def _in_order(folder: Path, probe: str) -> list[str]:
    """The probe and what it imports, each after what it imports itself."""
    order: list[str] = []

    def visit(name: str) -> None:
        for imported in _IMPORT.findall(_source(folder, name)):
            if (folder / f"{imported}.py").is_file() and imported not in order:
                visit(imported)
        order.append(name)

    visit(probe)
    return order


def _source(folder: Path, name: str) -> str:
    return (folder / f"{name}.py").read_text(encoding="ascii")
