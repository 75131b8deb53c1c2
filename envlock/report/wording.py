"""What every readable format says in the same words: verdict, counts, values, names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from envlock.findings import Finding, JsonValue, Report, Result, Severity
from envlock.neutral import ELLIPSIS, neutral

MESSAGE_LIMIT = 2000
"""Characters of a finding's message or hint; values inside them are a part of it."""
NAME_LIMIT = 44
WHEELS_NAMED = 3
"""Up to so many nvidia-* packages are named; a CUDA build brings about twenty."""

TABLE_LIMIT = 80
"""Characters of a list or table that are shown beside other values."""

_PLURALS = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("note", "notes"),
}

_COMMANDS = (
    *("apt-get", "conda", "docker", "envlock", "export", "git", "mamba", "micromamba"),
    *("nvidia-smi", "pip", "pip3", "podman", "python", "python3", "sudo", "systemctl"),
    *("ulimit", "unset", "uv"),
)
"""Programs with which a hint begins that is a command as a whole."""
_PROSE = frozenset(
    {
        "and",
        "as",
        "for",
        "from",
        "it",
        "of",
        "on",
        "or",
        "that",
        "the",
        "then",
        "to",
        "until",
        "with",
    }
)
"""``pip uninstall it until it is gone`` begins like a command and is advice."""


def verdict(report: Report, fail_on: Severity | None) -> tuple[str, str]:
    """The verdict as one word and as one sentence."""
    result = report.result(fail_on)
    counts = count_words(report.findings)
    if result is Result.NOTHING:
        return "NOTHING CHECKED", "no fact is known on both sides, so this proves nothing"
    if result is Result.FAIL:
        return "FAIL", counts
    if not report.findings:
        return "PASS", "no differences found" if report.left and report.right else "no faults found"
    return "PASS", f"{counts}, none that fails the check"


def title(report: Report) -> str:
    """What was compared with what."""
    names = [short_name(name) for name in (report.left, report.right) if name]
    return f"{neutral(report.command)} {' → '.join(names)}".rstrip()


def count_words(findings: Sequence[Finding]) -> str:
    """``1 error, 2 warnings``; folded findings are not counted, their cause is."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(plural(counts[s], *_PLURALS[s]) for s in Severity if counts[s])


def plural(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def leading(report: Report) -> Finding | None:
    """The finding that is set apart: the first, unless nothing more than notes was found."""
    first = next(iter(report.findings), None)
    return None if first is None or first.severity is Severity.INFO else first


def note(finding: Finding) -> str:
    """A note in one line: its values where they say it, else the message; why one was waived."""
    shown = "" if finding.waived else change(finding)
    return shown or message(finding.message)


def coverage(report: Report, *, names_hint: str = "") -> str:
    hint = f" ({names_hint})" if names_hint and report.unknown else ""
    return f"checked {report.checked} · unknown {len(report.unknown)}{hint}"


def follow_words(finding: Finding) -> str:
    """How many differences the cause explains."""
    return f"{plural(len(finding.folded), 'difference follows', 'differences follow')} from it"


_FAMILIES = (("nvidia-", "nvidia-* packages"), ("libraries.", "CUDA libraries"))
"""What follows from another CUDA build in dozens, and says nothing each by itself."""


def follow_names(finding: Finding) -> str:
    """What follows, each subject once, with the many wheels and libraries of one build as one."""
    counts = Counter(subject_name(folded.subject) for folded in finding.folded)
    names: list[str] = []
    for prefix, family in _FAMILIES:
        members = [name for name in counts if name.startswith(prefix)]
        number = sum(counts[name] for name in members)
        if number > WHEELS_NAMED:
            names.append(f"{number} {family}")
            for name in members:
                del counts[name]
    names += [f"{name} ({count})" if count > 1 else name for name, count in counts.items()]
    return ", ".join(names)


def message(text: str) -> str:
    return neutral(text, MESSAGE_LIMIT)


def is_command(hint: str) -> bool:
    """Whether the whole hint is one command to paste, which must not be broken over lines."""
    words = hint.split()
    return (
        bool(words)
        and words[0] in _COMMANDS
        and not any(mark in hint for mark in ("`", ", ", " ("))
        and _PROSE.isdisjoint(words)
    )


def short_name(name: str, limit: int = NAME_LIMIT) -> str:
    """A lock's path or image's name; the end tells more than the beginning."""
    shown = neutral(name, 4096)
    return shown if len(shown) <= limit else ELLIPSIS + shown[1 - limit :]


def subject_name(subject: str) -> str:
    """``packages.numpy`` is known to people as ``numpy``."""
    return neutral(subject.removeprefix("packages."))


def value(fact: JsonValue, subject: str = "", *, brief: bool = True) -> str:
    """One fact for people; bytes with a unit where the subject says that it counts bytes.

    ``brief`` counts the entries of a large table instead of showing the beginning of it.
    """
    if fact is None:
        return "-"
    if isinstance(fact, str):
        return neutral(fact) or "(empty)"
    if isinstance(fact, int) and not isinstance(fact, bool) and subject.endswith("_bytes"):
        return bytes_words(fact)
    if isinstance(fact, Mapping) and fact.keys() == {"absent"}:
        return "absent"
    if isinstance(fact, Mapping) and fact.keys() == {"unknown"}:
        return neutral(f"unknown ({fact['unknown']})")
    return _data(fact, brief=brief)


def _data(fact: JsonValue, *, brief: bool) -> str:
    if brief and isinstance(fact, Mapping | Sequence) and _is_long(fact):
        return plural(len(fact), "entry", "entries")
    return neutral(_json(fact))


def _is_long(fact: JsonValue) -> bool:
    return isinstance(fact, Mapping | list | tuple) and len(_json(fact)) > TABLE_LIMIT


def _json(fact: JsonValue) -> str:
    return json.dumps(fact, ensure_ascii=False, default=str)


def change(finding: Finding) -> str:
    """``12.1 → 11.8``, or the one value there is, or nothing: how long a table is says nothing."""
    facts = [s for s in (finding.left, finding.right) if s is not None]
    sides = [] if any(map(_is_long, facts)) else [value(s, finding.subject) for s in facts]
    return " → ".join(sides if len(set(sides)) > 1 else sides[:1])


def bytes_words(number: int) -> str:
    """``25757220864`` as ``23.99 GiB``; exact below one KiB."""
    size = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def code_spans(text: str) -> list[tuple[bool, str]]:
    """The parts of a message, and whether each stood between backticks; unpaired ones are text."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts[-2:] = ["`".join(parts[-2:])]
    return [(index % 2 == 1, part) for index, part in enumerate(parts) if part]


def is_web_page(source: str) -> bool:
    """Only https becomes a link, and only when a strict reader would agree that it is one."""
    if not re.fullmatch(r"https://[!-~]{1,1000}", source) or re.search(r'["<>\\^`{|}]', source):
        return False
    try:
        return bool(re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]+)?", urlsplit(source).netloc))
    except ValueError:
        return False
