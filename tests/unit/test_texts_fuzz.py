"""Whatever a text holds: facts, or one refusal with words."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from envlock.errors import InputError
from envlock.targets.texts import detect, parse_text
from tests.unit.test_texts_collect_env import NEW_VLLM, ROCM, WHOLE, WINDOWS_FRENCH
from tests.unit.test_texts_conda import ENV, LIST
from tests.unit.test_texts_lock_files import POETRY, PYLOCK, UV
from tests.unit.test_texts_pip_lists import COLUMNS, FREEZE, LOCKED

TEXTS = [
    WHOLE,
    NEW_VLLM,
    ROCM,
    WINDOWS_FRENCH,
    ENV,
    LIST,
    POETRY,
    PYLOCK,
    UV,
    COLUMNS,
    FREEZE,
    LOCKED,
]
PIECES = sorted({line for text in TEXTS for line in text.splitlines()})

noise = (
    st.text(max_size=30)
    | st.sampled_from(PIECES)
    | st.sampled_from([":", "==", "\n", "GPU 0: ", "[pip3] "])
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 60)))
        text = text[:start] + draw(noise) + text[end:]
    return text


@settings(max_examples=300, deadline=None)
@given(damaged())
def test_damaged_texts_are_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_text(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(noise, max_size=12).map("\n".join))
def test_lines_in_any_order_are_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        if detect(text) is not None:
            parse_text(text)
