"""Rendered Dockerfiles, read back by BuildKit's own parser: values never become instructions."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from envlock.errors import BuildError, InputError
from envlock.image.base import named_base
from envlock.image.plan import make_plan
from envlock.image.render import dockerfile_quote, render_context, render_dockerfile
from tests.unit.dockerfile_parser import (
    DockerfileError,
    Instruction,
    directives,
    instructions,
    shape,
    unquoted,
)
from tests.unit.locks import DIGEST, lock, packages, random_variables, wheel

SEED = 20260101
SDIST = {"url": "https://files.example/numpy-1.26.4.tar.gz", "hashes": {"sha256": DIGEST}}


def dockerfile_of(env: dict[str, str] | None = None, base: str | None = None) -> str:
    made = lock(env=env or {})
    return render_dockerfile(make_plan(made, named_base(base, made)))


BENIGN = dockerfile_of()


def settings(parsed: list[Instruction]) -> dict[str, str]:
    """Variables as the image gets them."""
    found: dict[str, str] = {}
    for instruction in parsed:
        if instruction.kind == "ENV":
            name, value = instruction.words[:2]
            assert len(instruction.words) <= 3, "one variable an instruction"
            if name != "PATH":
                found[name] = unquoted(value)
    return found


def test_what_is_built_from_source_has_a_stage_of_its_own() -> None:
    entries: list[dict[str, Any]] = [
        {"name": "torch", "version": "2.3.0", "wheels": [wheel("torch", "2.3.0")]},
        {"name": "numpy", "version": "1.26.4", "sdist": SDIST},
    ]
    made = replace(lock(), packages=packages(entries))
    with pytest.raises(BuildError, match="numpy has no wheel"):
        make_plan(made, named_base(None, made))
    plan = make_plan(made, named_base(None, made), allow_source=True)
    files = render_context(made, plan, wheels=True)
    assert shape(files["Dockerfile"].decode())[:7] == [
        *("FROM", "USER", "RUN"),  # sources
        *("FROM", "USER", "COPY", "RUN"),  # install
    ]
    assert b"numpy" not in files["requirements.txt"]
    (source,) = json.loads(files["plan.json"])["sources"]
    assert source == {"name": "numpy", "version": "1.26.4", "file": "numpy-1.26.4.tar.gz"}
    assert "build_sources.py" in files


def test_the_parser_sees_what_a_builder_would_obey() -> None:
    """The positive control: injected instructions change the list."""
    injected = BENIGN.replace('CMD ["python"]', 'CMD ["python"]\nRUN touch /pwned')
    assert shape(injected) == [*shape(BENIGN), "RUN"]
    assert shape("FROM a\nLABEL A=1\\\nUSER=1\n") == ["FROM", "LABEL"]
    with pytest.raises(DockerfileError):
        shape('FROM a\nENV A="1"\\\nUSER 1\n')


@pytest.mark.parametrize("word", ['"a$b"', '"a" b="c"', "a", '"'])
def test_a_value_that_a_builder_would_read_is_no_value(word: str) -> None:
    with pytest.raises(ValueError, match=r"builder|quoted"):
        unquoted(word)


def test_the_file_begins_with_its_only_directive() -> None:
    assert BENIGN.startswith("# escape=\\\n")
    assert directives(BENIGN) == ["escape"]
    assert directives("# syntax=a.example/x\n# escape=`\n") == ["syntax", "escape"]


def test_the_whole_instruction_list() -> None:
    assert shape(BENIGN) == [
        *["FROM", "USER", "RUN", "FROM", "COPY", "COPY"],
        *["LABEL"] * 5,
        *["ENV"] * 4,
        *["USER", "ENTRYPOINT", "CMD"],
    ]


def test_commands_and_copies_reach_no_shell() -> None:
    for instruction in instructions(BENIGN):
        if instruction.kind in {"RUN", "COPY", "CMD", "ENTRYPOINT"}:
            assert instruction.json, instruction
    assert instructions(BENIGN)[-1] == Instruction("CMD", (), ("python",), json=True)


def test_a_thousand_random_locks_give_the_same_instructions_and_values() -> None:
    random_ = random.Random(SEED)
    without_env = [kind for kind in shape(BENIGN) if kind != "ENV"]
    for _ in range(1000):
        env = random_variables(random_)
        parsed = instructions(dockerfile_of(env))
        kinds = [instruction.kind for instruction in parsed]
        assert [kind for kind in kinds if kind != "ENV"] == without_env
        assert kinds.count("ENV") == 4 + len(env)
        found = settings(parsed)
        assert {name: found[name] for name in env} == env


@pytest.mark.parametrize(
    "char", ["\n", "\r", "\0", "\x0b", "\x0c", "\x1b", "\x85", "\u2028", "\u202e"]
)
def test_no_control_character_is_quoted(char: str) -> None:
    with pytest.raises(InputError, match="control character"):
        dockerfile_quote(f"a{char}b")


@pytest.mark.parametrize(
    "reference",
    ["base:1\nRUN touch /pwned", "base:1 AS evil", "--platform=x base:1", "Base//Image", "$BASE"],
)
def test_a_base_is_a_reference_or_refused(reference: str) -> None:
    with pytest.raises(InputError, match=r"image\.base: .*image reference"):
        dockerfile_of(base=reference)


def test_the_context_holds_generated_files_only() -> None:
    made = lock()
    plan = make_plan(made, named_base(None, made))
    assert sorted(render_context(made, plan, wheels=False)) == [
        "Dockerfile",
        "embedded.toml",
        "install.py",
        "plan.json",
        "requirements.txt",
    ]


def test_each_requirement_ends_in_its_hash() -> None:
    made = lock()
    files = render_context(made, make_plan(made, named_base(None, made)), wheels=True)
    lines = files["requirements.txt"].decode().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["numpy==1.26.4", "torch==2.3.0"]
    assert all(line.endswith(f"--hash=sha256:{'0' * 64}") for line in lines)
    program = files["install.py"].decode()
    for flag in ("--require-hashes", "--only-binary", "--no-config", "--no-deps"):
        assert f'"{flag}"' in program
