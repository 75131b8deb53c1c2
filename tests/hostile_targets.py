"""Hostile interpreters, images and folders: made as their sentences say, and really looked at."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envlock.image.oci import read_layout
from envlock.image.registry import LoopbackRegistry
from envlock.targets.engine import Engine
from scripts.environments import ensure_base, ensure_engine
from tests.engine.hostile_images import IMAGES, hostile_image
from tests.hostile_capture import FakeEnvironment
from tests.hostile_command import command
from tests.hostile_inputs import Input
from tests.hostile_routes import Line, Outcome, encodings
from tests.hostile_words import missing_words

LIMIT_S = 75.0
"""Of one capture: 60 s for the target to answer, and what ending it takes."""
AT_ONCE_S = 5.0
LOCK = "captured.lock"
_FAILED = 5
"""The exit code of a target that cannot be read."""
_PREPARED = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def interpreter_lines(item: Input, folder: Path) -> Iterator[Line]:
    """``value``: all that it prints. A sentence: what it runs, or a file of its site-packages."""
    made = FakeEnvironment(folder / "env")
    for value in item.values:
        printed = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        (made.folder / "printed").write_bytes(printed)
        script = f"#!/bin/sh\nexec cat '{made.folder}/printed'\n"
        yield _refused(item, "prints nothing else", _run_instead(made, script, folder))
    if item.sentence is None:
        return
    if planted := re.fullmatch(r"site-packages/(\S+\.pth): (.+)", item.sentence):
        (made.site / planted[1]).write_text(planted[2] + "\n")
        yield _read_right(item, "start-up file", _capture(made, folder), folder / LOCK, planted[2])
    elif item.sentence.startswith(("sh -c ", "bash -c ")):
        _, _, script = shlex.split(item.sentence)
        yield _refused(item, "a script", _run_instead(made, f"#!/bin/sh\n{script}\n", folder))
    elif _is_python(item.sentence):
        made.add_start_up(_PREPARED + item.sentence)
        yield _refused(item, "start-up program", _capture(made, folder))
    else:
        yield Line(input=item.id, route="-", faults=[f"no interpreter from {item.sentence!r}"])


def noise_lines(item: Input, folder: Path) -> Iterator[Line]:
    """What start-up files print around a sound answer is never taken for it."""
    for number, text in enumerate([*item.values, *([item.twin] if item.twin else [])]):
        place = folder / f"{number}"
        place.mkdir()
        made = FakeEnvironment(place / "env")
        (made.folder / "noise").write_bytes(
            text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")
        )
        said = f"os.write(1, open({str(made.folder / 'noise')!r}, 'rb').read() + b'\\n')"
        made.add_start_up(f"import atexit, os\n{said}\natexit.register(lambda: {said})")
        yield _read_right(item, "noise", _capture(made, place), place / LOCK, str(text))


def environment_lines(item: Input, folder: Path) -> Iterator[Line]:
    """A variable of the caller: foreign code does not get it, and nothing shows it."""
    planted = re.match(r"(\w+)=(\S+) in the caller", item.sentence or "")
    if planted is None:
        yield Line(input=item.id, route="-", faults=[f"no variable in {item.sentence!r}"])
        return
    name, value = planted.groups()
    made = FakeEnvironment(folder / "env")
    made.environ[name] = value
    seen = folder / "seen"
    made.add_start_up(f"import os; open({str(seen)!r}, 'a').write(repr(dict(os.environ)))")
    line = _read_right(item, "capture", _capture(made, folder), folder / LOCK)
    faults = list(line.faults)
    if not seen.exists():
        faults.append("the start-up file did not run: nothing was shown")
    elif any(form in seen.read_text() for form in encodings(value)):
        faults.append(f"foreign code saw {name}")
    yield Line(input=item.id, route=line.route, faults=faults)


def folder_lines(item: Input, folder: Path) -> Iterator[Line]:
    """A module in the folder where a person stands: imported by nothing that envlock starts."""
    planted = re.fullmatch(r"\./(\S+)\.py", item.sentence or "")
    if planted is None:
        yield Line(input=item.id, route="-", faults=[f"no file from {item.sentence!r}"])
        return
    canary = folder / "pwned"
    made = FakeEnvironment(folder / "env")
    trap = folder / f"{planted[1]}.py"
    trap.write_text(f"open({str(canary)!r}, 'w')\n")
    hijacked = [sys.executable, "-c", f"import {planted[1]}"]
    subprocess.run(hijacked, cwd=folder, check=False, capture_output=True)
    control = [] if canary.exists() else ["Python itself does not import it here"]
    yield Line(input=item.id, route="positive control", faults=control)
    canary.unlink(missing_ok=True)
    runs = {
        "capture": ["capture", "--offline", "--python", str(made.python), "-o", LOCK],
        "doctor": ["doctor", "--fail-on", "never", f"python:{made.python}"],
        "diff": ["diff", f"python:{made.python}", LOCK],
    }
    for route, arguments in runs.items():
        outcome = command(arguments, folder, made.environ)
        faults = [] if outcome.code in (0, 1) else [f"exit code {outcome.code}"]
        if canary.exists():
            faults.append(f"{trap.name} was imported")
        yield Line(input=item.id, route=route, faults=faults)


def image_lines(item: Input, folder: Path) -> Iterator[Line]:
    """Each image that the sentence speaks of, captured by the installed program."""
    wanted = images_of(item)
    if not wanted:
        yield Line(input=item.id, route="-", faults=[f"no image from {item.sentence!r}"])
        return
    said = ""
    with _base() as base:
        for one in wanted:
            before = _left_behind()
            IMAGES[one.name] = one.lines
            with hostile_image(one.name, base) as tag:
                image = ["--image", tag, *one.options]
                arguments = ["capture", "--offline", *image, "-o", f"{one.name}.lock"]
                outcome = command(arguments, folder)
            said += outcome.text
            route = f"image {one.name}"
            right = _read_right(item, route, outcome, folder / f"{one.name}.lock", "forged")
            line = _ended(item, route, outcome) if one.fails else right
            more = [f"left behind: {sorted(_left_behind() - before)}"]
            faults = [*line.faults, *(more if _left_behind() - before else [])]
            yield Line(input=item.id, route=line.route, faults=faults)
    missing = missing_words(list(item.words), said)
    yield Line(
        input=item.id,
        route="what was said",
        faults=[f"nowhere said: {missing}"] if missing else [],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Image:
    name: str
    lines: str
    """Of a Dockerfile, below ``FROM``."""
    fails: bool = False
    """Whether nothing can be read from it."""
    options: Sequence[str] = ()


_KINDS: tuple[tuple[str, tuple[str, ...], bool, tuple[str, ...]], ...] = (
    (r"\bENTRYPOINT\b", ("entrypoint",), False, ()),
    (r"PYTHONPATH|PYTHONSTARTUP|LD_PRELOAD", ("env",), False, ()),
    (r"HEALTHCHECK", ("healthcheck",), False, ()),
    (r"VOLUME", ("volume",), False, ()),
    (r"WORKDIR", ("workdir",), False, ()),
    (r"without python", ("no-python",), True, ()),
    (r"text file as python", ("not-executable",), True, ("--python", "/usr/bin/python3")),
    (r"--memory|out of memory", ("memory",), True, ("--memory", "64")),
    (r"\bsleep|hangs?\b|time limit", ("hangs",), True, ()),
    (r"MB on|floods?\b", ("floods",), True, ()),
    (r"garbage|not UTF-8", ("garbage-only",), True, ()),
    (r"grandchild|background", ("grandchild",), False, ()),
)


def images_of(item: Input) -> list[_Image]:
    """By what the sentence names; instructions that it spells out are taken as they stand."""
    sentence = item.sentence or ""
    found = [
        _Image(name=name, lines=IMAGES[name], fails=fails, options=options)
        for pattern, names, fails, options in _KINDS
        if re.search(pattern, sentence)
        for name in names
    ]
    if user := re.search(r"--user (\d+)", sentence):
        found.append(_Image(name="user", lines=f"USER {user[1]}\nENV HOME="))
    release = re.findall(r"\b[A-Z_]+=[^\s,;]+", sentence) if "line" in sentence else []
    if release:
        text = "".join(f"{line}\\n" for line in release)
        lines = f"RUN rm -f /etc/os-release && printf '{text}' > /etc/os-release"
        found.append(_Image(name="os-release", lines=lines))
    spelled = re.findall(r"\b(?:ENV \w+=\S+|USER \w+|LABEL \S+=\S+|WORKDIR /\S+)", sentence)
    if spelled:
        found.append(_Image(name="spelled-out", lines="\n".join(spelled)))
    return found


@contextmanager
def _base() -> Iterator[str]:
    """The bootstrapped base in a real engine, which is started where none runs."""
    ensure_engine()
    engine = Engine.connect()
    tag = "envlock-test-hostile-base:x"
    with LoopbackRegistry(read_layout(ensure_base())) as registry:
        pulled = engine.resolve(registry.reference, pull=True)
        engine.tag(pulled.image_id, tag)
        engine.remove(registry.reference)
    yield tag
    engine.remove(tag)


def _left_behind() -> set[str]:
    """Containers, volumes and networks of the engine."""
    docker = shutil.which("docker") or "docker"
    lists = (["ps", "-a", "-q", "--no-trunc"], ["volume", "ls", "-q"], ["network", "ls", "-q"])
    told = (subprocess.run([docker, *one], check=True, capture_output=True) for one in lists)
    return {word for done in told for word in done.stdout.decode().split()}


def _run_instead(made: FakeEnvironment, script: str, folder: Path) -> Outcome:
    """With a program of its own in the interpreter's place."""
    made.python.unlink()
    made.python.write_text(script)
    made.python.chmod(0o755)
    return _capture(made, folder)


def _capture(made: FakeEnvironment, folder: Path) -> Outcome:
    arguments = ["capture", "--offline", "--python", str(made.python), "-o", LOCK]
    return command(arguments, folder, made.environ)


def _read_right(item: Input, route: str, outcome: Outcome, lock: Path, forged: str = "") -> Line:
    """It was read, as what it is: nothing that it forged is in the lock."""
    if outcome.code != 0:
        return Line(input=item.id, route=route, faults=[f"not read: {outcome.error[:200]}"])
    text = lock.read_text()
    faults = [] if '\nversion = "' in text else ["no Python in the lock"]
    words = re.findall(r"[A-Za-z]{4,}|[0-9]+\.[0-9]+", forged)
    faults += [f"the lock has {word!r}" for word in words if f'"{word}"' in text]
    return Line(input=item.id, route=route, faults=faults)


def _refused(item: Input, route: str, outcome: Outcome) -> Line:
    """As ``_ended``; its words are in the message. What ended by itself never timed out."""
    line = _ended(item, route, outcome)
    in_time = outcome.seconds < AT_ONCE_S
    words = [word for word in item.words if not (in_time and word == "timed out")]
    missing = missing_words(words, outcome.stderr)
    more = [f"not said: {missing}"] if missing else []
    return Line(input=item.id, route=line.route, faults=[*line.faults, *more])


def _ended(item: Input, route: str, outcome: Outcome) -> Line:
    """It failed with the right code, in time, with the next step, and wrote nothing."""
    faults = []
    if outcome.code != _FAILED:
        faults.append(f"exit code {outcome.code}, not {_FAILED}: {outcome.error[:200]}")
    if outcome.seconds > LIMIT_S:
        faults.append(f"took {outcome.seconds:.0f} s")
    if "hint:" not in outcome.stderr or "Traceback" in outcome.stderr:
        faults.append("no next step, or a traceback")
    return Line(input=item.id, route=route, faults=faults)


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
