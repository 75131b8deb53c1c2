"""Values and lists in sentences, and commands in hints."""

from __future__ import annotations

from collections.abc import Iterable

from envlock.facts import torch_build, versions, wheel_command
from envlock.findings import JsonValue
from envlock.rules import reading
from envlock.rules.base import REFERENCE, Env, Pair

_NAMED = 3
"""How many names a sentence lists before it only counts."""


def say(value: JsonValue) -> str:
    """A value in a sentence, at most about 80 characters long."""
    if value is None or value == {"absent": True}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        text = ", ".join(say(entry) for entry in value)
    elif isinstance(value, dict):
        text = ", ".join(f"{key} {say(entry)}" for key, entry in value.items())
    else:
        text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def some(names: Iterable[str]) -> str:
    """The first few of a list, and how many more there are."""
    all_names = list(names)
    more = len(all_names) - _NAMED
    text = ", ".join(all_names[:_NAMED])
    return f"{text} and {more} more" if more > 0 else text


def agree(names: Iterable[str], one: str, many: str) -> str:
    """The first few names with the verb in their number: ``numpy needs``, ``a, b need``."""
    all_names = list(names)
    return f"{some(all_names)} {one if len(all_names) == 1 else many}"


def listed(entries: Iterable[str]) -> str:
    return ", ".join(entries)


def full_torch_version(env: Env) -> str | None:
    """With the local tag that pip needs to find the same build: ``2.3.0+cu121``."""
    version = reading.torch_version(env)
    if version is None:
        return None
    if "+" in version.value:
        return version.value
    kind, cuda = reading.torch_kind(env), reading.torch_cuda(env)
    if cuda is not None:
        tag = versions.tag_of_cuda(cuda.value)
    else:
        tag = "cpu" if kind is not None and kind.value == "cpu" else None
    return f"{version.value}+{tag}" if tag else version.value


def install_like(pair: Pair) -> str:
    """The command that gives the right side the left side's torch, where one is known to work."""
    version = full_torch_version(pair.left)
    if version is None:
        return f"install the torch build that {REFERENCE} has"
    names = ("torchvision", "torchaudio")
    also = {name: v for name in names if (v := pair.left.package(name))}
    command = wheel_command(version, also)
    if command is None:
        return f"install torch {version}, as {REFERENCE} has it"
    build, abi = torch_build(version), pair.right.peek("python.abi")
    python = pair.left.peek("python.version")
    if build and isinstance(abi, str) and build.python_tags and abi not in build.python_tags:
        with_python = f" {python}" if python else ""
        return f"with Python{with_python} as in {REFERENCE} (no wheel for {abi}): {command}"
    return command
