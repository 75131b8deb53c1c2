from __future__ import annotations

import pytest

from envlock.errors import InputError
from envlock.lock.observation import ABSENT, Observation, Unknown
from envlock.targets.texts import Kind, detect, parse_text
from envlock.targets.texts.choices import holds

UV = """\
version = 1
revision = 3
requires-python = ">=3.11"

[[package]]
name = "train"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "colorama", marker = "sys_platform == 'win32'" },
    { name = "numpy" },
    { name = "tomli", marker = "python_full_version < '3.12'" },
    { name = "torch", version = "2.3.0", source = { registry = "https://a.example" }, marker = "sys_platform == 'darwin'" },
    { name = "torch", version = "2.3.0+cu121", source = { registry = "https://b.example" }, marker = "sys_platform != 'darwin'" },
    { name = "transformers", extra = ["torch"] },
]

[package.optional-dependencies]
plots = [{ name = "matplotlib" }]

[package.dev-dependencies]
dev = [{ name = "pytest" }]

[[package]]
name = "colorama"
version = "0.4.6"

[[package]]
name = "numpy"
version = "1.26.4"

[[package]]
name = "tomli"
version = "2.0.1"

[[package]]
name = "torch"
version = "2.3.0"
resolution-markers = ["sys_platform == 'darwin'"]

[[package]]
name = "torch"
version = "2.3.0+cu121"
resolution-markers = ["sys_platform != 'darwin'"]
dependencies = [
    { name = "nvidia-nccl-cu12", marker = "platform_machine == 'x86_64' and sys_platform == 'linux'" },
]

[[package]]
name = "nvidia-nccl-cu12"
version = "2.20.5"

[[package]]
name = "transformers"
version = "4.41.0"

[package.optional-dependencies]
torch = [{ name = "accelerate" }]

[[package]]
name = "accelerate"
version = "0.30.0"

[[package]]
name = "matplotlib"
version = "3.9.0"

[[package]]
name = "pytest"
version = "8.2.0"
"""

POETRY = """\
[[package]]
name = "numpy"
version = "1.26.4"
groups = ["main"]
optional = false

[[package]]
name = "torch"
version = "2.3.0+cu121"
groups = ["main"]
optional = false
markers = "sys_platform == \\"linux\\""

[[package]]
name = "pywin32"
version = "306"
groups = ["main"]
optional = false
markers = "sys_platform == \\"win32\\""

[[package]]
name = "pytest"
version = "8.2.0"
groups = ["dev"]
optional = false

[metadata]
lock-version = "2.1"
python-versions = "^3.11"
content-hash = "00"
"""

PYLOCK = """\
lock-version = "1.0"
created-by = "some tool"

[[packages]]
name = "numpy"
version = "1.26.4"

[[packages]]
name = "torch"
version = "2.3.0+cpu"

[[packages]]
name = "pywin32"
version = "306"
marker = "sys_platform == 'win32'"

[[packages]]
name = "pytest"
version = "8.2.0"
marker = "'dev' in dependency_groups"

[[packages]]
name = "mine"
directory = { path = "." }
"""


def is_unknown(observation: Observation, path: str) -> bool:
    return isinstance(observation.find(path), Unknown)


@pytest.mark.parametrize(
    ("text", "kind"), [(UV, Kind.UV), (POETRY, Kind.POETRY), (PYLOCK, Kind.PYLOCK)]
)
def test_kinds_are_told_apart(text: str, kind: Kind) -> None:
    assert detect(text) is kind
    seen = parse_text(text)
    assert seen.exhaustive == ["packages"]
    assert seen.find("packages.numpy.version") == "1.26.4"
    assert seen.find("packages.pandas") == ABSENT
    assert seen.read_from["packages"] == kind.value


def test_uv_lock_gives_what_linux_gets() -> None:
    seen = parse_text(UV)
    assert seen.find("packages.torch.version") == "2.3.0+cu121"
    assert seen.find("torch.cuda") == "12.1"
    assert seen.find("packages.nvidia-nccl-cu12.version") == "2.20.5"
    assert seen.find("packages.accelerate.version") == "0.30.0"
    assert seen.find("packages.colorama") == ABSENT
    assert seen.find("packages.train") == ABSENT


def test_what_a_lock_leaves_open_is_unknown() -> None:
    seen = parse_text(UV)
    for name in ("tomli", "matplotlib", "pytest"):
        assert is_unknown(seen, f"packages.{name}.version")


def test_uv_lock_in_two_versions_for_one_system_is_unknown() -> None:
    seen = parse_text(UV.replace("sys_platform == 'darwin'", "python_version < '3.12'"))
    assert is_unknown(seen, "packages.torch.version")
    assert is_unknown(seen, "torch.cuda")


def test_poetry_lock() -> None:
    seen = parse_text(POETRY)
    assert seen.find("torch.cuda") == "12.1"
    assert seen.find("packages.pywin32") == ABSENT
    assert is_unknown(seen, "packages.pytest.version")


def test_foreign_pylock() -> None:
    seen = parse_text(PYLOCK)
    assert seen.find("torch.build") == "cpu"
    assert seen.find("packages.pywin32") == ABSENT
    assert is_unknown(seen, "packages.pytest.version")
    assert is_unknown(seen, "packages.mine.version")


@pytest.mark.parametrize(
    ("marker", "answer"),
    [
        ("sys_platform == 'linux'", True),
        ("sys_platform == 'win32'", False),
        ("sys_platform == 'win32' and python_version < '3.9'", False),
        ("sys_platform == 'linux' or python_version < '3.9'", True),
        ("python_version >= '3.8'", True),
        ("python_version < '3.12'", None),
        ("extra == 'plots'", None),
        ("not a marker", None),
        ("(" * 1000, None),
    ],
)
def test_markers_on_linux(marker: str, answer: object) -> None:
    assert holds(marker) is answer


@pytest.mark.parametrize(
    "text",
    [
        UV.replace('name = "numpy"\nversion = "1.26.4"', 'name = "numpy"\nversion = "1.26 --x"'),
        UV + "[[package]]\nversion = 1\n",
        UV + "[broken",
        POETRY.replace('name = "numpy"', 'name = "../numpy"'),
    ],
)
def test_what_is_no_lock_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_text(text)


def test_odd_tables_in_a_lock_do_no_harm() -> None:
    text = UV.replace(
        'dependencies = [\n    { name = "colorama"', 'dependencies = [\n    3, { name = "colorama"'
    )
    text = text.replace('extra = ["torch"]', "extra = 7").replace('groups = ["main"]', "groups = 7")
    parse_text(text)
    parse_text(POETRY.replace('groups = ["main"]', "groups = 7"))
