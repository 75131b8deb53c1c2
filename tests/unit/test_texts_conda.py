from __future__ import annotations

import json

import pytest

from envlock.errors import InputError
from envlock.lock.observation import ABSENT, Observation, Unknown
from envlock.targets.texts import Kind, detect, parse_text

LIST = """\
# packages in environment at /home/somebody/miniconda3/envs/train:
#
# Name                    Version                   Build  Channel
_libgcc_mutex             0.1                        main
ca-certificates           2024.3.11            h06a4308_0
libcublas                 12.1.0.26                     0    nvidia
numpy                     1.26.4          py310h5f9d8c6_0
pillow                    10.2.0          py310h5eee18b_0
python                    3.10.14              h955ad1f_0
pytorch                   2.3.0           py3.10_cuda12.1_cudnn8.9.2_0    pytorch
pytorch-cuda              12.1                 ha16c6d3_5    pytorch
tqdm                      4.66.4             pyhd8ed1ab_0    conda-forge
transformers              4.41.0                   pypi_0    pypi
"""


def is_unknown(observation: Observation, path: str) -> bool:
    return isinstance(observation.find(path), Unknown)


def test_conda_list() -> None:
    assert detect(LIST) is Kind.CONDA_LIST
    seen = parse_text(LIST)
    assert seen.exhaustive == ["conda"]
    assert seen.find("conda.libcublas.version") == "12.1.0.26"
    assert seen.find("conda.libcublas.channel") == "nvidia"
    assert seen.find("conda.cudatoolkit") == ABSENT
    assert (seen.find("python.version"), seen.find("python.abi")) == ("3.10.14", "cp310")
    assert "somebody" not in str(seen.plain())


def test_build_of_pytorch_says_cuda_and_cudnn() -> None:
    seen = parse_text(LIST)
    for path, value in {
        "torch.release": "2.3.0",
        "torch.cuda": "12.1",
        "torch.build": "cuda",
        "cudnn.compiled": "8.9.2",
    }.items():
        assert seen.find(path) == value


@pytest.mark.parametrize(
    ("build", "cuda"),
    [
        ("cuda118_py310h1234567_300", "11.8"),
        ("cuda_118py310h1234567_200", "11.8"),
        ("cuda120py310h1234567_0", "12.0"),
        ("py3.10_cuda11.3_cudnn8.3.2_0", "11.3"),
        ("py3.10_cpu_0", ABSENT),
        ("cpu_generic_py310h1234567_0", ABSENT),
        ("cpu_mkl_py310h1234567_100", ABSENT),
    ],
)
def test_builds_of_pytorch(build: str, cuda: object) -> None:
    text = LIST.replace("py3.10_cuda12.1_cudnn8.9.2_0", build)
    assert parse_text(text).find("torch.cuda") == cuda


def test_build_that_does_not_say_it_is_unknown() -> None:
    text = LIST.replace("py3.10_cuda12.1_cudnn8.9.2_0", "h1234567_0")
    assert is_unknown(parse_text(text), "torch.cuda")


def test_distributions_among_conda_packages() -> None:
    seen = parse_text(LIST)
    packages = seen.packages
    assert isinstance(packages, dict)
    assert set(packages) == {"numpy", "pillow", "torch", "tqdm", "transformers"}
    assert packages["transformers"].installer == "pip"
    assert packages["numpy"].installer == "conda"
    # conda's names are not those of distributions: what is not listed is unknown.
    assert is_unknown(seen, "packages.pandas")


def test_package_of_pip_over_one_of_conda() -> None:
    seen = parse_text(LIST + "numpy                     2.0.0                    pypi_0    pypi\n")
    assert seen.duplicates == {"numpy": ["2.0.0", "1.26.4"]}


def test_micromamba_list() -> None:
    text = """\
List of packages in environment: "/home/somebody/micromamba/envs/x"

  Name            Version      Build               Channel
─────────────────────────────────────────────────────────────
  _libgcc_mutex   0.1          conda_forge         conda-forge
  pytorch         2.5.1        cuda126_py312hd9b0d8c_309  conda-forge
"""
    assert detect(text) is Kind.CONDA_LIST
    assert parse_text(text).find("torch.cuda") == "12.6"


def test_export_and_explicit_lists() -> None:
    export = "# platform: linux-64\nnumpy=1.26.4=py310h5f9d8c6_0\ntransformers=4.41.0=pypi_0\n"
    assert detect(export) is Kind.CONDA_EXPORT
    seen = parse_text(export)
    assert seen.find("conda.numpy.version") == "1.26.4"
    assert seen.find("packages.transformers.version") == "4.41.0"
    explicit = (
        "# platform: linux-64\n@EXPLICIT\n"
        "https://conda.example/t/s3cr3t/pytorch/linux-64/pytorch-2.3.0-py3.10_cuda12.1_cudnn8.9.2_0.tar.bz2#0123\n"
        "https://conda.example/conda-forge/linux-64/libgcc-ng-13.2.0-h77fa898_7.conda\n"
    )
    seen = parse_text(explicit)
    assert seen.find("torch.cuda") == "12.1"
    assert seen.find("conda.libgcc-ng.channel") == "conda-forge"
    assert "s3cr3t" not in str(seen.plain())


def test_list_as_json() -> None:
    entry = {
        "base_url": "https://conda.example/pytorch",
        "build_number": 0,
        "build_string": "py3.10_cuda12.1_cudnn8.9.2_0",
        "channel": "pytorch",
        "dist_name": "pytorch-2.3.0-py3.10_cuda12.1_cudnn8.9.2_0",
        "name": "pytorch",
        "platform": "linux-64",
        "version": "2.3.0",
    }
    text = json.dumps([entry])
    assert detect(text) is Kind.CONDA_JSON
    assert parse_text(text).find("torch.cuda") == "12.1"
    with pytest.raises(InputError):
        parse_text(json.dumps([entry | {"version": 2}]))


ENV = """\
name: train
channels:
  - pytorch
  - conda-forge
dependencies:
  - ca-certificates=2024.3.11=h06a4308_0
  - python=3.10.14=h955ad1f_0
  - pytorch::pytorch=2.3.0=py3.10_cuda12.1_cudnn8.9.2_0
  - pip:
      - transformers==4.41.0
      - mine>=0.1
  - tqdm=4.66.4=pyhd8ed1ab_0
prefix: /home/somebody/miniconda3/envs/train
"""


def test_env_export() -> None:
    assert detect(ENV) is Kind.CONDA_ENV
    seen = parse_text(ENV)
    assert seen.exhaustive == ["conda"]
    assert seen.find("torch.cuda") == "12.1"
    assert seen.find("conda.pytorch.channel") == "pytorch"
    assert seen.find("packages.transformers.version") == "4.41.0"
    assert seen.find("packages.tqdm.version") == "4.66.4"
    assert is_unknown(seen, "packages.mine")
    assert "somebody" not in str(seen.plain())


def test_export_without_builds_has_versions() -> None:
    text = "dependencies:\n  - openssl=3.0.13\n  - python=3.10.14\n  - numpy=1.26.4\n"
    assert parse_text(text).find("conda.numpy.version") == "1.26.4"


def test_file_written_by_hand_has_none() -> None:
    text = "dependencies:\n  - python=3.10\n  - pytorch=2.3\n  - numpy\n"
    seen = parse_text(text)
    assert seen.exhaustive == []
    assert is_unknown(seen, "conda.pytorch.version")
    assert is_unknown(seen, "python.version")


@pytest.mark.parametrize(
    "line",
    ["numpy  1.26;rm  py_0", "numpy  1.26.4  py_0;x  pkgs/main", "numpy 1" + "9" * 200 + " py_0 x"],
)
def test_what_is_outside_condas_grammar_is_refused(line: str) -> None:
    with pytest.raises(InputError):
        parse_text(LIST + line + "\n")


def test_prose_around_the_list_is_left_alone() -> None:
    seen = parse_text("Here is my list, thanks 2 all:\n$ conda list\n" + LIST + "\nDone in 3 s\n")
    assert seen.find("torch.cuda") == "12.1"
