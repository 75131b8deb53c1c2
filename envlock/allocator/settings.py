"""PYTORCH_CUDA_ALLOC_CONF and its newer names, read as one torch release reads them.

Which option came with which release was read from the string tables of the compiled allocators;
what each accepts and refuses was seen by running them. Where torch goes on after nonsense
(``128;x`` is 128 to it), this refuses: a setting that nobody meant deserves a question.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from packaging.version import Version

from envlock.allocator.rules import MIB, NEWEST, Rules, rules_for
from envlock.errors import InputError

_INTERVALS: Final = 16
"""Doubling intervals of request sizes: 1 MiB, 2 MiB, ... and everything from 32 GiB on."""
_LONGEST: Final = 4096
"""Characters; a longer text is not an allocator setting."""
_LEAST_SEGMENT_MB: Final = 11
"""torch wants ``large_segment_size_mb`` above the 10 MiB from which requests stand alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a user set; the defaults are torch's. Sizes are bytes."""

    max_split: int | None = None
    """Blocks from this size on are neither split nor given to smaller requests."""
    non_split_rounding: int | None = None
    large_segment: int | None = None
    divisions: tuple[int, ...] = ()
    """``roundup_power2_divisions`` for each of sixteen intervals, or empty."""
    roundup_bypass: int | None = None
    """torch 1.13: larger requests are not rounded to divisions."""
    gc_threshold: float = 0.0
    """Share of the memory limit above which old cached segments are given back."""
    expandable: bool = False
    address_space: float | None = None
    """``expandable_segments_reserve`` as a share of the card."""
    fraction: float | None = None
    """The memory limit as a share of the card's memory."""
    throw_early: bool = False
    """Whether a request that the card has no room for fails before the cache is emptied."""
    backend: str = "native"
    unmodelled: tuple[str, ...] = ()
    """Options that were set and concern pinned host memory, locks or graph capture only."""

    @property
    def is_default(self) -> bool:
        """Whether every decision is made as without any setting."""
        return replace(self, unmodelled=()) == Settings()


_Value = str | tuple[tuple[str, str], ...]
"""A plain value, or the pairs of a list."""
_Apply = Callable[[Settings, _Value, Rules], Settings]


class _RefusedError(Exception):
    """What is wrong with a value, without saying of which option."""


def parse_settings(text: str, torch: Version = NEWEST) -> Settings:
    """Read a setting as this release of torch would.

    Raises InputError for an option that the release does not know (naming it and what is known),
    and for values that it refuses or would misread.
    """
    if len(text) > _LONGEST:
        raise InputError(
            f"an allocator setting of {len(text)} characters is not one",
            hint=f"write option:value, at most {_LONGEST} characters",
        )
    values = _Tokens(text).values(torch)
    rules = rules_for(torch)
    settings = Settings()
    # the segment size raises the floor of two other options, wherever it stands
    for name in sorted(values, key=lambda name: name != "large_segment_size_mb"):
        apply = _OPTIONS[name].apply
        if apply is None:
            settings = replace(settings, unmodelled=(*settings.unmodelled, name))
            continue
        try:
            settings = apply(settings, values[name], rules)
        except _RefusedError as error:
            raise InputError(
                f"{name} is {_shown(values[name])}, which torch {torch} does not take",
                hint=str(error),
            ) from error
        if settings.large_segment is not None:
            rules = replace(rules, least_option_mb=settings.large_segment // MIB)
    return settings


def settings_text(environ: Mapping[str, str], torch: Version = NEWEST) -> str | None:
    """The text that this release's CUDA allocator takes from the environment, None if unset.

    PYTORCH_ALLOC_CONF is read from 2.10 on; the older names win where several are set.
    """
    names = ["PYTORCH_CUDA_ALLOC_CONF"]
    if torch >= Version("2.10.dev0"):
        names += ["PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
    return next((environ[name] for name in names if name in environ), None)


def known_options(torch: Version) -> tuple[str, ...]:
    """The options of one release, sorted."""
    return tuple(sorted(name for name, option in _OPTIONS.items() if option.known_to(torch)))


class _Tokens:
    """The words of a setting: names, values, and the punctuation between them."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = re.findall(r"[,:\[\]]|[^,:\[\]\s]+", text)
        self._at = 0

    def values(self, torch: Version) -> dict[str, _Value]:
        """Every option and its value; said twice, the last one counts."""
        values: dict[str, _Value] = {}
        while not self._ended:
            name = self._take()
            _require_known(name, torch)
            self._expect(":", after=name)
            values[name] = self._value()
            if not self._ended:
                self._expect(",", after=name)
        return values

    @property
    def _ended(self) -> bool:
        return self._at >= len(self._tokens)

    def _take(self) -> str:
        if self._ended:
            raise InputError(
                "the allocator setting ends where a value should follow",
                hint="write option:value, several separated by commas",
            )
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, wanted: str, *, after: str) -> None:
        token = self._take()
        if token != wanted:
            raise InputError(
                f"the allocator setting has {token[:80]!r} where {wanted!r} should follow {after!r}",
                hint="write option:value, several separated by commas",
            )

    def _value(self) -> _Value:
        value = self._take()
        if value != "[":
            return value
        pairs: list[tuple[str, str]] = []
        while (key := self._take()) != "]":
            self._expect(":", after=key)
            pairs.append((key, self._take()))
            if not self._ended and self._tokens[self._at] != "]":
                self._expect(",", after=pairs[-1][1])
        return tuple(pairs)


def _require_known(name: str, torch: Version) -> None:
    known = known_options(torch)
    if name in known:
        return
    hint = f"known are {', '.join(known)}"
    when = ""
    if (option := _OPTIONS.get(name)) is not None:
        newer = torch < Version(f"{option.since}.dev0")
        when = f"; it came with {option.since}" if newer else f"; {option.until} dropped it"
    elif near := difflib.get_close_matches(name, known, n=1):
        hint = f"did you mean {near[0]}? {hint}"
    raise InputError(f"torch {torch} has no allocator option {name[:80]!r}{when}", hint=hint)


def _shown(value: _Value) -> str:
    text = value if isinstance(value, str) else f"[{','.join(f'{k}:{v}' for k, v in value)}]"
    return repr(text[:80])


def _plain(value: _Value) -> str:
    if not isinstance(value, str):
        raise _RefusedError("write one value, not a list")
    return value


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise _RefusedError("write a plain whole number")
    return int(text)


def _power_of_two(text: str) -> int:
    number = _whole(text)
    if number.bit_count() != 1:
        raise _RefusedError("write a power of two")
    return number


def _megabytes(value: _Value, least: int) -> int:
    number = _whole(_plain(value))
    if number < least:
        raise _RefusedError(f"write {least} or more")
    return number * MIB


def _share(value: _Value, *, ends: bool) -> float:
    text = _plain(value)
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,18})?|\.[0-9]{1,18}", text):
        raise _RefusedError("write a number such as 0.8")
    share = float(text)
    if not (0.0 <= share <= 1.0 if ends else 0.0 < share < 1.0):
        raise _RefusedError(f"write a number between 0 and 1{'' if ends else ', neither of them'}")
    return share


def _truth(value: _Value) -> bool:
    if value not in ("True", "False"):
        raise _RefusedError("write True or False")
    return value == "True"


def _backend(value: _Value) -> str:
    if value not in ("native", "cudaMallocAsync"):
        raise _RefusedError("write native or cudaMallocAsync")
    return _plain(value)


def _address_space(value: _Value) -> float:
    text = _plain(value)
    if text[-1] in "gG":
        raise _RefusedError("an absolute size is not modelled; write a share of the card")
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,18})?|\.[0-9]{1,18}", text) or float(text) == 0.0:
        raise _RefusedError("write a share of the card such as 0.5")
    return float(text)


def _divisions(value: _Value, rules: Rules) -> tuple[int, ...]:
    if isinstance(value, str):
        return (_power_of_two(value),) * _INTERVALS
    divisions = [0] * _INTERVALS
    last = -1
    for key, text in value:
        number = 0 if rules.zero_divisions and text == "0" else _power_of_two(text)
        if key == ">":
            begin = last + 1 if rules.rest_keeps_last else max(last, 0)
            divisions[begin:] = [number] * (_INTERVALS - begin)
            continue
        # the interval is named by its lower end in MiB
        index = min(_power_of_two(key).bit_length() - 1, _INTERVALS - 1)
        if last < 0:
            divisions[:index] = [number] * index
        divisions[index] = number
        last = index
    return tuple(divisions)


@dataclass(frozen=True, slots=True)
class _Option:
    since: str
    """The first release that knows it."""
    apply: _Apply | None = None
    """None: it changes nothing that is modelled here."""
    until: str = ""
    """The first release that does not know it any more."""

    def known_to(self, torch: Version) -> bool:
        return torch >= Version(f"{self.since}.dev0") and not (
            self.until and torch >= Version(f"{self.until}.dev0")
        )


_OPTIONS: Final[dict[str, _Option]] = {
    "max_split_size_mb": _Option(
        "1.13", lambda s, v, r: replace(s, max_split=_megabytes(v, r.least_option_mb))
    ),
    "garbage_collection_threshold": _Option(
        "1.13", lambda s, v, _: replace(s, gc_threshold=_share(v, ends=False))
    ),
    "roundup_power2_divisions": _Option(
        "1.13", lambda s, v, r: replace(s, divisions=_divisions(v, r))
    ),
    "roundup_bypass_threshold_mb": _Option(
        "1.13", lambda s, v, _: replace(s, roundup_bypass=_megabytes(v, 0)), until="2.0"
    ),
    "backend": _Option("2.0", lambda s, v, _: replace(s, backend=_backend(v))),
    "expandable_segments": _Option("2.1", lambda s, v, _: replace(s, expandable=_truth(v))),
    "release_lock_on_cudamalloc": _Option("2.2"),
    "release_lock_on_hipmalloc": _Option("2.2"),
    "pinned_use_cuda_host_register": _Option("2.2"),
    "pinned_use_hip_host_register": _Option("2.2"),
    "pinned_num_register_threads": _Option("2.2"),
    "max_non_split_rounding_mb": _Option(
        "2.6", lambda s, v, r: replace(s, non_split_rounding=_megabytes(v, r.least_option_mb))
    ),
    "pinned_use_background_threads": _Option("2.6"),
    "graph_capture_record_stream_reuse": _Option("2.9"),
    "per_process_memory_fraction": _Option(
        "2.10", lambda s, v, _: replace(s, fraction=_share(v, ends=True))
    ),
    "pinned_reserve_segment_size_mb": _Option("2.10"),
    "large_segment_size_mb": _Option(
        "2.11", lambda s, v, _: replace(s, large_segment=_megabytes(v, _LEAST_SEGMENT_MB))
    ),
    "throw_on_cudamalloc_oom": _Option("2.12", lambda s, v, _: replace(s, throw_early=_truth(v))),
    "pinned_free_catch_all": _Option("2.12"),
    "pinned_max_round_threshold_mb": _Option("2.13"),
    "pinned_max_cached_size_mb": _Option("2.13"),
    "expandable_segments_reserve": _Option(
        "2.15", lambda s, v, _: replace(s, address_space=_address_space(v))
    ),
    "expandable_segments_reserve_by_class": _Option("2.15"),
}
