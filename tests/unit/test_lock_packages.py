"""Packages of a lock that a stranger sent: refused by grammar, with the field and the reason."""

from __future__ import annotations

from typing import Any

import pytest

from envlock.errors import InputError
from envlock.lock.packages import parse_packages
from tests.unit.locks import DIGEST, wheel

NUMPY = {"name": "numpy", "version": "1.26.4"}


def parse(*entries: Any) -> Any:
    return parse_packages(
        {"lock-version": "1.0", "created-by": "x", "packages": list(entries)}, "a.lock"
    )


def entry(**fields: Any) -> dict[str, Any]:
    return {**NUMPY, "wheels": [wheel("numpy", "1.26.4")], **fields}


def url(text: str) -> dict[str, Any]:
    return entry(wheels=[{"url": text, "hashes": {"sha256": DIGEST}}])


def vcs(**fields: Any) -> dict[str, Any]:
    source = {"type": "git", "url": "https://host.example/r.git", "commit-id": "0" * 40, **fields}
    return {**NUMPY, "vcs": source}


FILE = "numpy-1.26.4-py3-none-any.whl"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (entry(name="numpy\nRUN touch /pwned"), ["packages[0].name", "package name"]),
        (entry(name="numpy; touch /pwned"), ["packages[0].name", "package name"]),
        (entry(name="--index-url=https://a.invalid/"), ["packages[0].name", "package name"]),
        (entry(name="numpy\n"), ["packages[0].name", "package name"]),
        (entry(name="\u212aeras"), ["packages[0].name", "package name"]),
        (entry(name="a" * 101), ["packages[0].name", "package name"]),
        (entry(name=7), ["packages[0].name", "string"]),
        (entry(version="1.26.4 #"), ["packages[0].version", "version"]),
        (entry(version="1.26.*"), ["packages[0].version", "exact version"]),
        (entry(version="1" * 5000), ["packages[0].version", "too long"]),
        (entry(version="2.3.0\u202e0.1.2"), ["packages[0].version", "U+202E"]),
        (entry(version="v1.26.4"), ["packages[0].version", "1.26.4"]),
        (entry(marker="(" * 100 + "python_version > '3'" + ")" * 100), ["marker", "nested"]),
        (entry(marker="python_version > '3'\n--x"), ["packages[0].marker"]),
        (entry(marker="cuda_version == '12.9'"), ["packages[0].marker", "unknown"]),
        (entry(marker="python_version > '3'" * 100), ["packages[0].marker", "too long"]),
        (entry(wheels=[wheel("numpy", "1.26.4", hashes={})]), ["hashes", "sha256"]),
        (entry(wheels=[wheel("numpy", "1.26.4", hashes={"md5": "a" * 32})]), ["hashes", "sha256"]),
        (entry(wheels=[wheel("numpy", "1.26.4", hashes={"sha256": "G" * 64})]), ["hashes"]),
        (url(f"http://host.example/{FILE}"), ["wheels[0].url", "https"]),
        (url("file:///etc/passwd"), ["wheels[0].url", "scheme"]),
        (url(f"https://user1:s3cr3t@host.invalid/{FILE}"), ["wheels[0].url", "credentials"]),
        (url(f"https://trusted.example@host.invalid/{FILE}"), ["wheels[0].url", "credentials"]),
        (url(f"https://host.invalid/${{TOKEN}}/{FILE}"), ["wheels[0].url", "$"]),
        (url("https://host.invalid/a.whl\n--trusted-host x"), ["wheels[0].url", "character"]),
        (url(f"https://169.254.169.254/{FILE}"), ["wheels[0].url", "address"]),
        (url("https://host.invalid/evil-9.9-py3-none-any.whl"), ["wheels[0].url", "numpy", "evil"]),
        (url("https://host.invalid/..%252fx-1.0-py3-none-any.whl"), ["wheels[0].url", "file name"]),
        (entry(wheels=[wheel("numpy", "1.26.4", url=None, path="../x")]), ["path", "file name"]),
        (vcs(url="--upload-pack=touch /pwned"), ["packages[0].vcs.url", "scheme"]),
        (vcs(url="ext::sh -c touch"), ["packages[0].vcs.url", "scheme"]),
        (vcs(url="git+ssh://-oProxyCommand=x/y"), ["packages[0].vcs.url", "host"]),
        (vcs(**{"commit-id": "main"}), ["packages[0].vcs.commit-id", "commit"]),
        (vcs(subdirectory="../../.."), ["packages[0].vcs.subdirectory", "subdirectory"]),
        ({**NUMPY, "directory": {"path": "/home/x"}}, ["packages[0].directory"]),
        (None, ["packages[0]", "table"]),
    ],
)
def test_refused(bad: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse(bad)
    message = caught.value.message
    assert message.isascii()
    assert message.isprintable()
    assert "s3cr3t" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "good",
    [
        entry(),
        entry(
            name="ruamel-yaml-clib", version="0.2.8", wheels=[wheel("ruamel-yaml-clib", "0.2.8")]
        ),
        entry(version="2.3.0+cu121", wheels=[wheel("numpy", "2.3.0+cu121")]),
        entry(marker="sys_platform == 'win32' and python_version > '3'"),
        url(f"https://host.example:8443/a/b/{FILE}"),
        vcs(url="git+ssh://git@host.example/team/repo.git"),
    ],
)
def test_benign_twins_pass(good: dict[str, Any]) -> None:
    assert len(parse(good)) == 1


def test_one_name_twice_is_refused_in_every_spelling() -> None:
    twin = {"name": "Foo_Bar", "version": "1.0", "wheels": [wheel("foo-bar", "1.0")]}
    with pytest.raises(InputError, match=r"packages\[1\]\.name: duplicate.*foo-bar"):
        parse(twin, {**twin, "name": "foo.bar"})


def test_a_million_entries_are_refused_before_any_is_looked_at() -> None:
    with pytest.raises(InputError, match="packages: too many"):
        parse(*([None] * 1_000_000))
