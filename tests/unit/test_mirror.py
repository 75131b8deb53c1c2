"""Where a base is looked for when Docker Hub has a stand-in."""

from __future__ import annotations

import pytest

from envlock.errors import UsageError
from envlock.image.mirror import check_mirror, full_name, mirrored

DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("debian", "docker.io/library/debian"),
        ("debian:12", "docker.io/library/debian:12"),
        ("nvidia/cuda:12.1.1-devel-ubuntu22.04", "docker.io/nvidia/cuda:12.1.1-devel-ubuntu22.04"),
        ("docker.io/library/debian:12", "docker.io/library/debian:12"),
        ("docker.io/debian:12", "docker.io/library/debian:12"),
        (f"index.docker.io/a/b@{DIGEST}", f"docker.io/a/b@{DIGEST}"),
        ("quay.io/a/b:1", "quay.io/a/b:1"),
        ("localhost/base", "localhost/base"),
        ("127.0.0.1:5000/a:1", "127.0.0.1:5000/a:1"),
    ],
)
def test_the_full_name_of_an_image(reference: str, full: str) -> None:
    assert full_name(reference) == full


def test_only_docker_hub_is_mirrored() -> None:
    assert (
        mirrored("docker.io/library/debian:12", "m.example/hub")
        == "m.example/hub/library/debian:12"
    )
    assert mirrored(f"debian@{DIGEST}", "m.example") == f"m.example/library/debian@{DIGEST}"
    assert mirrored("quay.io/a/b:1", "m.example/hub") == "quay.io/a/b:1"
    assert mirrored("debian:12", None) == "debian:12"


@pytest.mark.parametrize(
    "prefix", ["m.example", "m.example:5000/hub/x", "localhost", "127.0.0.1:5000"]
)
def test_a_mirror_is_a_registry_or_a_folder_in_one(prefix: str) -> None:
    assert check_mirror(prefix) == prefix


@pytest.mark.parametrize(
    "prefix",
    [
        *("", "hub", "hub/x", "https://m.example", "m.example/", "m.example/hub:1", "M.example"),
        *(
            f"m.example/x@{DIGEST}",
            "m.example/x y",
            "m.example\nRUN x",
            "user:pw@m.example",
            "-m.x",
        ),
        "m.example/../x",
    ],
)
def test_what_is_no_mirror_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_mirror(prefix)
    assert caught.value.hint
