from __future__ import annotations

from dataclasses import replace

import pytest
import tomli_w
import tomllib

from envlock.errors import InputError
from envlock.lock.io import canonical, is_sealed, parse_lock, render_lock
from envlock.lock.model import ImageTable, ManagedPython
from envlock.lock.observation import ABSENT, Unknown
from tests.unit.locks import DIGEST, lock, observation

GOOD = render_lock(lock())


def test_round_trip_keeps_every_fact() -> None:
    original = lock()
    again = parse_lock(render_lock(original).encode(), "a.lock")
    assert again == original
    assert again.observed.driver == ABSENT
    assert isinstance(again.observed.cudnn, Unknown)


def test_same_lock_same_bytes() -> None:
    assert render_lock(parse_lock(GOOD.encode(), "a.lock")) == GOOD


def test_order_of_observed_packages_does_not_matter() -> None:
    seen = observation()
    assert isinstance(seen.packages, dict)
    turned = seen.changed(packages=dict(reversed(seen.packages.items())))
    assert render_lock(lock(turned)) == GOOD


def test_every_strict_prefix_is_refused() -> None:
    data = GOOD.encode()
    for length in range(len(data)):
        with pytest.raises(InputError):
            parse_lock(data[:length], "cut.lock")
    parse_lock(data, "whole.lock")


def _edited(old: str, new: str) -> bytes:
    assert old in GOOD
    return GOOD.replace(old, new, 1).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["incomplete"]),
        (b"\xef\xbb\xbf" + GOOD.encode(), ["UTF-8"]),
        (GOOD.encode("utf-16"), ["UTF-8"]),
        (GOOD.encode() + b"\0" * 16, ["UTF-8"]),
        (_edited('schema = "envlock-lock/1"', 'schema = "envlock-lock/2"'), ["schema", "lock/2"]),
        (_edited('schema = "envlock-lock/1"', "schema = 999"), ["schema", "999"]),
        (
            _edited("resolved = true", 'resolved = true\npost_install = "touch"'),
            ["unknown", "post_install"],
        ),
        (_edited('created-by = "envlock"', "created-by = 1"), ["created-by"]),
        (_edited('version = "1.26.4"', "version = 1.26"), ["packages[0].version", "string"]),
        (_edited('version = "1.26.4"', "version = 2024-01-01"), ["packages[0].version", "string"]),
        (_edited('version = "1.26.4"', 'version = "1.26.5"'), ["packages[0]", "1.26.5"]),
        (_edited("packages = 2", "packages = 3"), ["incomplete"]),
        (b"a=" + b"[" * 10000 + b"]" * 10000, ["nested"]),
        (b"size=0x" + b"f" * 1000000, ["number"]),
        (b"size=" + b"9" * 5000, ["number"]),
        (b"a: 1.10\nb: no\n", ["TOML"]),
        (b"packages = {}\n", ["packages", "list"]),
        (b"[[packages]]\n" * 20_001, ["packages", "too many"]),
        (b'{"packages": [null]}', ["packages", "list"]),
        (b"[" * 100_000, ["nested"]),
        (b'packages = "numpy"\n', ["packages", "list"]),
    ],
)
def test_bad_locks_are_refused_with_the_spot(data: bytes, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_lock(data, "bad.lock")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    for word in words:
        assert word.lower() in caught.value.message.lower()


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ({"url": "http://host.example/p.tar.gz", "sha256": DIGEST}, ["python.url", "scheme"]),
        ({"url": "https://u:p@host.example/p.tar.gz", "sha256": DIGEST}, ["url", "credentials"]),
        ({"url": "https://10.0.0.1/p.tar.gz", "sha256": DIGEST}, ["python.url", "address"]),
        ({"url": "https://host.example/$(id).tar.gz", "sha256": DIGEST}, ["python.url", "'$'"]),
        ({"url": "https://host.example/p.tar.gz", "sha256": "0"}, ["python.sha256"]),
        ({"url": "https://host.example/p.tar.gz"}, ["python", "sha256"]),
        (
            {"url": "https://host.example/p.tar.gz", "sha256": DIGEST, "system": "--x y"},
            ["python.system", "image reference"],
        ),
    ],
)
def test_a_recorded_python_is_checked(python: dict[str, str], words: list[str]) -> None:
    good = lock()
    image = ImageTable(python=ManagedPython(url="https://host.example/p%2B1.tar.gz", sha256=DIGEST))
    data = render_lock(replace(good, table=good.table.changed(image=image)))
    assert parse_lock(data.encode(), "a.lock").table.image == image
    tree = tomllib.loads(data)
    tree["tool"]["envlock"]["image"]["python"] = python
    with pytest.raises(InputError) as caught:
        parse_lock(tomli_w.dumps(tree).encode(), "a.lock")
    assert all(word in caught.value.message for word in ["tool.envlock.image", *words])


def test_an_edited_lock_is_told_from_a_sealed_one() -> None:
    assert is_sealed(parse_lock(GOOD.encode(), "a.lock"))
    edited = GOOD.replace('cuda = "12.1"', 'cuda = "11.8"')
    assert not is_sealed(parse_lock(edited.encode(), "a.lock"))


def test_the_embedded_form_names_no_place() -> None:
    text = render_lock(
        canonical(lock(sources={"numpy": "files.example"}, env={"OMP_NUM_THREADS": "4"}))
    )
    assert "files.example" not in text
    again = parse_lock(text.encode(), "embedded")
    assert again.table.image.env == {"OMP_NUM_THREADS": "4"}
    assert is_sealed(again)
