"""PYTORCH_CUDA_ALLOC_CONF as each torch release reads it.

What releases accept was seen by giving the text to their compiled allocators.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from envlock.allocator.rules import MIB, parse_torch_release, rules_for
from envlock.allocator.settings import Settings, known_options, parse_settings, settings_text
from envlock.errors import InputError


def test_nothing_set_is_the_default() -> None:
    assert parse_settings("") == Settings()
    assert parse_settings("").is_default
    assert not parse_settings("expandable_segments:True").is_default
    assert parse_settings("pinned_use_background_threads:True").is_default


def test_several_options_with_spaces_and_a_last_comma() -> None:
    found = parse_settings(" max_split_size_mb: 128 , expandable_segments:True,", Version("2.3.0"))
    assert found.max_split == 128 * MIB
    assert found.expandable


def test_said_twice_the_last_counts() -> None:
    assert parse_settings("max_split_size_mb:64,max_split_size_mb:128").max_split == 128 * MIB


def test_every_value() -> None:
    found = parse_settings(
        "large_segment_size_mb:48,max_split_size_mb:64,max_non_split_rounding_mb:50,"
        "garbage_collection_threshold:0.8,per_process_memory_fraction:1,"
        "throw_on_cudamalloc_oom:True,expandable_segments_reserve:0.5,backend:native,"
        "pinned_num_register_threads:8"
    )
    assert found == Settings(
        large_segment=48 * MIB,
        max_split=64 * MIB,
        non_split_rounding=50 * MIB,
        gc_threshold=0.8,
        fraction=1.0,
        throw_early=True,
        address_space=0.5,
        unmodelled=("pinned_num_register_threads",),
    )


@pytest.mark.parametrize(
    ("option", "since"),
    [
        ("expandable_segments:True", "2.1.0"),
        ("release_lock_on_cudamalloc:True", "2.2.0"),
        ("max_non_split_rounding_mb:64", "2.6.0"),
        ("graph_capture_record_stream_reuse:True", "2.9.0"),
        ("per_process_memory_fraction:0.5", "2.10.0"),
        ("large_segment_size_mb:40", "2.11.0"),
        ("throw_on_cudamalloc_oom:True", "2.12.0"),
        ("pinned_max_cached_size_mb:64", "2.13.0"),
        ("expandable_segments_reserve:0.5", "2.15.0"),
    ],
)
def test_an_option_is_known_from_its_release_on(option: str, since: str) -> None:
    parse_settings(option, Version(since))
    major, minor, _ = since.split(".")
    before = Version(f"{major}.{int(minor) - 1}.9")
    with pytest.raises(InputError, match=f"it came with {major}.{minor}"):
        parse_settings(option, before)


def test_an_option_that_was_dropped() -> None:
    text = "roundup_power2_divisions:4,roundup_bypass_threshold_mb:64"
    assert parse_settings(text, Version("1.13.1")).roundup_bypass == 64 * MIB
    with pytest.raises(InputError, match=r"2\.0 dropped it"):
        parse_settings(text, Version("2.0.0"))


def test_an_unknown_option_names_itself_what_is_known_and_what_was_meant() -> None:
    with pytest.raises(InputError, match="no allocator option 'max_split_size'") as refusal:
        parse_settings("max_split_size:64", Version("2.3.0"))
    assert refusal.value.hint is not None
    assert refusal.value.hint.startswith("did you mean max_split_size_mb?")
    assert "garbage_collection_threshold" in refusal.value.hint
    assert "large_segment_size_mb" not in known_options(Version("2.3.0"))


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb",
        "max_split_size_mb:",
        "max_split_size_mb:x",
        "max_split_size_mb:12",
        "max_split_size_mb:-1",
        "max_split_size_mb:1e3",
        "max_split_size_mb:128:5",
        "max_split_size_mb:128;expandable_segments:True",
        "max_split_size_mb:128 garbage_collection_threshold:0.5",
        "max_split_size_mb:[1:2]",
        "large_segment_size_mb:10",
        "large_segment_size_mb:64,max_split_size_mb:32",
        "max_split_size_mb:32,large_segment_size_mb:64",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:0",
        "per_process_memory_fraction:1.5",
        "expandable_segments:true",
        "expandable_segments=True",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:[256:3]",
        "roundup_power2_divisions:[300:2]",
        "roundup_power2_divisions:[256:2",
        "roundup_power2_divisions:[256]",
        "backend:other",
        "expandable_segments_reserve:40G",
        "expandable_segments_reserve:0",
        ",",
        ":",
        "[",
        "x" * 5000,
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_settings(text)
    assert len(refusal.value.message) < 300


def test_divisions_for_intervals() -> None:
    found = parse_settings("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").divisions
    assert found == (*[1] * 9, 2, 4, *[8] * 5)
    assert parse_settings("roundup_power2_divisions:4").divisions == (4,) * 16
    assert parse_settings("roundup_power2_divisions:[>:8]").divisions == (8,) * 16
    assert parse_settings("roundup_power2_divisions:[64:0]").divisions[6] == 0


def test_the_variable_that_a_release_reads() -> None:
    both = {"PYTORCH_ALLOC_CONF": "new", "PYTORCH_CUDA_ALLOC_CONF": "old"}
    only_new = {"PYTORCH_ALLOC_CONF": "new"}
    assert settings_text(both, Version("2.15.0")) == "old"
    assert settings_text(only_new, Version("2.10.0")) == "new"
    assert settings_text(only_new, Version("2.9.1")) is None, "its CUDA allocator does not look"
    assert settings_text({}, Version("2.15.0")) is None
    assert settings_text({"PYTORCH_CUDA_ALLOC_CONF": ""}, Version("2.15.0")) == ""


def test_torch_releases() -> None:
    assert rules_for(parse_torch_release("2.3.0+cu121")) == rules_for(Version("2.3.1"))
    assert rules_for(parse_torch_release("2.13.0a0+gitabc")) == rules_for(Version("2.13.0"))
    assert rules_for(Version("99.0")) == rules_for(Version("2.15.0"))
    for text in ("1.12.1", "nonsense", ""):
        with pytest.raises(InputError):
            parse_torch_release(text)


@given(st.text(alphabet="aemx_:,[]>0123456789. \t", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_settings(f"max_split_size_mb:{text}")
