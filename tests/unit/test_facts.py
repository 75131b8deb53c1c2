"""The tables: whole, sourced, consistent with each other; and the look-ups over them."""

from __future__ import annotations

import itertools
import json
from typing import Any, get_args

import pytest

from envlock import facts
from envlock.facts import versions
from envlock.facts.tables import FOLDER, Table, load, rows

TABLES = get_args(Table)


@pytest.mark.parametrize("table", TABLES)
def test_the_file_is_byte_stable(table: Table) -> None:
    text = (FOLDER / f"{table}.json").read_text(encoding="utf-8")
    dumped = json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert text == dumped


def test_every_file_is_a_table() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_says_where_it_comes_from(table: Table) -> None:
    for row in rows(table):
        assert row["source"], row
        assert all(isinstance(s, str) and s for s in row["source"]), row
        assert row["confidence"] in {"confirmed", "secondary", "unconfirmed"}, row
        assert len(row["checked"]) == 10, row


@pytest.mark.parametrize("table", TABLES)
def test_side_tables_say_it_too(table: Table) -> None:
    for name, side in load(table).items():
        if name not in {"rows", "table"}:
            for row in side if isinstance(side, list) else [side]:
                assert row["source"], row
                assert row["checked"], row


def number(text: str) -> tuple[int, ...]:
    found = versions.numbers(text)
    assert found is not None, text
    return found


def rising(values: list[tuple[int, ...]]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(values))


def test_driver_floors_never_fall_as_cuda_rises() -> None:
    releases = facts.cuda_releases()
    assert rising([number(r.cuda) for r in releases])
    assert rising([number(r.compat_floor) for r in releases if r.compat_floor])
    assert rising([number(r.toolkit_driver) for r in releases if r.toolkit_driver])


def test_the_compat_floor_is_never_above_the_toolkits_driver() -> None:
    for release in facts.cuda_releases():
        if release.compat_floor and release.toolkit_driver:
            assert number(release.compat_floor) <= number(release.toolkit_driver), release.cuda


def test_one_compat_floor_for_a_major() -> None:
    for major in (12, 13):
        floors = {r.compat_floor for r in facts.cuda_releases() if versions.major(r.cuda) == major}
        assert len(floors) == 1, major


def test_every_cuda_that_a_torch_names_has_a_driver_floor() -> None:
    for release in facts.torch_releases():
        build = facts.torch_build(release)
        assert build is not None
        assert facts.driver_floor(build.cuda) is not None, build.cuda
        for variant in build.variants:
            cuda = versions.cuda_of_tag(variant.tag)
            assert cuda is not None, variant.tag
            assert facts.driver_floor(cuda) is not None, cuda


def test_the_default_variant_is_one_of_the_variants_and_of_the_default_cuda() -> None:
    for release in facts.torch_releases():
        build = facts.torch_build(release)
        assert build is not None
        assert build.variant(build.default_tag) is not None
        assert versions.cuda_of_tag(build.default_tag) == build.cuda


def test_torch_releases_rise_without_a_gap_in_the_minor_releases() -> None:
    releases = [number(r) for r in facts.torch_releases()]
    assert rising(releases)
    assert len(set(releases)) == len(releases)
    minors = sorted({r[:2] for r in releases if r[0] == 2})
    assert minors == [(2, n) for n in range(len(minors))]


def test_every_target_of_a_wheel_is_a_known_architecture() -> None:
    known = {arch.sm for arch in facts.gpu_arches()}
    for release in facts.torch_releases():
        build = facts.torch_build(release)
        assert build is not None
        assert set(build.arch_list) <= known, release


def test_no_wheel_targets_an_architecture_its_cuda_does_not_know() -> None:
    by_sm = {arch.sm: arch for arch in facts.gpu_arches()}
    for release in facts.torch_releases():
        build = facts.torch_build(release)
        assert build is not None
        for sm in build.arch_list:
            arch = by_sm[sm]
            assert number(arch.min_cuda) <= number(build.cuda), (release, sm)
            if arch.last_cuda:
                assert number(build.cuda) <= number(arch.last_cuda), (release, sm)


def test_capabilities_and_names_are_unique() -> None:
    capabilities = [arch.capability for arch in facts.gpu_arches()]
    assert len(set(capabilities)) == len(capabilities)
    for arch in facts.gpu_arches():
        assert arch.sm == f"sm_{arch.capability.replace('.', '')}"


def test_ids_and_names_are_unique() -> None:
    def values(table: Table, key: str) -> list[Any]:
        return [row[key] for row in rows(table)]

    for table, key in (("behaviour_changes", "id"), ("errors", "id"), ("env_vars", "name")):
        found = values(table, key)  # type: ignore[arg-type]
        assert len(set(found)) == len(found), table


def test_a_change_leads_from_an_older_to_a_newer_version() -> None:
    for row in rows("behaviour_changes"):
        old, new = versions.parse(row["from_version"]), versions.parse(row["to_version"])
        if old is not None and new is not None and row["component"] != "flash-attn":
            assert old < new, row["id"]


@pytest.mark.parametrize(
    ("cuda", "driver", "by_minor"),
    [
        ("12.1", "525.60.13", True),
        ("12.8", "525.60.13", True),
        ("13.0", "580.65.06", True),
        ("11.8", "450.80.02", True),
        ("11.0", "450.36.06", True),
        ("10.2", "440.33", False),
        ("10.1", "418.39", False),
    ],
)
def test_the_driver_floor_is_the_one_of_minor_version_compatibility(
    cuda: str, driver: str, *, by_minor: bool
) -> None:
    floor = facts.driver_floor(cuda)
    assert floor is not None
    assert (floor.driver, floor.by_minor_compat) == (driver, by_minor)


def test_the_driver_of_a_toolkit_is_another_figure() -> None:
    assert facts.toolkit_driver("12.1") == "530.30.02"
    assert facts.toolkit_driver("12.8") == "570.26"


@pytest.mark.parametrize("cuda", ["6.5", "14.0", "twelve", ""])
def test_no_row_is_no_answer(cuda: str) -> None:
    assert facts.driver_floor(cuda) is None
    assert facts.toolkit_driver(cuda) is None


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("570.86.10", "12.8"),
        ("470.182.03", "11.4"),
        ("525.60.13", "12.0"),
        ("525", "12.0"),  # a branch: no release of it is known to be too old
        ("340.10", None),
        ("nonsense", None),
    ],
)
def test_what_a_driver_supports(driver: str, cuda: str | None) -> None:
    assert facts.cuda_of_driver(driver) == cuda


@pytest.mark.parametrize(
    ("version", "tag", "arch"),
    [
        ("2.8.0+cu128", "cu128", "sm_70"),
        ("2.8.0+cu126", "cu126", "sm_60"),
        ("2.3.0", "cu121", "sm_50"),
    ],
)
def test_a_variant_has_its_own_architectures(version: str, tag: str, arch: str) -> None:
    build = facts.torch_build(version)
    assert build is not None
    variant = build.variant(tag)
    assert variant is not None
    assert variant.arch_list is not None
    assert arch in variant.arch_list


@pytest.mark.parametrize("version", ["2.99.0", "2.0.0.dev20230227+cu118", "1.8.0", "", "x"])
def test_an_unlisted_torch_has_no_row(version: str) -> None:
    assert facts.torch_build(version) is None
    assert facts.wheel_command(version) is None


def test_the_command_names_release_tag_and_index() -> None:
    command = facts.wheel_command("2.3.0+cu121", {"torchvision": "0.18.0+cu121"})
    assert command == (
        "pip install torch==2.3.0+cu121 torchvision==0.18.0 "
        "--index-url https://download.pytorch.org/whl/cu121"
    )
    assert facts.wheel_command("2.6.0+cu121") is None  # that index ends at 2.5.1
    cpu = facts.wheel_command("2.6.0+cpu")
    assert cpu is not None
    assert cpu.endswith("/whl/cpu")


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 3090", "8.6"),
        ("Tesla V100-SXM2-32GB", "7.0"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "8.0"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA A10G", None),  # not the A10
        ("Device 66a1", None),
        ("", None),
    ],
)
def test_a_gpu_by_its_name(name: str, capability: str | None) -> None:
    arch = facts.gpu_arch_of_name(name)
    assert (arch.capability if arch else None) == capability


@pytest.mark.parametrize(
    ("capability", "arches", "fit"),
    [
        ("8.6", ["sm_80"], "native"),  # equal major, lower minor
        ("8.0", ["sm_86"], "none"),  # equal major, higher minor
        ("9.0", ["sm_80", "sm_86"], "none"),
        ("12.0", ["sm_90", "compute_90"], "ptx"),
        ("6.1", ["sm_70", "compute_90"], "none"),  # PTX never runs on older GPUs
        ("9.0", ["sm_90a"], "native"),
        ("10.0", ["sm_90a"], "none"),
        ("12.0", ["sm_90a", "compute_90a"], "none"),  # arch-specific PTX goes nowhere else
        ("gfx90a", ["gfx906", "gfx90a:sramecc+:xnack-"], "native"),
        ("gfx1010", ["gfx900", "gfx1030"], "none"),
        ("8.6", ["gfx90a"], None),
        ("8.6", [], None),
        ("unknown", ["sm_80"], None),
    ],
)
def test_what_runs_on_what(capability: str, arches: list[str], fit: str | None) -> None:
    assert facts.fit(capability, arches) == fit


@pytest.mark.parametrize(
    ("name", "torch", "minor"),
    [
        ("torchvision", "2.3.1+cu121", "0.18"),
        ("torchvision", "1.13.1", "0.14"),
        ("torchaudio", "1.13.0", "0.13"),
        ("torchaudio", "2.12.0", None),  # any release from 2.11 on
        ("torchvision", "2.99.0", None),
        ("torchvision", "2.4.0.dev20240501", None),
    ],
)
def test_companions(name: Any, torch: str, minor: str | None) -> None:
    found = facts.companion(name, torch)
    assert (found.minor if found else None) == minor


def test_a_torchvision_goes_with_one_torch() -> None:
    for name in ("torchvision", "torchaudio"):
        minors = [row[name] for row in rows("companions") if row[name]]
        assert len(set(minors)) == len(minors)


def test_floors_hold_from_a_release_on_or_up_to_one() -> None:
    assert [f.minimum for f in facts.extension_floors("flash-attn", "2.8.3")] == ["2.32"]
    assert facts.extension_floors("flash-attn", "2.7.4") == ()
    assert facts.extension_floors("flash-attn", None) == ()
    assert [f.needs for f in facts.extension_floors("scipy", "1.12.0")] == ["numpy below"]
    assert facts.extension_floors("scipy", "1.13.0") == ()


def test_changes_are_the_same_in_both_directions() -> None:
    forth = facts.changes_between("torch", "2.3.0+cu121", "2.4.0+cu118")
    assert forth == facts.changes_between("torch", "2.4.0", "2.3.0")
    assert "cudnn-9" in {c.id for c in forth}


def test_the_first_version_with_a_change_is_crossed_and_the_last_without_is_not() -> None:
    assert "cudnn-9" in {c.id for c in facts.changes_between("torch", "2.3.1", "2.4.0")}
    assert "cudnn-9" not in {c.id for c in facts.changes_between("torch", "2.4.0", "2.4.1")}
    assert facts.changes_between("torch", "2.4.0", "2.4.0+cu118") == ()
    assert facts.changes_between("torch", "nightly", "2.4.0") == ()


def test_a_change_of_another_platform_is_left_out() -> None:
    windows = {c.id for c in facts.changes_between("CUDA", "12.1", "12.4", "windows")}
    linux = {c.id for c in facts.changes_between("CUDA", "12.1", "12.4", "linux")}
    assert windows - linux == {"cuda-lazy-default-windows"}


def test_memory_comes_first_among_changes() -> None:
    kinds = [c.kind for c in facts.changes_between("torch", "1.13.1", "2.4.0")]
    assert kinds[0] == "memory"
    assert kinds.index("numerics") < kinds.index("api")


def test_a_former_name_finds_its_variable() -> None:
    old, new = facts.variable("NCCL_BLOCKING_WAIT"), facts.variable("TORCH_NCCL_BLOCKING_WAIT")
    assert old is not None
    assert old is new
    assert facts.variable("NO_SUCH_VARIABLE") is None


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "no-kernel-image",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "cuda-oom"),
        ("Found no NVIDIA driver on your system.", "no-nvidia-driver"),
    ],
)
def test_an_error_by_its_text(text: str, row: str) -> None:
    assert next(m.id for m in facts.explain_error(text)) == row


def test_an_unknown_error_has_no_row() -> None:
    assert facts.explain_error("KeyError: 'lr'") == ()


@pytest.mark.parametrize(
    ("version", "floor", "answer"),
    [
        ("525.60.12", "525.60.13", True),
        ("525.60.13", "525.60.13", False),
        ("525", "525.60.13", False),  # a branch is not below its own releases
        ("470", "525.60.13", True),
        ("2.10", "2.9", False),  # numbers, not text
        ("10.2 or later", "11.0", False),  # says less than it seems to
        ("", "11.0", False),
    ],
)
def test_below(version: str, floor: str, *, answer: bool) -> None:
    assert versions.below(version, floor) is answer


@pytest.mark.parametrize(
    ("version", "floor", "answer"),
    [
        ("525.60.13", "525.60.13", True),
        ("525.60.12", "525.60.13", False),
        ("525.60", "525.60.13", False),  # may be older as well
        ("525", "525.60.13", False),
        ("535", "525.60.13", True),
        ("525.60", "525.60.0", True),
        ("525.60.13.1", "525.60.13", True),
        ("10.2 or later", "10.0", False),
    ],
)
def test_at_least(version: str, floor: str, *, answer: bool) -> None:
    assert versions.at_least(version, floor) is answer


@pytest.mark.parametrize(
    ("tag", "cuda"),
    [("cu121", "12.1"), ("cu92", "9.2"), ("cu130", "13.0"), ("cpu", None), ("cu1", None)],
)
def test_tags(tag: str, cuda: str | None) -> None:
    assert versions.cuda_of_tag(tag) == cuda
    if cuda:
        assert versions.tag_of_cuda(cuda) == tag


@pytest.mark.parametrize(
    ("text", "major"), [("2.1.0", 2), ("2.x (latest)", 2), ("2", 2), ("20 or so", None)]
)
def test_major(text: str, major: int | None) -> None:
    assert versions.major(text) == major
