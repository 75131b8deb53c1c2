"""Compare what facts/torch_builds says of PyPI's wheels with what a resolver finds today.

    python scripts/update_facts.py 2.9.1 2.10.0      print the differences of these releases
    python scripts/update_facts.py --all             of every listed release
    python scripts/update_facts.py --write 2.10.0    and write them into the table

Exits 0 where nothing differs, 1 where something does, 2 where uv cannot answer. It reads metadata
only (no wheel is downloaded) through uv and whatever index uv is configured with. What it derives:
exact pins of the nvidia-* packages, triton, and the Pythons that have a Linux x86_64 wheel. New
releases are not added: the rest of a row is read from the wheel by a person.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "envlock" / "facts" / "torch_builds.json"
PLATFORM = "x86_64-manylinux_2_28"
PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
TIMEOUT_S = 300
Json = dict[str, Any]
Resolve = Callable[[str, str, bool], str | None]
"""(requirement, Python, with dependencies) -> lines ``name==version``, None where it has none."""


class ResolverError(Exception):
    pass


def resolve_with_uv(requirement: str, python: str, deps: bool) -> str | None:  # noqa: FBT001
    command = [
        "uv",
        "pip",
        "compile",
        "-",
        "--no-header",
        "--no-annotate",
        "--only-binary",
        ":all:",
    ]
    command += ["--python-platform", PLATFORM, "--python-version", python]
    done = subprocess.run(
        command if deps else [*command, "--no-deps"],
        input=requirement,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0:
        return done.stdout
    if "no wheels with a matching" in done.stderr or "No solution found" in done.stderr:
        return None
    raise ResolverError(done.stderr.strip()[-500:])


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    release: str
    field: str
    stored: Any
    found: Any

    def __str__(self) -> str:
        return f"torch {self.release} {self.field}: {self.stored} -> {self.found}"


def versions_in(lines: str) -> dict[str, str]:
    """``nvidia-cublas-cu12==12.1.3.1`` a line, comments and markers aside."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", lines, re.MULTILINE)
    return {name.lower(): version for name, version in found}


def differences(row: Json, resolve: Resolve) -> Iterator[Change]:
    """What the resolver finds for one row and the table has otherwise."""
    release = row["torch"]
    lines = resolve(f"torch=={release}", _python_of(row), True)
    if lines is None:
        yield Change(release=release, field="wheel", stored="on the index", found="not resolvable")
        return
    found = versions_in(lines)
    pins = row["pins_linux_x86_64"]
    for name, version in sorted(pins.items()):
        if found.get(name) != version:
            yield Change(
                release=release, field=f"pin {name}", stored=version, found=found.get(name)
            )
    spec = (row["triton"] or {}).get("spec", "")
    if spec.startswith("==") and found.get("triton") not in {None, spec[2:]}:
        yield Change(release=release, field="triton", stored=spec[2:], found=found["triton"])
    yield from _python_differences(row, resolve)


def _tags(row: Json) -> set[str]:
    tags: list[str] = row["wheel_python_tags"].get(row["linux_x86_64"]["platform_tag"], [])
    return {tag for tag in tags if re.fullmatch(r"cp3\d+", tag)}


def _python_of(row: Json) -> str:
    tags = _tags(row)
    return "3.11" if "cp311" in tags or not tags else f"3.{max(int(t[3:]) for t in tags)}"


def _python_differences(row: Json, resolve: Resolve) -> Iterator[Change]:
    stored = _tags(row)
    if not stored:
        return
    found = {
        f"cp{python.replace('.', '')}"
        for python in PYTHONS
        if resolve(f"torch=={row['torch']}", python, False) is not None
    }
    known = {f"cp{python.replace('.', '')}" for python in PYTHONS}
    if found != stored & known:
        listed = (sorted(s, key=lambda t: int(t[3:])) for s in (stored & known, found))
        yield Change(release=row["torch"], field="Pythons", stored=next(listed), found=next(listed))


def apply(row: Json, changes: list[Change], today: str) -> None:
    """Pins and triton only; a change of wheels is for a person to look at."""
    for change in changes:
        name = change.field.removeprefix("pin ")
        if change.field.startswith("pin ") and change.found is not None:
            row["pins_linux_x86_64"][name] = change.found
        elif change.field == "triton":
            row["triton"]["spec"] = f"=={change.found}"
    row["checked"] = today


def dumped(table: Json) -> str:
    return json.dumps(table, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: list[str], resolve: Resolve = resolve_with_uv) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("release", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    rows = {row["torch"]: row for row in table["rows"]}
    wanted = list(rows) if options.all else options.release
    if not wanted or not set(wanted) <= rows.keys():
        parser.error(f"give listed releases, or --all: {', '.join(rows)}")
    changed = False
    for release in wanted:
        try:
            changes = list(differences(rows[release], resolve))
        except (ResolverError, OSError, subprocess.TimeoutExpired) as error:
            print(f"torch {release}: {error}", file=sys.stderr)
            return 2
        changed = changed or bool(changes)
        print("\n".join(map(str, changes)) or f"torch {release}: as stored")
        apply(rows[release], changes, dt.datetime.now(dt.timezone.utc).date().isoformat())
    if options.write:
        TABLE.write_text(dumped(table), encoding="utf-8")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
