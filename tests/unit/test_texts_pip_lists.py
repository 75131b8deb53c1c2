from __future__ import annotations

import codecs
import json
import time

import pytest

from envlock.errors import InputError
from envlock.lock.observation import ABSENT, Observation, Unknown
from envlock.targets.texts import _READERS, Kind, decode, detect, parse_text

FREEZE = """\
certifi==2024.2.2
filelock==3.13.1
numpy==1.26.4
nvidia-nccl-cu12==2.20.5
torch==2.3.0+cu121
triton==2.3.0
typing_extensions==4.9.0
"""
COMMIT = "a" * 40
HASH = f"sha256:{'0' * 64}"


def is_unknown(observation: Observation, path: str) -> bool:
    return isinstance(observation.find(path), Unknown)


def test_every_kind_has_a_reader() -> None:
    assert set(_READERS) == set(Kind)


# --- freeze -------------------------------------------------------------------------------------


def test_freeze_of_a_whole_environment() -> None:
    assert detect(FREEZE) is Kind.FREEZE
    seen = parse_text(FREEZE)
    assert seen.exhaustive == ["packages"]
    assert seen.find("packages.typing-extensions.version") == "4.9.0"
    assert seen.find("packages.pandas") == ABSENT
    assert is_unknown(seen, "python.version")
    assert seen.read_from["torch"] == "pip freeze"


def test_build_tag_of_torch_says_the_cuda_release() -> None:
    seen = parse_text(FREEZE)
    for path, value in {
        "version": "2.3.0+cu121",
        "release": "2.3.0",
        "local": "cu121",
        "cuda": "12.1",
        "build": "cuda",
    }.items():
        assert seen.find(f"torch.{path}") == value


@pytest.mark.parametrize(
    ("tag", "build", "cuda"),
    [
        ("cu92", "cuda", "9.2"),
        ("cu118.cxx11.abi", "cuda", "11.8"),
        ("cu130", "cuda", "13.0"),
        ("cpu", "cpu", ABSENT),
        ("rocm6.2", "rocm", ABSENT),
        ("xpu", "xpu", ABSENT),
    ],
)
def test_build_tags(tag: str, build: str, cuda: object) -> None:
    seen = parse_text(f"torch==2.3.0+{tag}\n")
    assert (seen.find("torch.build"), seen.find("torch.cuda")) == (build, cuda)


@pytest.mark.parametrize("version", ["2.3.0", "2.3.0+git1234567", "2.3.0a0+ebedce2"])
def test_other_versions_of_torch_do_not_say_it(version: str) -> None:
    seen = parse_text(f"torch=={version}\n")
    assert seen.find("torch.release") == version.partition("+")[0]
    assert is_unknown(seen, "torch.cuda")
    assert is_unknown(seen, "torch.build")
    assert is_unknown(seen, "torch.local") == ("+" not in version)


def test_part_of_a_freeze_is_not_complete() -> None:
    for text in ("torch==2.3.0\n", "nvidia-nccl-cu12==2.20.5\nnvidia-cudnn-cu12==8.9.2.26\n"):
        seen = parse_text(text)
        assert seen.exhaustive == []
        assert is_unknown(seen, "packages.numpy.version")
    assert is_unknown(parse_text("nvidia-nccl-cu12==2.20.5\n"), "torch")


def test_whole_freeze_without_torch_says_that_there_is_none() -> None:
    assert parse_text("certifi==2024.2.2\nnumpy==1.26.4\n").torch == ABSENT


def test_installers_are_seeds() -> None:
    seen = parse_text(FREEZE + "setuptools==69.0.3\n")
    assert seen.seeds == {"setuptools": "69.0.3"}
    assert seen.find("packages.setuptools") == ABSENT
    assert is_unknown(parse_text(FREEZE), "seeds")


def test_freeze_with_origins_prompts_and_comments() -> None:
    text = f"""\
(venv) $ pip freeze
WARNING: Ignoring invalid distribution -orch (/home/somebody/venv/lib/python3.11/site-packages)
{FREEZE}
idna @ file:///home/conda/feedstock_root/build_artifacts/idna_1701026962277/work
mine @ file:///home/somebody/mine
flash-attn @ https://host.example/d/flash_attn-2.5.8%2Bcu122torch2.3-cp311-cp311-linux_x86_64.whl#sha256={"0" * 64}
transformers @ git+https://user:s3cr3t@host.example/hf/transformers.git@{COMMIT}
-e git+https://host.example/team/train.git@{COMMIT}#egg=train
# Editable install with no version control (local==0.1)
"""
    seen = parse_text(text)
    packages = seen.packages
    assert isinstance(packages, dict)
    source = {name: p.source.kind for name, p in packages.items() if hasattr(p.source, "kind")}
    assert source == {
        "idna": "conda",
        "mine": "archive",
        "flash-attn": "archive",
        "transformers": "vcs",
        "train": "editable",
    }
    assert seen.find("packages.flash-attn.version") == "2.5.8+cu122torch2.3"
    assert is_unknown(seen, "packages.idna.version")
    assert seen.find("packages.transformers.source.commit") == COMMIT
    assert "s3cr3t" not in str(seen.plain())
    assert "somebody" not in str(seen.plain())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch==2.3.0 --index-url=https://attacker.invalid\n", ("torch", "version")),
        ("torch==2.3.0\ntorch==2.4.0\n", ("torch", "twice")),
        ("torch==\uff12.3\n", ("torch", "version")),
        ("torch==2.3.0\u2028x\n", ("torch", "version")),
        (f"{'a' * 200}==1\n", ("name",)),
    ],
)
def test_what_is_no_version_or_name_is_refused(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        parse_text(FREEZE.replace("torch==2.3.0+cu121\n", "") + text)
    for word in words:
        assert word in caught.value.message


def test_too_many_packages_are_refused() -> None:
    with pytest.raises(InputError, match="too many packages"):
        parse_text("".join(f"p{n}==1\n" for n in range(20_002)))


def test_millions_of_lines_are_refused() -> None:
    for text in ("certifi==1\n" * 1_000_001, "certifi==1\n" * 50_000):
        with pytest.raises(InputError, match="too many"):
            parse_text(text)


def test_one_endless_continued_line_is_no_trouble() -> None:
    start = time.perf_counter()
    with pytest.raises(InputError):
        parse_text(("certifi==1 --hash=sha256:" + "0" * 64 + " \\\n") * 20_000)
    assert time.perf_counter() - start < 5


def test_kind_shows_in_the_ends_of_a_large_text() -> None:
    assert detect(FREEZE + "x==1\n" * 100_000) is Kind.FREEZE
    assert detect("log line\n" * 100_000) is None


def test_text_in_utf16_and_with_other_bytes() -> None:
    assert parse_text(decode(codecs.BOM_UTF16_LE + FREEZE.encode("utf-16-le"))) == parse_text(
        FREEZE
    )
    assert parse_text(decode(codecs.BOM_UTF8 + FREEZE.encode())) == parse_text(FREEZE)
    assert decode(b"Syst\xe8me") == r"Syst\xe8me"


@pytest.mark.parametrize(
    "line", ["a" * 16_000, "a " * 8000, "a==" * 5000, "[" * 16_000, "-" * 16_000]
)
def test_no_pattern_is_slow(line: str) -> None:
    start = time.perf_counter()
    detect((line + "\n") * 100)
    assert time.perf_counter() - start < 5


# --- requirements -------------------------------------------------------------------------------

LOCKED = f"""\
--index-url https://user:s3cr3t@wheels.example/simple
certifi==2024.2.2 \\
    --hash={HASH} \\
    --hash=sha256:{"1" * 64}
    # via requests
colorama==0.4.6 ; sys_platform == "win32" \\
    --hash={HASH}
tomli==2.0.1 ; python_version < "3.11" --hash={HASH}
torch==2.3.0 ; sys_platform == "darwin" --hash={HASH}
torch==2.3.0+cu121 ; sys_platform == "linux" --hash={HASH}
"""


def test_requirements_with_hashes_are_a_whole_list() -> None:
    seen = parse_text(LOCKED)
    assert seen.exhaustive == ["packages"]
    assert seen.find("packages.certifi.version") == "2024.2.2"
    assert seen.find("torch.cuda") == "12.1"
    assert seen.find("packages.colorama") == ABSENT
    assert is_unknown(seen, "packages.tomli.version")
    assert seen.find("indexes.hosts") == ["wheels.example"]
    assert "s3cr3t" not in str(seen.plain())


def test_requirements_with_ranges_are_not() -> None:
    seen = parse_text("certifi==2024.2.2\ntorch>=2.1\nnumpy~=1.26\ntransformers\n")
    assert seen.exhaustive == []
    assert seen.find("packages.certifi.version") == "2024.2.2"
    assert is_unknown(seen, "packages.torch")
    assert is_unknown(seen, "torch")


@pytest.mark.parametrize("open_pin", ["numpy==1.26.*", "numpy==1.26.4,!=1.26.3", "numpy[x]==1.*"])
def test_open_pins_are_no_versions(open_pin: str) -> None:
    seen = parse_text(f"certifi==2024.2.2\n{open_pin}\n")
    assert seen.exhaustive == []
    assert is_unknown(seen, "packages.numpy")


def test_address_of_an_index_is_not_recorded() -> None:
    seen = parse_text("-i http://10.1.2.3:8080/simple\ncertifi==2024.2.2\n")
    assert seen.find("indexes.hosts") == ["ip-address"]


# --- list ---------------------------------------------------------------------------------------

COLUMNS = """\
$ pip list
Package                  Version       Editable project location
------------------------ ------------- -------------------------
certifi                  2024.2.2
Jinja2                   3.1.3
mine                     0.1           /home/somebody/mine
pip                      24.0
torch                    2.3.0+cu121

[notice] A new release of pip is available: 24.0 -> 24.1
"""


def test_pip_list() -> None:
    assert detect(COLUMNS) is Kind.PIP_LIST
    seen = parse_text(COLUMNS)
    assert seen.exhaustive == ["packages"]
    assert seen.find("packages.jinja2.version") == "3.1.3"
    assert seen.find("torch.cuda") == "12.1"
    assert seen.find("packages.release") == ABSENT
    assert seen.seeds == {"pip": "24.0"}
    assert "somebody" not in str(seen.plain())


def test_outdated_list_is_a_selection() -> None:
    text = "Package Version Latest Type\n------- ------- ------ -----\ncertifi 1.0 2.0 wheel\n"
    assert parse_text(text).exhaustive == []


def test_pip_list_as_json() -> None:
    entries = [
        {"name": "certifi", "version": "2024.2.2"},
        {"name": "torch", "version": "2.3.0+cpu"},
    ]
    text = json.dumps(entries)
    assert detect(text) is Kind.PIP_JSON
    seen = parse_text(text)
    assert (seen.find("torch.build"), seen.exhaustive) == ("cpu", ["packages"])
    outdated = json.dumps([entry | {"latest_version": "9"} for entry in entries])
    assert parse_text(outdated).exhaustive == []


def test_json_of_another_kind_is_none() -> None:
    assert detect("[1, 2]") is None
    assert detect('[{"a": 1}]') is None
    with pytest.raises(InputError):
        parse_text('[{"name": 1, "version": "2"}]')


def test_unknown_text_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError) as caught:
        parse_text("Dear all, my training fails. Best regards")
    assert "collect_env" in (caught.value.hint or "")
