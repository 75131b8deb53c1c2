"""The one edge that every text from outside passes before it is printed, logged or raised.

Messages of pip, git, docker and of other interpreters hold index URLs with passwords, home folders
and control characters. ``redact`` takes out what names a person or opens a door; ``safe_text`` also
makes the rest harmless for a terminal.
"""

from __future__ import annotations

import re
import unicodedata

HIDDEN = "***"

_URL_USER = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.\-]*:/{1,3})[^\s/@]*@", re.IGNORECASE)
"""``https://user:password@`` and the malformed ``https:/user:password@``, which urlsplit reads as
a path without a user."""
_BARE_USER = re.compile(r"[^\s/:@'\"=]+:[^\s/@'\"]+@(?=[\w.\-\[])")
"""``user:password@host`` without a scheme, as in proxy settings."""
_TOKEN_PATH = re.compile(
    r"(?P<url>(?:\b[a-z][a-z0-9+.\-]*://|(?:[\w\-]+\.)+[a-z]{2,})[^\s'\"<>]*?)/t/[^/\s'\"]+",
    re.IGNORECASE,
)
"""conda channels: ``https://host/t/<token>/channel``, with or without the scheme."""
_QUERY = re.compile(r"(?P<url>\b[a-z][a-z0-9+.\-]*://[^\s?#'\"<>]*)[?][^\s'\"<>]*", re.IGNORECASE)
_FRAGMENT = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+.\-]*://[^\s#'\"<>]*)#(?!(?:sha256|subdirectory|egg)=)[^\s'\"<>]*",
    re.IGNORECASE,
)
_HEADER = re.compile(r"\b(?P<kind>bearer|basic)\s+[\w.~+/=\-]{8,}", re.IGNORECASE)
_SETTING = re.compile(
    r"(?P<name>[\w\-]*(?:token|passw(?:or)?d|secret|api[_\-]?key|credential)[\w\-]*[\"']?\s*[=:]\s*)"
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
    text = _TOKEN_PATH.sub(rf"\g<url>/t/{HIDDEN}", text)
    text = _QUERY.sub(rf"\g<url>?{HIDDEN}", text)
    text = _FRAGMENT.sub(rf"\g<url>#{HIDDEN}", text)
    text = _HEADER.sub(rf"\g<kind> {HIDDEN}", text)
    text = _SETTING.sub(rf"\g<name>{HIDDEN}", text)
    text = _KNOWN_TOKEN.sub(HIDDEN, text)
    text = _DEVICE.sub(HIDDEN, text)
    return _HOME.sub("~", text)


def safe_text(raw: bytes | str, *, lines: int = 12, width: int = 300) -> str:
    """The last ``lines`` of a foreign text: redacted, cut, and without control characters."""
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    kept = text.strip().splitlines()[-lines:]
    # Cut far behind what is shown first: a line may be a megabyte long.
    return "\n".join(_escape(redact(line[: width + 4096]))[:width] for line in kept)


def _escape(line: str) -> str:
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if unicodedata.category(char) in _HARMFUL
        else char
        for char in line
    )
