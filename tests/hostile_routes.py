"""Every way a document takes through envlock, run in this process, and what each must keep."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import re
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import html5lib
from lxml import etree
from markdown_it import MarkdownIt

from envlock import cli
from envlock.lock.io import canonical, load_lock, parse_lock, render_lock
from envlock.report import Format
from tests.hostile_inputs import Input
from tests.hostile_places import GOOD
from tests.hostile_sample import Sample
from tests.hostile_words import missing_words
from tests.unit.dockerfile_parser import directives, instructions, unquoted

LIMIT_S = 4.0
"""Of one route; the requirement is 2 s, and the machine may have other work."""
_STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
_TOOL_HTML = re.compile(r"<details><summary>[\w ]+</summary>\n?|</details>\n?")
_watched: list[list[str]] = []


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    code: int
    stdout: str
    stderr: str
    events: Sequence[str] = ()
    """Programs started, connections opened and files written meanwhile."""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return self.stdout + self.stderr

    @property
    def error(self) -> str:
        """The error message without its hint."""
        return self.stderr.partition("\n\nhint:")[0].strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the run: an input on a route, and what is wrong with it."""

    input: str
    route: str
    faults: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder with a good lock, in which samples are read."""

    folder: Path

    @contextlib.contextmanager
    def ready(self) -> Iterator[Bench]:
        """The installer that a rendered context carries is replaced by a small file: time."""
        (self.folder / "good.lock").write_bytes(GOOD)
        program = self.folder / "uv"
        program.write_bytes(b"")
        with mock.patch("envlock.image.dockerfile.find_uv_bin", return_value=str(program)):
            yield self


def call(argv: Sequence[str]) -> Outcome:
    """The command, in this process."""
    stdout, stderr, events = io.StringIO(), io.StringIO(), list[str]()
    _watch(events)
    started = time.monotonic()
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = cli.run(list(argv))
    finally:
        _watched.clear()
        logging.getLogger("envlock").handlers.clear()
    return Outcome(
        code=code,
        stdout=stdout.getvalue(),
        stderr=stderr.getvalue(),
        events=tuple(events),
        seconds=time.monotonic() - started,
    )


def _watch(events: list[str]) -> None:
    if not _HOOK:
        sys.addaudithook(_hear)
        _HOOK.append(True)
    _watched.append(events)


_HOOK: list[bool] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if not _watched:
        return
    if event in _STARTS:
        _watched[-1].append(event)
        raise RuntimeError(f"{event} in a route that starts nothing")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        _watched[-1].append(f"open for writing: {arguments[0]!r}")


def document_lines(item: Input, sample: Sample, bench: Bench) -> Iterator[Line]:
    path = bench.folder / f"sample.{'json' if sample.form == 'facts' else 'lock'}"
    path.write_bytes(sample.data)
    good = str(bench.folder / "good.lock")
    said, right = "", True
    for route, argv in _commands(sample, str(path), good, bench.folder):
        outcome = call(argv)
        said += outcome.text
        faults = list(check(item, sample, outcome))
        if not faults and not sample.refused and outcome.code == 0:
            faults = list(_product_faults(route, sample, outcome))
        right = right and not faults
        yield Line(input=item.id, route=f"{sample.label}: {route}", faults=faults)
    if sample.form == "lock" and not sample.refused and right:
        yield _embedded(item, sample, path)
        yield _explained(item, sample, str(path), good)
    if sample.said:
        missing = missing_words(list(sample.said), said)
        yield Line(
            input=item.id,
            route=f"{sample.label}: reported",
            faults=[f"no output mentions {missing}"] if missing else [],
        )


def _commands(
    sample: Sample, path: str, good: str, folder: Path
) -> Iterator[tuple[str, list[str]]]:
    never = ["--fail-on", "never", "--verbose"]
    if sample.base is None:
        for format_ in Format:
            yield (
                f"diff left {format_.value}",
                ["diff", path, good, "--format", format_.value, *never],
            )
        yield "diff right text", ["diff", good, path, *never]
        yield "doctor text", ["doctor", path, *never]
        yield "doctor sarif", ["doctor", path, "--format", "sarif", *never]
    if sample.form != "lock":
        return
    base = [] if sample.base is None else [f"--base={sample.base}"]
    out = folder / f"context-{time.monotonic_ns()}"
    yield "render", ["render", path, "-o", str(out), *base]
    yield "plan", ["build", path, "--dry-run", *base]
    if sample.base is None:
        yield "show", ["show", path]
    if sample.refused and sample.base is None:
        yield "build", ["build", path, "-t", "envlock-hostile:never"]
        yield "fetch", ["fetch", path, "-d", str(folder / "wheels")]
        yield "verify", ["verify", "envlock-hostile:never", "--lock", path]


def check(item: Input, sample: Sample, outcome: Outcome) -> Iterator[str]:
    """What holds for every route, in this process and as a command of its own."""
    if outcome.seconds > LIMIT_S:
        yield f"took {outcome.seconds:.1f} s"
    if "Traceback" in outcome.stderr:
        yield "a traceback"
    for secret in item.secrets:
        for form in encodings(secret):
            if form in outcome.text:
                yield f"shows {form}"
    if Path("/pwned").exists():
        yield "the canary file exists"
    yield from _refusal_faults(sample, outcome) if sample.refused else _calm_faults(sample, outcome)


def _refusal_faults(sample: Sample, outcome: Outcome) -> Iterator[str]:
    # What a person wrote on the command line is their usage; all else is bad input.
    codes = (2, 4) if "argument" in sample.label else (4,)
    if outcome.code not in codes:
        yield f"exit code {outcome.code}, not {codes[-1]}: {outcome.error[:120]!r}"
        return
    if outcome.stdout:
        yield "data on standard output"
    if outcome.events:
        yield f"before the refusal: {outcome.events[:3]}"
    if not outcome.error.startswith("error: ") or "\n" in outcome.error:
        yield f"not one line: {outcome.error[:120]!r}"
    if not outcome.error.isascii() or not outcome.error.isprintable() or len(outcome.error) > 500:
        yield f"a raw or long value: {outcome.error[:120]!r}"
    missing = missing_words(list(sample.words), outcome.error)
    if missing:
        yield f"no {missing} in {outcome.error[:160]!r}"


def _calm_faults(sample: Sample, outcome: Outcome) -> Iterator[str]:
    if sample.may_fail and outcome.code == 4:
        return
    if outcome.code != 0:
        yield f"exit code {outcome.code}: {outcome.error[:160]!r}"
    for line in outcome.text.splitlines():
        if any(not c.isprintable() for c in line):
            yield f"a control character: {line[:80]!r}"
            break
    foreign = sample.value if isinstance(sample.value, str) else ""
    for line in outcome.text.splitlines():
        if any(line.lstrip().startswith(x) for x in foreign.splitlines()[1:] if x.strip()):
            yield f"a line of the value's own: {line[:80]!r}"
            break
        if re.search(r"##\[|##vso\[", line):
            yield f"a command to a runner: {line[:80]!r}"
            break


def encodings(secret: str) -> set[str]:
    """Plain, URL-encoded, upper case, and base64 at each of its three alignments."""
    found = {secret, secret.upper(), urllib.parse.quote(secret, safe="")}
    found.add("".join(f"%{byte:02X}" for byte in secret.encode()))
    for shift in range(3):
        # Characters that depend on what stands before or after are left out.
        text = base64.b64encode(b"\0" * shift + secret.encode()).decode().rstrip("=")
        found.add(text[(4 if shift else 0) : len(text) - 1])
    return found


def _product_faults(route: str, sample: Sample, outcome: Outcome) -> Iterator[str]:
    word = route.rpartition(" ")[2]
    if route == "plan":
        yield from _dockerfile_faults(sample, outcome.stdout)
    elif word in _PARSERS:
        try:
            fault = _PARSERS[word](outcome.stdout)
        except (ValueError, SyntaxError) as error:
            fault = f"does not parse: {str(error)[:100]!r}"
        if fault:
            yield f"{word}: {fault}"


def _dockerfile_faults(sample: Sample, text: str) -> Iterator[str]:
    """The instruction list of the benign lock, and no variable that the lock does not name."""
    benign = instructions(_BENIGN)
    parsed = instructions(text)
    env = parse_lock(sample.data, "sample").table.image.env
    expected = [i.kind for i in benign if i.kind != "ENV"]
    if [i.kind for i in parsed if i.kind != "ENV"] != expected or directives(text) != ["escape"]:
        yield f"other instructions: {[i.kind for i in parsed]}"
        return
    ours = {i.words[0]: i.words[1] for i in benign if i.kind == "ENV"}
    found = {i.words[0]: i.words[1] for i in parsed if i.kind == "ENV"}
    values = {name: unquoted(word) for name, word in found.items() if name not in ours}
    if values != env:
        yield f"variables {values}, the lock names {env}"


def _rendered() -> str:
    from envlock.image.dockerfile import context_files  # noqa: PLC0415

    return context_files(parse_lock(GOOD, "good"), None, ())["Dockerfile"].decode()


_BENIGN = _rendered()


def _embedded(item: Input, sample: Sample, path: Path) -> Line:
    """The lock inside an image: read again, and the same after a second round."""
    text = render_lock(canonical(load_lock(path)))
    again = render_lock(canonical(parse_lock(text.encode(), "embedded")))
    faults = [] if text == again else ["the embedded lock changes when it is read"]
    faults += [f"holds {form}" for s in item.secrets for form in encodings(s) if form in text]
    return Line(input=item.id, route=f"{sample.label}: embedded", faults=faults)


def _explained(item: Input, sample: Sample, path: str, good: str) -> Line:
    report = json.loads(call(["diff", path, good, "--format", "json", "--fail-on", "never"]).stdout)
    faults = [
        f"explain {code} ends with {outcome.code}"
        for code in sorted({finding["code"] for finding in report["findings"]})
        if (outcome := call(["explain", code])).code
    ]
    return Line(input=item.id, route=f"{sample.label}: explain", faults=faults)


def _junit(text: str) -> str | None:
    etree.fromstring(text.encode())
    return None


def _json(text: str) -> str | None:
    strange: list[str] = []
    json.loads(text, parse_constant=strange.append)
    return f"not JSON: {strange}" if strange else None


def _sarif(text: str) -> str | None:
    tree = json.loads(text)
    uris = re.findall(r'"(?:uri|helpUri|informationUri)":\s*"([^"]*)"', json.dumps(tree))
    bad = [uri for uri in uris if re.match(r"(?i)javascript:|data:", uri)]
    return f"links {bad}" if bad else None


def _markdown(text: str) -> str | None:
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    for token in [*tokens, *(child for outer in tokens for child in outer.children or [])]:
        if token.type in {"image", "link_open", "autolink", "html_inline"}:
            return f"a {token.type}"
        if token.type == "html_block" and not _TOOL_HTML.fullmatch(token.content):
            return f"foreign HTML {token.content[:60]!r}"
    return None


def _html(text: str) -> str | None:
    root = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    for element in root.iter():
        for name, value in element.items():
            if name.startswith("on") or "javascript:" in value or "attacker" in value:
                return f"an attribute {name}={value[:60]!r}"
    return None


def _github(text: str) -> str | None:
    for line in text.splitlines():
        if line.lstrip().startswith("::") and not re.match(r"::(?:error|warning|notice) ", line):
            return f"a command {line[:80]!r}"
    return None


_PARSERS = {
    "json": _json,
    "junit": _junit,
    "sarif": _sarif,
    "markdown": _markdown,
    "html": _html,
    "github": _github,
}


def without_time(outcome: Outcome) -> Outcome:
    """A command of its own starts an interpreter first; that is not the input's time."""
    return replace(outcome, seconds=max(0.0, outcome.seconds - 5), events=())
