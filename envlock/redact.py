"""The one edge that every text from outside passes before it is printed, logged or raised.

Messages of pip, git, docker and of other interpreters hold index URLs with passwords, home folders
and control characters. ``redact`` takes out what names a person or opens a door; ``safe_text`` also
makes the rest harmless for a terminal.
"""

from __future__ import annotations

import re
import unicodedata

HIDDEN = "***"

# Every quantifier that can meet a long word is bounded, or starts at one place of it only: hostile
# text of n characters must not cost n * n steps.
_URL_USER = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.\-]{0,30}:/{1,3})[^\s/@]{0,4096}@", re.IGNORECASE
)
"""``https://user:password@`` and the malformed ``https:/user:password@``, which urlsplit reads as
a path without a user."""
_BARE_USER = re.compile(r"(?<![^\s/@'\"=])[^\s/:@'\"=]{1,256}:[^\s/@'\"]{1,4096}@(?=[\w.\-\[])")
"""``user:password@host`` without a scheme, as in proxy settings."""
_WORD = re.compile(r"[^\s'\"<>]+")
_HOST = re.compile(r"://|[\w\-]\.[a-z]{2,}", re.IGNORECASE)
_TOKEN_PATH = re.compile(r"/t/[^/]+")
"""conda channels: ``https://host/t/<token>/channel``, with or without the scheme."""
_SCHEME = re.compile(r"(?<=[a-z0-9])://", re.IGNORECASE)
_KEPT_FRAGMENT = re.compile(r"(?:(?:sha256|subdirectory|egg)=[^&]*&?)*")
_HEADER = re.compile(r"\b(?P<kind>bearer|basic)\s+[\w.~+/=\-]{8,}", re.IGNORECASE)
_SETTING = re.compile(
    r"(?P<name>(?:token|passw(?:or)?d|secret|api[_\-]?key|credential)[\w\-]{0,128}[\"']?"
    r"\s{0,16}[=:]\s{0,16})"
    r"[\"']?[^\s\"',;&]+",
    re.IGNORECASE,
)
_KNOWN_TOKEN = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|pypi-|sk-|xox[a-z]-|AKIA)[\w\-]{8,}"
)
_DEVICE = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_HOME = re.compile(
    r"(?:/(?:home|Users)/[^/\s:;,'\"]+|/root(?=[/\s:;,'\"]|$)|\b[A-Za-z]:\\Users\\[^\\\s:;,'\"]+)"
)

_HARMFUL = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def redact(text: str) -> str:
    """``text`` without credentials, query strings, device ids and home folders."""
    text = _URL_USER.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _BARE_USER.sub(f"{HIDDEN}@", text)
    text = _WORD.sub(lambda word: _without_tokens(word[0]), text)
    text = _HEADER.sub(rf"\g<kind> {HIDDEN}", text)
    text = _SETTING.sub(rf"\g<name>{HIDDEN}", text)
    text = _KNOWN_TOKEN.sub(HIDDEN, text)
    text = _DEVICE.sub(HIDDEN, text)
    return _HOME.sub("~", text)


def _without_tokens(word: str) -> str:
    """A word that may be a URL, without what opens doors in its path, query and fragment."""
    place = word.find("/t/")
    if place > 0 and _HOST.search(word[:place]):
        word = word[:place] + _TOKEN_PATH.sub(f"/t/{HIDDEN}", word[place:])
    scheme = _SCHEME.search(word)
    if scheme is None:
        return word
    for place in range(scheme.end(), len(word)):
        if word[place] == "?" or (
            word[place] == "#" and not _KEPT_FRAGMENT.fullmatch(word, place + 1)
        ):
            return word[: place + 1] + HIDDEN
        if word[place] == "#":
            break
    return word


def safe_text(raw: bytes | str, *, lines: int = 12, width: int = 300) -> str:
    """The last ``lines`` of a foreign text: redacted, cut, and without control characters."""
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    kept = text.strip().splitlines()[-lines:]
    # Cut far behind what is shown first: a line may be a megabyte long.
    return "\n".join(_escape(redact(line[: width + 4096]))[:width] for line in kept)


def one_line(text: str, *, width: int = 300) -> str:
    """A short foreign text whole on one line: its line ends are escaped, and no part is left out."""
    return _escape(redact(text[: width + 4096]))[:width]


def _escape(line: str) -> str:
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if unicodedata.category(char) in _HARMFUL
        else char
        for char in line
    )
