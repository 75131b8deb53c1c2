"""What leads, what folds, what counts; broken rules; the two sides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envlock.diff import judge
from envlock.diff.judge import Status, judge_one, judge_pair
from envlock.findings import Severity, Side
from envlock.lock.observation import Observation
from envlock.rules.base import Env, Fault, Pair, Rule, UndecidedError, check, difference
from tests.unit.envs import Facts, codes, env, lead, loud, one, package, pair, torch

RECORD = "sha256:" + "0" * 64


def cuda_env(version: str, cuda: str, triton: str, nvidia: dict[str, str]) -> Facts:
    """As a capture sees it: the metadata has no local tag, the wheels carry the CUDA major."""
    packages = {f"nvidia-{name}": package(v) for name, v in nvidia.items()}
    packages |= {
        "numpy": package("1.26.4"),
        "torch": package(version.partition("+")[0]),
        "triton": package(triton),
    }
    major = cuda.partition(".")[0]
    library = {"path_class": "wheel", "version": cuda}
    return {
        **torch(version, cuda),
        "python/version": "3.11.2",
        "python/abi": "cp311",
        "cudnn/loaded": nvidia[f"cudnn-cu{major}"],
        "nccl/loaded": nvidia[f"nccl-cu{major}"],
        "packages": packages,
        "libraries": {f"libcudart.so.{major}": library},
        "exhaustive": ["packages", "libraries"],
    }


TORCH_2_3_CU121 = cuda_env(
    "2.3.0+cu121",
    "12.1",
    "2.3.0",
    {"cudnn-cu12": "8.9.2.26", "nccl-cu12": "2.20.5", "cublas-cu12": "12.1.3.1"},
)
TORCH_2_4_CU118 = cuda_env(
    "2.4.0+cu118",
    "11.8",
    "3.0.0",
    {"cudnn-cu11": "9.1.0.70", "nccl-cu11": "2.20.5", "cublas-cu11": "11.11.3.6"},
)
TORCH_2_3_CU118 = cuda_env(
    "2.3.0+cu118",
    "11.8",
    "2.3.0",
    {"cudnn-cu11": "8.7.0.84", "nccl-cu11": "2.20.5", "cublas-cu11": "11.11.3.6"},
)


@pytest.mark.parametrize("right", [TORCH_2_4_CU118, TORCH_2_3_CU118])
def test_another_cuda_build_is_one_error_and_everything_else_follows(right: Facts) -> None:
    judged = pair(TORCH_2_3_CU121, right)
    assert codes(judged) == ["EL201"]
    (finding,) = judged.findings
    assert finding.severity is Severity.ERROR
    assert (finding.subject, finding.left, finding.right) == (
        "torch.cuda",
        "12.1",
        right["torch/cuda"],
    )
    assert "memory" in finding.message
    assert "digits" in finding.message
    assert finding.hint == (
        "pip install torch==2.3.0+cu121 --index-url https://download.pytorch.org/whl/cu121"
    )
    folded = {f.subject for f in finding.folded}
    assert {"packages.nvidia-cublas-cu12", "packages.nvidia-nccl-cu11", "cudnn.loaded"} <= folded


@pytest.mark.parametrize("version", ["2.4.0+cu118", "2.3.0+cu118"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_build_that_left_its_companions_behind_leads_them(
    version: str,
    swapped: bool,  # noqa: FBT001
) -> None:
    """Only torch was exchanged: triton and torchvision do not fit any more, an nvcc never did."""
    vision = {"torchvision": package("0.18.0+cu121")}
    shared = {
        "toolkit/nvcc": "13.0.88",
        "packages": {**TORCH_2_3_CU121["packages"], **vision},
    }
    left = {**TORCH_2_3_CU121, **shared}
    right = {**left, **torch(version, "11.8")}
    judged = pair(right, left) if swapped else pair(left, right)
    assert [f.code for f in judged.findings if f.severity is Severity.ERROR] == ["EL201"]
    assert codes(judged)[0] == "EL201"
    if not swapped:
        folded = {f.code for f in lead(judged).folded}
        assert "EL221" in folded
        assert ("EL225" in folded) == version.startswith("2.4")


def test_a_companion_that_was_exchanged_as_well_stays_a_finding_of_its_own() -> None:
    right = {
        **TORCH_2_4_CU118,
        "packages": {**TORCH_2_4_CU118["packages"], "triton": package("2.2.0")},
    }
    judged = pair(TORCH_2_3_CU121, right)
    assert codes(judged)[:2] == ["EL201", "EL225"]


def test_a_driver_that_the_new_build_cannot_use_leads_the_build() -> None:
    driver: Facts = {"driver/version": "525.60.13"}
    left, right = {**TORCH_2_3_CU121, **driver}, {**torch("2.9.0+cu130", "13.0"), **driver}
    assert codes(pair(left, right))[0] == "EL401"


def test_a_mix_that_is_there_on_both_sides_is_not_blamed_on_the_release() -> None:
    left = {**torch("2.1.2+cpu"), "packages": {"torchvision": package("0.16.2")}}
    right = {**torch("2.2.1+cpu"), "packages": {"torchvision": package("0.17.1")}}
    linux: Facts = {"system/os": "linux", "torch/build": "cpu"}
    assert codes(pair({**left, **linux}, {**right, **linux}))[0] == "EL221"


def test_the_changes_between_the_releases_are_named_one_by_one() -> None:
    (finding,) = pair(TORCH_2_3_CU121, TORCH_2_4_CU118).findings
    changes = [f for f in finding.folded if f.code == "EL280"]
    assert any("cuDNN 8.9 to 9.1" in f.message and f.hint for f in changes)
    assert all(f.sources for f in changes)


def test_the_remedy_goes_the_other_way_in_the_other_direction() -> None:
    finding = lead(pair(TORCH_2_4_CU118, TORCH_2_3_CU121))
    assert finding.hint.startswith("pip install torch==2.4.0+cu118 ")


def test_an_environment_does_not_differ_from_itself() -> None:
    judged = pair(TORCH_2_3_CU121, TORCH_2_3_CU121)
    assert judged.findings == ()
    assert judged.checked > 20


def test_what_no_rule_knows_is_still_said() -> None:
    judged = pair({"system/kernel": "6.1.0"}, {"system/kernel": "6.8.0"})
    assert [(f.code, f.severity, f.subject) for f in judged.findings] == [
        ("EL690", Severity.INFO, "system.kernel")
    ]


def test_every_compared_section_has_a_family() -> None:
    from envlock.diff.compare import _fields  # noqa: PLC0415
    from envlock.rules.plain import BY_SECTION  # noqa: PLC0415

    assert set(_fields(Observation)) == set(BY_SECTION)


OLD_DRIVER: Facts = {**torch("2.3.0+cu121", "12.1"), "driver/version": "470.182.03"}
NEW_DRIVER: Facts = {**torch("2.3.0+cu121", "12.1"), "driver/version": "550.54.15"}


def test_a_fault_of_the_right_side_leads() -> None:
    finding = lead(pair(NEW_DRIVER, OLD_DRIVER))
    assert (finding.code, finding.severity) == ("EL401", Severity.ERROR)
    assert {e.side for e in finding.evidence} == {Side.RIGHT}
    assert (finding.left, finding.right) == ("550.54.15", "470.182.03")


def test_a_fault_of_the_left_side_alone_is_cured() -> None:
    finding = next(f for f in pair(OLD_DRIVER, NEW_DRIVER).findings if f.code == "EL401")
    assert finding.severity is Severity.INFO
    assert finding.message.startswith("Only the reference shows this")


def test_the_same_fault_on_both_sides_explains_nothing() -> None:
    left, right = {**OLD_DRIVER, "system/cores": 8}, {**OLD_DRIVER, "system/cores": 16}
    finding = lead(pair(left, right))
    assert (finding.code, finding.severity) == ("EL401", Severity.INFO)
    assert finding.message.startswith("On both sides")


def test_equal_environments_do_not_differ_whatever_their_faults() -> None:
    assert pair(OLD_DRIVER, OLD_DRIVER).findings == ()


def test_a_fault_of_both_sides_with_other_values_stays_a_fault() -> None:
    other = {**torch("2.4.0+cu124", "12.4"), "driver/version": "470.182.03"}
    assert lead(pair(OLD_DRIVER, other)).code == "EL401"


def test_unknown_on_one_side_is_named_counted_and_no_warning() -> None:
    judged = pair(
        {"driver/version": "550.54.15", **torch("2.3.0+cu121", "12.1")},
        torch("2.3.0+cu121", "12.1"),
    )
    assert loud(judged) == []
    assert "driver" in judged.unknown
    finding = next(f for f in judged.findings if f.code == "EL901")
    assert finding.subject == "driver"


def test_unknown_where_an_error_needs_it_is_a_warning() -> None:
    judged = pair(
        torch("2.3.0+cu121", "12.1"), {"torch/version": "2.3.0", "torch/release": "2.3.0"}
    )
    assert [(f.code, f.subject) for f in loud(judged)] == [("EL902", "torch.cuda")]


def test_nothing_known_is_nothing_checked() -> None:
    assert pair({}, {}).checked == 0
    assert one({}).checked == 0


def test_every_check_has_an_outcome() -> None:
    judged = one(OLD_DRIVER)
    outcomes = {o.code: o for o in judged.outcomes}
    assert outcomes["EL401"].status is Status.FAILED
    assert outcomes["EL513"].status is Status.NOT_CHECKABLE
    assert "gpus" in outcomes["EL513"].why
    assert judged.checked == sum(
        o.status in {Status.PASSED, Status.FAILED} for o in judged.outcomes
    )


def test_a_doctor_knows_at_least_forty_checks() -> None:
    assert len(one({}).outcomes) >= 40


@check("EL997", Severity.ERROR)
def broken(env: Env) -> Iterator[Fault]:
    """A rule that fails half-way."""
    yield Fault(subject="torch.cuda", message=env.find("torch.cuda"))
    raise ZeroDivisionError


@difference("EL998", Severity.ERROR)
def broken_pair(pair: Pair) -> Iterator[Fault]:
    """A rule on two sides that fails."""
    raise LookupError(pair.left.side)


@check("EL999", Severity.WARNING)
def working(env: Env) -> Iterator[Fault]:
    """A rule that works."""
    yield Fault(subject="python.version", message=env.need("python.version"))


@pytest.fixture
def three_rules(monkeypatch: pytest.MonkeyPatch) -> tuple[Rule, ...]:
    rules = (broken, broken_pair, working)
    monkeypatch.setattr(judge, "RULES", rules)
    return rules


def test_a_rule_that_crashes_is_reported_and_the_others_run(three_rules: object) -> None:
    side = env({"python/version": "3.11", "torch/cuda": "12.1"})
    found = {f.code: f for f in judge_one(side).findings}
    assert set(found) == {"EL991", "EL997", "EL999"}
    assert "ZeroDivisionError" in found["EL991"].message
    assert found["EL991"].severity is Severity.WARNING  # a bug never fails a check


def test_a_pair_rule_that_crashes_is_reported(three_rules: object) -> None:
    side = env({"python/version": "3.11", "torch/cuda": "12.1"})
    found = judge_pair(side, side).findings
    assert [f.subject for f in found if f.code == "EL991"] == ["EL997", "EL998"]


def test_a_rule_that_cannot_decide_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    @check("EL996", Severity.ERROR)
    def undecided(env: Env) -> Iterator[Fault]:
        """Never decides."""
        raise UndecidedError("driver.version", "not recorded")

    monkeypatch.setattr(judge, "RULES", (undecided,))
    judged = judge_one(env({}))
    assert judged.findings == ()
    assert judged.checked == 0
    assert judged.unknown == ("driver.version",)


NUMPY: Facts = {
    "packages": {"numpy": package("1.26.4", record=RECORD)},
    "torch/switches": {"matmul_allow_tf32": False},
    "env": {},
    "exhaustive": ["packages", "env"],
}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"packages": {"numpy": package("1.26.3", record=RECORD)}}, "EL113"),
        ({"packages": {}}, "EL111"),
        ({"packages": {**NUMPY["packages"], "evil": package("1.0")}}, "EL112"),
        ({"torch/switches": {"matmul_allow_tf32": True}}, "EL705"),
        ({"env": {"LD_LIBRARY_PATH": "/opt/lib"}}, "EL709"),
        ({"env": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}}, "EL701"),
        ({"env": {"NCCL_BUFFSIZE": "1"}}, "EL708"),
    ],
)
def test_a_rebuild_must_be_exact(change: Facts, code: str) -> None:
    changed = {**NUMPY, **change}
    exact = pair(NUMPY, changed, exact=True)
    assert [(f.code, f.severity) for f in loud(exact)] == [(code, Severity.ERROR)]
    relaxed = pair(NUMPY, changed)
    assert all(f.severity is not Severity.ERROR for f in relaxed.findings)


def test_a_machine_may_differ_from_the_locks() -> None:
    left = {"driver/version": "550.54.15", "system/glibc": "2.36", "system/kernel": "6.1"}
    right = {"driver/version": "535.54.03", "system/glibc": "2.39", "system/kernel": "6.8"}
    assert loud(pair(left, right, exact=True)) == []


def test_evidence_says_where_a_fact_was_read() -> None:
    facts = {**OLD_DRIVER, "read_from": {"driver.version": "/proc/driver/nvidia/version"}}
    finding = lead(one(facts))
    read = {e.path: e.read_from for e in finding.evidence}
    assert read["driver.version"] == "/proc/driver/nvidia/version"
