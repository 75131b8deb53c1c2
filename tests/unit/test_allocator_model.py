"""Known answers of the allocator model, and what must hold for any run of it."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from envlock.allocator.device import PAGE, Device
from envlock.allocator.model import (
    COMPLETE,
    CONTEXT,
    EMPTY_CACHE,
    FREE,
    RETIRE,
    Allocator,
    Operation,
    Placed,
    StartSegment,
)
from envlock.allocator.rules import KIB, MIB, Rules, rules_for
from envlock.allocator.segments import Context, OutOfDeviceMemoryError
from envlock.allocator.settings import Settings, parse_settings
from envlock.errors import InputError


def allocator(
    text: str = "", capacity: int | None = None, contexts: tuple[Context, ...] = (Context(),)
) -> Allocator:
    return Allocator(Rules(), parse_settings(text), Device(capacity), contexts)


def run(model: Allocator, *operations: Operation) -> list[tuple[int, int]]:
    """(begin, bytes) of each allocation."""
    placed: list[Placed] = []
    model.run(operations, placed)
    return [(begin, end - begin) for begin, end, _ in placed]


SIZES = [
    (1, 512, 2 * MIB),
    (512, 512, 2 * MIB),
    (513, 1024, 2 * MIB),
    (MIB, MIB, 2 * MIB),
    (MIB + 1, 1_049_088, 20 * MIB),
    (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
    (10 * MIB, 10 * MIB, 10 * MIB),
    (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
    (11 * MIB + 1, 12 * MIB, 12 * MIB),  # a rest of less than a MiB stays with its block
]
"""Requested, taken, and got from the driver, in bytes."""


@pytest.mark.parametrize(("requested", "block", "segment"), SIZES)
def test_sizes(requested: int, block: int, segment: int) -> None:
    model = allocator()
    assert run(model, (1, requested)) == [(1 << 32, block)]
    assert model.segments.reserved == segment


def test_a_rest_up_to_a_mebibyte_stays_with_a_large_block() -> None:
    model = allocator()
    assert run(model, (1, 11 * MIB)) == [(1 << 32, 12 * MIB)]
    assert run(model, (2, 11 * MIB - 512))[0][1] == 11 * MIB - 512, "a rest of more is split off"


def test_19_mib_take_a_whole_free_segment_of_20() -> None:
    model = allocator()
    run(model, (1, 2 * MIB), (1, FREE))
    assert run(model, (2, 19 * MIB)) == [(1 << 32, 20 * MIB)]
    assert model.allocated == model.segments.reserved == 20 * MIB


def test_the_small_pool_splits_down_to_512_bytes() -> None:
    model = allocator()
    (first, _), (second, _) = run(model, (1, 2 * MIB // 2 - 512), (2, 1))
    assert second == first + MIB - 512


def test_best_fit_before_first_fit_and_ties_go_to_the_lowest_address() -> None:
    model = allocator()
    blocks = run(model, *((number, 12 * MIB) for number in range(4)), (9, 16 * MIB))
    model.run([(9, FREE), (3, FREE), (1, FREE)])
    assert run(model, (10, 12 * MIB))[0] == blocks[1], "the lowest of the two that fit exactly"
    assert run(model, (11, 15 * MIB + 1))[0] == blocks[4], "the smallest that is large enough"


def test_neighbours_merge_on_both_sides_and_never_across_segments() -> None:
    model = allocator()
    run(model, *((number, 5 * MIB) for number in range(4)))
    run(model, (9, 15 * MIB))
    model.run([(0, FREE), (2, FREE), (1, FREE), (3, FREE), (9, FREE)])
    assert run(model, (10, 20 * MIB)) == [(1 << 32, 20 * MIB)]
    assert run(model, (11, 17 * MIB))[0][1] == 18 * MIB, "34 MiB free side by side are two blocks"


def test_streams_share_nothing() -> None:
    model = allocator(contexts=(Context(stream=0), Context(stream=7)))
    run(model, (1, 4 * MIB), (1, FREE), (1, CONTEXT), (2, 4 * MIB))
    assert model.segments.reserved == 40 * MIB
    run(model, (0, CONTEXT), (3, 4 * MIB))
    assert model.segments.reserved == 40 * MIB


def test_private_pools_keep_their_segments_when_the_cache_is_emptied() -> None:
    model = allocator(contexts=(Context(), Context(private_pool=1)))
    run(model, (1, 4 * MIB), (1, FREE), (1, CONTEXT), (2, 4 * MIB), (2, FREE), (0, EMPTY_CACHE))
    assert model.segments.reserved == 20 * MIB


def test_a_retired_block_is_free_when_its_kernel_ends_or_a_retry_waited() -> None:
    model = allocator(capacity=40 * MIB)
    run(model, (1, 20 * MIB), (1, RETIRE), (2, 20 * MIB))
    assert model.segments.reserved == 40 * MIB, "not reused while a kernel may write to it"
    run(model, (3, 20 * MIB), (1, COMPLETE))
    assert model.segments.retries == 1
    assert 1 not in model.live
    run(model, (3, RETIRE), (3, COMPLETE), (4, 20 * MIB))
    assert model.segments.retries == 1


def test_a_full_card_empties_the_cache_once_and_then_fails() -> None:
    model = allocator(capacity=64 * MIB)
    run(model, (1, 30 * MIB), (2, 20 * MIB), (1, FREE))
    assert run(model, (3, 40 * MIB))[0][1] == 40 * MIB
    assert (model.segments.retries, model.segments.ooms) == (1, 0)
    with pytest.raises(OutOfDeviceMemoryError) as failure:
        run(model, (4, 12 * MIB))
    assert (failure.value.block, failure.value.size) == (4, 12 * MIB)
    assert (model.segments.retries, model.segments.ooms) == (2, 1)
    assert run(model, (3, FREE), (5, 12 * MIB)), "usable after the failure"


def test_going_on_with_the_same_operations_after_a_failure() -> None:
    model = allocator(capacity=20 * MIB)
    operations = iter([(1, 4 * MIB), (2, 40 * MIB), (3, 4 * MIB)])
    with pytest.raises(OutOfDeviceMemoryError):
        model.run(operations)
    model.run(operations)
    assert set(model.live) == {1, 3}


def test_split_limit_keeps_oversize_blocks_whole_and_for_large_requests() -> None:
    model = allocator("max_split_size_mb:64")
    run(model, (1, 100 * MIB), (1, FREE))
    assert run(model, (2, 90 * MIB))[0][1] == 100 * MIB, "within 20 MiB: given whole"
    model.run([(2, FREE)])
    run(model, (3, 79 * MIB))
    assert model.segments.reserved == 180 * MIB, "more than 20 MiB over: not given"
    run(model, (4, 30 * MIB))
    assert model.segments.reserved == 210 * MIB, "nor to a request below the limit"
    wide = allocator("max_split_size_mb:64,max_non_split_rounding_mb:50")
    run(wide, (1, 100 * MIB), (1, FREE), (2, 70 * MIB))
    assert wide.segments.reserved == 100 * MIB


def test_split_limit_frees_oversize_blocks_before_the_whole_cache() -> None:
    model = allocator("max_split_size_mb:64", capacity=220 * MIB)
    run(model, (1, 100 * MIB), (2, 80 * MIB), (3, 30 * MIB), *((n, FREE) for n in (1, 2, 3)))
    run(model, (4, 120 * MIB))
    assert model.segments.retries == 0, "both oversize blocks were enough"
    assert model.segments.reserved == 150 * MIB, "and the small one stayed"


def test_garbage_is_collected_by_age_and_only_with_a_memory_limit() -> None:
    text = "garbage_collection_threshold:0.5"
    model = allocator(f"{text},per_process_memory_fraction:0.9", capacity=100 * MIB)
    run(model, (1, 30 * MIB), (1, FREE), (2, 32 * MIB), (2, FREE))
    assert model.segments.reserved == 62 * MIB
    run(model, (3, 40 * MIB))
    assert model.segments.reserved == 72 * MIB, "the 30 MiB, unused for longest, went back"
    assert model.segments.retries == 0
    unlimited = allocator(text, capacity=100 * MIB)
    run(unlimited, (1, 30 * MIB), (1, FREE), (2, 32 * MIB))
    assert unlimited.segments.reserved == 62 * MIB


def test_a_memory_fraction_limits_what_is_reserved() -> None:
    model = allocator("per_process_memory_fraction:0.5", capacity=80 * MIB)
    run(model, (1, 20 * MIB), (2, 20 * MIB))
    with pytest.raises(OutOfDeviceMemoryError):
        run(model, (3, 1))


def test_expandable_segments_grow_in_place() -> None:
    model = allocator("expandable_segments:True", capacity=1 << 30)
    (first, size), (second, _) = run(model, (1, 30 * MIB), (2, 8 * MIB))
    assert (size, second - first) == (30 * MIB, 30 * MIB)
    assert model.segments.reserved == 40 * MIB, "two pages of 20 MiB"
    run(model, (2, FREE), (3, 24 * MIB))
    assert model.live[3][0] == second, "grew at its end instead of a new segment"
    assert model.segments.reserved == 60 * MIB
    run(model, (1, FREE), (0, EMPTY_CACHE))
    assert model.segments.reserved == 40 * MIB, "the one whole page went back"
    run(model, (4, 30 * MIB))
    assert model.live[4][0] == first, "the gap is filled first"


def test_expandable_segments_split_small_rests_in_the_large_pool() -> None:
    model = allocator("expandable_segments:True")
    (first, size), (second, _) = run(model, (1, 20 * MIB - 512), (2, 2 * MIB))
    assert (size, second) == (20 * MIB - 512, first + 20 * MIB - 512)


def test_an_early_throw_leaves_the_cache_as_it_is() -> None:
    model = allocator("throw_on_cudamalloc_oom:True", capacity=64 * MIB)
    run(model, (1, 40 * MIB), (1, FREE))
    with pytest.raises(OutOfDeviceMemoryError):
        run(model, (2, 50 * MIB))
    assert (model.segments.reserved, model.segments.retries) == (40 * MIB, 0)


def test_rounding_to_divisions_of_powers_of_two() -> None:
    model = allocator("roundup_power2_divisions:4")
    assert model.round_size(1200 * KIB) == 1280 * KIB
    assert model.round_size(5 * MIB + 1) == 6 * MIB
    assert model.round_size(4 * MIB) == 4 * MIB
    assert model.round_size(2048) == 2048, "too small to be divided"
    assert model.round_size(2561) == 3072
    assert allocator().round_size(0) == 512
    old = Allocator(
        rules_for(Version("1.13")),
        Settings(divisions=(4,) * 16, roundup_bypass=16 * MIB),
        Device(),
    )
    assert old.round_size(17 * MIB + 1) == 17 * MIB + 512, "1.13: not rounded beyond a size"


def test_another_backend_is_refused() -> None:
    with pytest.raises(InputError, match="cudaMallocAsync"):
        allocator("backend:cudaMallocAsync")


def test_starting_from_segments_that_exist() -> None:
    model = allocator()
    model.restore([StartSegment(1 << 32, 20 * MIB, False, 0, [(7, 4 * MIB, 2 * MIB)])])
    assert model.segments.peak_reserved == 20 * MIB
    assert run(model, (8, 4 * MIB)) == [(1 << 32, 4 * MIB)], "the stretch before the block"
    assert run(model, (9, 14 * MIB)) == [((1 << 32) + 6 * MIB, 14 * MIB)], "and after it"
    model.run([(7, FREE)])
    assert model.allocated == 18 * MIB


OPERATIONS = st.lists(
    st.one_of(
        st.integers(1, 64 * MIB),
        st.integers(1, 4096),
        st.sampled_from(["free", "free", "free", "empty"]),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=60)
@given(
    steps=OPERATIONS,
    text=st.sampled_from(
        ["", "expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:8"]
    ),
    seed=st.integers(0, 99),
)
def test_blocks_never_overlap_and_nothing_is_lost(
    steps: list[int | str], text: str, seed: int
) -> None:
    model = allocator(text, capacity=512 * MIB)
    rng = random.Random(seed)
    alive: list[int] = []
    for number, step in enumerate(steps):
        try:
            if isinstance(step, int):
                model.run([(number, step)])
                alive.append(number)
            elif step == "empty":
                model.empty_cache()
            elif alive:
                model.run([(alive.pop(rng.randrange(len(alive))), FREE)])
        except OutOfDeviceMemoryError:
            continue
        spans = sorted((begin, end) for begin, end, _ in model.live.values())
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
        assert model.allocated <= model.segments.reserved <= 512 * MIB
        assert model.segments.reserved == model.segments.device.used
    model.run([(block, FREE) for block in alive])
    model.empty_cache()
    assert model.segments.reserved == 0
    assert model.segments.device.used == 0


def test_memory_is_linear_in_the_blocks_alive() -> None:
    def cost(alive: int, rounds: int) -> int:
        model = allocator()
        tracemalloc.start()
        for turn in range(rounds):
            model.run([(turn * alive + n, 3 * MIB + n * 512) for n in range(alive)])
            model.run([(turn * alive + n, FREE) for n in range(alive)])
        model.run([(-1 - n, 3 * MIB) for n in range(alive)])
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return used

    few = cost(200, 2)
    assert cost(200, 30) < 1.5 * few, "many allocations cost no more than few"
    assert cost(2000, 2) < 15 * few


def test_a_page_is_the_unit_of_a_card() -> None:
    card = Device(capacity=3 * PAGE)
    assert card.malloc(PAGE + 1) is not None
    assert card.malloc(PAGE + 1) is None
    assert card.malloc(PAGE) is not None
