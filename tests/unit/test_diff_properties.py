"""What holds for any two observations. ENVLOCK_EXAMPLES sets how many pairs are tried."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envlock.diff.compare import DeltaKind, compare
from envlock.diff.judge import judge_one, judge_pair
from envlock.lock.observation import Observation, Unknown
from envlock.rules.registry import all_codes
from tests.unit.envs import ABSENT

EXAMPLES = int(os.environ.get("ENVLOCK_EXAMPLES", "100"))
settings.register_profile(
    "pairs",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SETTINGS = settings.get_profile("pairs")

TEXTS = [
    "2.3.0+cu121",
    "2.4.0",
    "12.1",
    "525",
    "cu118",
    "8.6",
    "sm_80",
    "",
    "[N/A]",
    "\x1b[31m",
    "a:b:c",
]
VERSIONS = [
    "2.3.0+cu121",
    "2.4.0+cu118",
    "2.0.0.dev20230227",
    "1.13",
    "12.1",
    "11.8",
    "13.0",
    "x",
    "2.x",
]
NAMES = [
    "torch",
    "numpy",
    "triton",
    "torchvision",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "vllm",
    "a.b",
]
PATH_CLASSES = ["wheel", "user-site", "conda", "ld-library-path", "system"]

text = st.sampled_from(TEXTS) | st.text(max_size=12)
version = st.sampled_from(VERSIONS)
number = st.integers(min_value=0, max_value=2**40)
unknown = st.just({"unknown": "not looked for"})
absent = st.just(ABSENT)


def fact(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return value | absent | unknown


def section(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    present = st.fixed_dictionaries({}, optional={k: fact(v) for k, v in fields.items()})
    return fact(present)


def table(keys: list[str], value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(keys), value, max_size=4)


BOOL = st.booleans()
SMALL = st.integers(min_value=0, max_value=128)
WHERE = st.sampled_from(PATH_CLASSES)
RECORD = st.sampled_from(["sha256:" + c * 64 for c in "01"])
SWITCHES = st.fixed_dictionaries(
    {},
    optional={
        "matmul_allow_tf32": fact(BOOL),
        "deterministic_algorithms": fact(BOOL),
        "float32_matmul_precision": fact(text),
    },
)
BUILT = st.fixed_dictionaries({}, optional={"torch": fact(version), "cuda": fact(version)})
SOURCE = st.fixed_dictionaries(
    {"kind": st.sampled_from(["index", "vcs", "editable", "archive", "conda"])},
    optional={"url": fact(text), "commit": fact(text)},
)
PACKAGE = st.fixed_dictionaries(
    {},
    optional={
        "version": fact(version | text),
        "record": fact(RECORD),
        "source": fact(SOURCE),
        "path_class": fact(WHERE),
        "built_for": fact(BUILT),
        "tags": fact(st.lists(text, max_size=2)),
    },
)
GPU = st.fixed_dictionaries(
    {},
    optional={
        "name": fact(st.sampled_from(["NVIDIA GeForce RTX 4090", "Tesla T4", "A100"]) | text),
        "compute_capability": fact(st.sampled_from(["8.6", "6.1", "12.0", "gfx1010"]) | text),
        "memory_bytes": fact(number),
        "used_bytes": fact(number),
        "mig": fact(BOOL),
        "ecc_uncorrected": fact(SMALL),
    },
)
COPY = st.fixed_dictionaries({"path_class": WHERE}, optional={"version": fact(version)})
LIBRARY = st.fixed_dictionaries(
    {},
    optional={
        "path_class": fact(WHERE),
        "version": fact(version),
        "shadowed": st.lists(COPY, max_size=2),
    },
)
SONAME = st.fixed_dictionaries(
    {"needed_by": st.lists(text, max_size=2)},
    optional={"path_class": fact(WHERE), "os_package": fact(text)},
)
COMPONENT = {"loaded": version, "compiled": version, "path_class": WHERE}
UNMET = st.fixed_dictionaries(
    {
        "distribution": st.sampled_from(NAMES),
        "requirement": st.sampled_from(["triton==3.0.0", "torch==2.6.0+cu121", "cudnn>=9"]) | text,
        "installed": fact(text),
    }
)
VARIABLES = ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_ALGO", "X"]
TABLES = ["packages", "env", "libraries", "sonames", "contested", "conda", "gpus"]

OBSERVATIONS = st.fixed_dictionaries(
    {},
    optional={
        "python": section(version=version, abi=text, bits=SMALL, arch=text, user_site=BOOL),
        "torch": section(
            version=version,
            release=version,
            local=text,
            build=st.sampled_from(["cuda", "cpu", "rocm"]),
            cuda=version,
            hip=version,
            git=text,
            cxx11_abi=BOOL,
            path_class=WHERE,
            importable=BOOL,
            cuda_available=BOOL,
            arch_list=st.lists(st.sampled_from(["sm_80", "compute_90", "gfx900", "?"]), max_size=3),
            switches=SWITCHES,
        ),
        "cudnn": section(**COMPONENT),
        "nccl": section(**COMPONENT),
        "toolkit": section(nvcc=version, system_cuda=version, c_compiler=text),
        "driver": section(version=version, kernel_module=version, cuda=version, compat=version),
        "gpus": fact(st.lists(GPU, max_size=3)),
        "system": section(os=text, arch=text, glibc=version, wsl=BOOL, container=text),
        "limits": section(shm_bytes=number, cgroup_memory_bytes=number, open_files=number),
        "indexes": section(hosts=st.lists(text, max_size=2), options=st.lists(text, max_size=2)),
        "env": fact(table(VARIABLES, fact(text))),
        "packages": fact(table(NAMES, PACKAGE)),
        "conda": fact(
            table(
                ["pytorch", "mkl", "torchvision"],
                section(version=version, build=text).filter(
                    lambda entry: "absent" not in entry and "unknown" not in entry
                ),
            )
        ),
        "libraries": fact(table(["libcudnn.so.9", "libnccl.so.2"], LIBRARY)),
        "sonames": fact(table(["libGL.so.1", "libcuda.so.1"], SONAME)),
        "contested": fact(
            table(["nvidia/nccl/lib/libnccl.so.2", "a.py"], st.lists(text, min_size=2, max_size=3))
        ),
        "duplicates": fact(table(NAMES, st.lists(text, max_size=2))),
        "unmet": fact(st.lists(UNMET, max_size=2)),
        "files": fact(
            st.fixed_dictionaries({"checked": SMALL}, optional={"altered": table(["x.py"], text)})
        ),
        "exhaustive": st.lists(st.sampled_from(TABLES), unique=True),
        "set_by_envlock": st.lists(st.sampled_from(["limits", "env.X", "torch.cuda"]), unique=True),
    },
).map(Observation.read)

FLIPPED = {
    DeltaKind.CHANGED: DeltaKind.CHANGED,
    DeltaKind.ONLY_LEFT: DeltaKind.ONLY_RIGHT,
    DeltaKind.ONLY_RIGHT: DeltaKind.ONLY_LEFT,
}


@SETTINGS
@given(OBSERVATIONS)
def test_nothing_differs_from_itself(observation: Observation) -> None:
    assert compare(observation, observation).deltas == ()
    assert judge_pair(observation, observation).findings == ()


@SETTINGS
@given(OBSERVATIONS, OBSERVATIONS)
def test_a_comparison_is_symmetric_up_to_direction(left: Observation, right: Observation) -> None:
    forth, back = compare(left, right), compare(right, left)
    assert (forth.equal, forth.unknown, forth.one_sided) == (
        back.equal,
        back.unknown,
        back.one_sided,
    )
    assert [(d.subject, d.left, d.right, d.kind) for d in forth.deltas] == [
        (d.subject, d.right, d.left, FLIPPED[d.kind]) for d in back.deltas
    ]


@SETTINGS
@given(OBSERVATIONS, OBSERVATIONS)
def test_unknown_never_differs_and_never_equals(left: Observation, right: Observation) -> None:
    found = compare(left, right)
    for delta in found.deltas:
        assert not isinstance(left.find(delta.subject), Unknown)
        assert not isinstance(right.find(delta.subject), Unknown)
    assert not {d.subject for d in found.deltas} & set(found.unknown)


@SETTINGS
@given(OBSERVATIONS, OBSERVATIONS, st.booleans())
def test_no_rule_crashes_and_every_delta_is_told(
    left: Observation,
    right: Observation,
    exact: bool,  # noqa: FBT001
) -> None:
    judged = judge_pair(left, right, exact=exact)
    assert [f.message for f in judged.findings if f.code == "EL991"] == []
    told = list(judged.findings)
    for finding in told:
        told.extend(finding.folded)
    assert {f.code for f in told} <= set(all_codes())
    spoken = {f.subject for f in told} | {e.path for f in told for e in f.evidence}
    for delta in compare(left, right).deltas:
        assert any(delta.subject == s or delta.subject.startswith(f"{s}.") for s in spoken)


@SETTINGS
@given(OBSERVATIONS)
def test_no_check_crashes_on_one_environment(observation: Observation) -> None:
    judged = judge_one(observation)
    assert [f.message for f in judged.findings if f.code == "EL991"] == []
    ranks = [f.severity.rank for f in judged.findings]
    assert ranks == sorted(ranks)
