"""Python, distributions, their files and their sources: what trips each detector, what must not."""

from __future__ import annotations

from typing import Any

import pytest

from envlock.findings import Severity
from tests.unit.envs import ABSENT, Facts, check_lead, codes, lead, loud, one, package, pair, torch

A, B = ("sha256:" + c * 64 for c in "ab")


def table(**entries: dict[str, Any]) -> Facts:
    return {
        "packages": {name.replace("_", "-"): entry for name, entry in entries.items()},
        "exhaustive": ["packages"],
    }


LOCAL_FILE = {"kind": "archive", "url": ABSENT}
UNMET = {"distribution": "transformers", "requirement": "tokenizers>=0.19", "installed": "0.15.2"}

TRIPS: dict[str, tuple[Facts, str, Severity]] = {
    "32 bits": ({"python/bits": 32, "python/version": "3.10.1"}, "EL103", Severity.ERROR),
    "an Intel Python on Apple Silicon": (
        {"python/arch": "x86_64", "system/arch": "arm64", "system/os": "darwin"},
        "EL104",
        Severity.WARNING,
    ),
    "an x86 Python on an ARM server": (
        {"python/arch": "amd64", "system/arch": "aarch64"},
        "EL104",
        Severity.WARNING,
    ),
    "torch in the user's site": (
        {"torch/version": "1.13.1", "torch/path_class": "user-site"},
        "EL105",
        Severity.ERROR,
    ),
    "torch on PYTHONPATH": (
        {"torch/version": "2.1.0", "torch/path_class": "pythonpath"},
        "EL105",
        Severity.ERROR,
    ),
    "numpy from the user's site in a venv": (
        {"python/environment": "venv", **table(numpy=package("1.24.0", path_class="user-site"))},
        "EL106",
        Severity.WARNING,
    ),
    "no wheel for a new Python": (
        {
            "python/version": "3.14.0",
            "system/os": "linux",
            "unmet": [{"distribution": "x", "requirement": "torch==2.5.1", "installed": ABSENT}],
        },
        "EL107",
        Severity.ERROR,
    ),
    "no wheel for Windows": (
        {
            "python/version": "3.13.1",
            "system/os": "windows",
            "unmet": [{"distribution": "x", "requirement": "torch == 2.4.1", "installed": ABSENT}],
        },
        "EL107",
        Severity.ERROR,
    ),
    "a patched file": (
        {"files": {"checked": 90, "altered": {"transformers/trainer.py": "transformers"}}},
        "EL116",
        Severity.ERROR,
    ),
    "a file that is gone": (
        {"files": {"checked": 90, "missing": {"numpy/core.py": "numpy"}}},
        "EL117",
        Severity.ERROR,
    ),
    "a module copied in by hand": (
        {"files": {"checked": 90, "unowned": {"torch/extra.py": "torch"}}},
        "EL122",
        Severity.WARNING,
    ),
    "a library dropped beside the real one": (
        {
            "files": {
                "checked": 90,
                "unowned": {"torch/lib/libnccl.so.2": "torch", "a.txt": "torch"},
            }
        },
        "EL122",
        Severity.WARNING,
    ),
    "data that a program downloaded": (
        {"files": {"checked": 90, "unowned": {"nltk/corpora/words.zip": "nltk"}}},
        "EL122",
        Severity.INFO,
    ),
    "two owners of one module": (
        {"contested": {"cv2/__init__.pyx": ["opencv-python", "opencv-python-headless"]}},
        "EL118",
        Severity.WARNING,
    ),
    "installed twice": ({"duplicates": {"numpy": ["1.26.4", "2.0.1"]}}, "EL119", Severity.WARNING),
    "metadata without content": (
        {"broken": [{"folder": "~orch-2.3.0.dist-info", "reason": "no METADATA"}]},
        "EL120",
        Severity.WARNING,
    ),
    "a requirement that is not met": ({"unmet": [UNMET]}, "EL121", Severity.WARNING),
    "a pair that was never published": (
        {
            "unmet": [
                {"distribution": "x", "requirement": "torch==2.7.0+cu124", "installed": ABSENT}
            ]
        },
        "EL921",
        Severity.ERROR,
    ),
    "an index line in the requirements": (
        {"indexes/options": ["-i"], **table(torch=package("2.1.0+cu118"))},
        "EL922",
        Severity.ERROR,
    ),
    "conda's file URLs": (
        table(six=package("1.16.0", source={"kind": "conda", "url": ABSENT})),
        "EL923",
        Severity.WARNING,
    ),
    "a wheel of one machine": (
        table(mine=package("1.0", source=LOCAL_FILE)),
        "EL923",
        Severity.WARNING,
    ),
    "a development version from nowhere": (
        table(apex=package("0.2.dev3", source=ABSENT)),
        "EL924",
        Severity.WARNING,
    ),
    "a commit in the version, and no source": (
        table(mine=package("0.3+g1a2b3c4", source=ABSENT)),
        "EL924",
        Severity.WARNING,
    ),
    "editable": (
        table(mine=package("0.1", source={"kind": "editable"})),
        "EL925",
        Severity.WARNING,
    ),
    "numpy 2 beside an old scipy": (
        table(numpy=package("2.1.0"), scipy=package("1.12.0")),
        "EL132",
        Severity.ERROR,
    ),
}

NEAR_MISSES: dict[str, tuple[Facts, str]] = {
    "numpy 2 beside a new scipy": (table(numpy=package("2.1.0"), scipy=package("1.14.0")), "EL132"),
    "numpy 1 beside an old scipy": (
        table(numpy=package("1.26.4"), scipy=package("1.12.0")),
        "EL132",
    ),
    "64 bits": ({"python/bits": 64}, "EL103"),
    "two names of one processor": ({"python/arch": "AMD64", "system/arch": "x86_64"}, "EL104"),
    "32-bit Python on a 64-bit machine is another finding": (
        {"python/arch": "i686", "system/arch": "x86_64"},
        "EL104",
    ),
    "torch in the environment": ({"torch/version": "2.3.0", "torch/path_class": "wheel"}, "EL105"),
    "a system Python uses the user's site": (
        {"python/environment": "system", **table(numpy=package("1.24.0", path_class="user-site"))},
        "EL106",
    ),
    "a Python with a wheel": (
        {
            "python/version": "3.12.1",
            "system/os": "linux",
            "unmet": [{"distribution": "x", "requirement": "torch==2.5.1", "installed": ABSENT}],
        },
        "EL107",
    ),
    "whole files": ({"files": {"checked": 90}}, "EL116"),
    "only files that were installed": ({"files": {"checked": 90, "unowned": {}}}, "EL122"),
    "files that nobody looked for": ({"files": {"checked": 90}}, "EL122"),
    "tests that two distributions share": ({"contested": {"tests/test_a.py": ["a", "b"]}}, "EL118"),
    "one licence file": ({"contested": {"LICENSE.txt": ["a", "b"]}}, "EL118"),
    "installed once": ({"duplicates": {}}, "EL119"),
    "whole metadata": ({"broken": []}, "EL120"),
    "no requirement open": ({"unmet": []}, "EL121"),
    "a published pair": (
        {
            "unmet": [
                {"distribution": "x", "requirement": "torch==2.6.0+cu124", "installed": ABSENT}
            ]
        },
        "EL921",
    ),
    "an extra index": (
        {"indexes/options": ["--extra-index-url"], **table(torch=package("2.1.0+cu118"))},
        "EL922",
    ),
    "an index line without local versions": (
        {"indexes/options": ["--index-url"], **table(numpy=package("2.0"))},
        "EL922",
    ),
    "an archive with an address": (
        table(
            mine=package("1.0", source={"kind": "archive", "url": "https://example.org/mine.whl"})
        ),
        "EL923",
    ),
    "a nightly of an index": (
        table(torch=package("2.6.0.dev20241112+cu124", source=ABSENT)),
        "EL924",
    ),
    "a commit that is recorded": (
        table(mine=package("0.3.dev1", source={"kind": "vcs", "commit": "a" * 40})),
        "EL924",
    ),
    "a source that nobody looked for": (table(mine=package("0.3.dev1")), "EL924"),
}


@pytest.mark.parametrize("name", TRIPS)
def test_trips(name: str) -> None:
    facts, code, severity = TRIPS[name]
    assert check_lead(one(facts), code, severity).hint


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    facts, code = NEAR_MISSES[name]
    assert code not in codes(one(facts))


def test_an_edit_names_distribution_and_path() -> None:
    facts = {"files": {"checked": 9, "altered": {"torch/optim/adamw.py": "torch"}}}
    finding = lead(one(facts))
    assert finding.subject == "packages.torch"
    assert "torch/optim/adamw.py" in finding.message


def test_files_of_two_distributions_are_two_findings() -> None:
    facts = {
        "files": {"checked": 9, "altered": {"a.py": "x", "b.py": "y"}, "missing": {"c.py": "z"}}
    }
    assert codes(one(facts)) == ["EL116", "EL116", "EL117"]


DIFFERENCES: dict[str, tuple[Facts, Facts, str, Severity]] = {
    "another Python": (
        {"python/version": "3.10.13"},
        {"python/version": "3.11.7"},
        "EL101",
        Severity.WARNING,
    ),
    "a patch of Python": (
        {"python/version": "3.11.2"},
        {"python/version": "3.11.7"},
        "EL101",
        Severity.INFO,
    ),
    "a free-threaded Python": (
        {"python/version": "3.13.0", "python/abi": "cp313"},
        {"python/version": "3.13.0", "python/abi": "cp313t"},
        "EL102",
        Severity.WARNING,
    ),
    "another machine": (
        {"system/arch": "x86_64"},
        {"system/arch": "aarch64"},
        "EL604",
        Severity.WARNING,
    ),
    "the same version, other content": (
        table(numpy=package("1.26.4", record=A)),
        table(numpy=package("1.26.4", record=B)),
        "EL114",
        Severity.ERROR,
    ),
    "another commit": (
        table(mine=package("0.1", source={"kind": "vcs", "commit": "a" * 40})),
        table(mine=package("0.1", source={"kind": "vcs", "commit": "b" * 40})),
        "EL115",
        Severity.WARNING,
    ),
    "editable on one side": (
        table(mine=package("0.1", source={"kind": "index"})),
        table(mine=package("0.1", source={"kind": "editable"})),
        "EL115",
        Severity.WARNING,
    ),
    "numpy's major": (
        table(numpy=package("1.26.4")),
        table(numpy=package("2.0.1")),
        "EL131",
        Severity.WARNING,
    ),
    "numpy's minor": (
        table(numpy=package("1.26.4")),
        table(numpy=package("1.25.0")),
        "EL113",
        Severity.INFO,
    ),
    "missing": (table(scipy=package("1.13.0")), table(), "EL111", Severity.INFO),
    "added": (table(), table(scipy=package("1.13.0")), "EL112", Severity.INFO),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_differences(name: str) -> None:
    left, right, code, severity = DIFFERENCES[name]
    check_lead(pair(left, right), code, severity)


def test_compiled_content_differs_with_the_platform() -> None:
    compiled, pure = ["cp311-cp311-linux_x86_64"], ["py3-none-any"]
    left = {
        "python/abi": "cp311",
        **table(
            numpy=package("1.26.4", record=A, tags=compiled),
            six=package("1.16.0", record=A, tags=pure),
        ),
    }
    right = {
        "python/abi": "cp312",
        **table(
            numpy=package("1.26.4", record=B, tags=compiled),
            six=package("1.16.0", record=B, tags=pure),
        ),
    }
    found = {f.subject: f.severity for f in pair(left, right).findings if f.code == "EL114"}
    assert found == {"packages.numpy": Severity.INFO, "packages.six": Severity.ERROR}


def test_a_list_of_versions_says_nothing_about_content_or_absence() -> None:
    left = table(numpy=package("1.26.4", record=A), scipy=package("1.13.0", record=A))
    judged = pair(left, {"packages": {"numpy": package("1.26.4")}})
    assert loud(judged) == []
    assert {"packages.numpy.record", "packages.scipy"} <= set(judged.unknown)


def test_torch_from_the_user_site_explains_its_version() -> None:
    left = torch("2.3.0+cu121", "12.1", path_class="wheel")
    right = torch("1.13.1+cu117", "11.7", path_class="user-site")
    judged = pair(left, right)
    assert [f.code for f in loud(judged)] == ["EL105"]
