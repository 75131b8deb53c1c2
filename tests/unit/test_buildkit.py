"""The parts of a BuildKit build that need no engine: arguments, environment, and its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from envlock.errors import InputError
from envlock.image.buildkit import Progress, client_environment, secret_options

FAILED = b"""#5 [2/3] RUN echo one
#5 sha256:f894de6ec1d48d804a6d3196bcc17dbf92ec95d36b3fca791468c3cc6a9d8e7e
#5 0.071 one
#5 DONE 0.1s
#6 [3/3] RUN pip install https://user:s3cret@index.example/x
#6 sha256:1fa87803186637791a5ff07f1bee9e5e3a1afa68770395eaafa96ff01df27869
#6 0.139 Looking in indexes: https://user:s3cret@index.example/simple
#6 ERROR: executor failed running [/bin/sh -c pip]: exit code: 1
------
 > [3/3] RUN pip:
------
executor failed running [/bin/sh -c pip]: exit code: 1"""


def fed(data: bytes, size: int = 7) -> tuple[Progress, list[str]]:
    seen: list[str] = []
    progress = Progress(show=seen.append)
    for start in range(0, len(data), size):
        progress.feed(data[start : start + size])
    progress.close()
    return progress, seen


def test_a_failing_step_is_shown_alone_and_redacted() -> None:
    progress, seen = fed(FAILED)
    assert progress.failed_step == "6"
    assert not progress.lost_connection
    assert progress.tail().splitlines() == [
        "[3/3] RUN pip install https://***@index.example/x",
        "Looking in indexes: https://***@index.example/simple",
        "ERROR: executor failed running [/bin/sh -c pip]: exit code: 1",
    ]
    assert not any("s3cret" in line for line in seen)
    assert len(seen) == len(FAILED.splitlines())


def test_a_lost_connection_is_no_failing_step() -> None:
    progress, _ = fed(b"#5 [2/3] RUN sleep\nerror reading from server: EOF\n")
    assert progress.lost_connection
    assert progress.failed_step is None
    assert "error reading" in progress.tail()


def test_a_step_may_print_what_it_likes() -> None:
    progress, _ = fed(b"#5 [2/3] RUN x\n#5 ERROR: unexpected EOF\n")
    assert not progress.lost_connection
    assert progress.failed_step == "5"


def test_output_without_end_is_bounded() -> None:
    progress, seen = fed(b"x" * 3_000_000 + b"\n" + b"#1 y\n" * 500, size=65536)
    assert max(len(line) for line in seen) <= 1000
    assert len(progress.tail()) <= 20 * 1001


def test_the_client_gets_what_reaches_the_engine_and_nothing_that_steers_the_build() -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/h",
        "DOCKER_HOST": "unix:///x",
        "https_proxy": "p",
        "DOCKER_BUILDKIT": "0",
        "DOCKER_DEFAULT_PLATFORM": "linux/arm64",
        "SOURCE_DATE_EPOCH": "1",
        "BUILDX_BUILDER": "other",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    assert client_environment(given) == {
        "PATH": "/bin",
        "HOME": "/h",
        "DOCKER_HOST": "unix:///x",
        "https_proxy": "p",
        "DOCKER_BUILDKIT": "1",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }


def test_secrets_are_files_by_name(tmp_path: Path) -> None:
    assert secret_options({"b": tmp_path / "2", "a": tmp_path / "1"}) == [
        *("--secret", f"id=a,src={tmp_path}/1"),
        *("--secret", f"id=b,src={tmp_path}/2"),
    ]


@pytest.mark.parametrize("name", ["a,type=env", 'a"b', "a\nb"])
def test_a_secret_cannot_bring_options_along(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="comma, quote or line end"):
        secret_options({"a": tmp_path / name})
