"""Blocks that share a region by the time that they are needed."""

from __future__ import annotations

import ctypes
import itertools

from geometry.core import library
from hypothesis import given, settings
from hypothesis import strategies as st

LIVES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 12), st.integers(0, 4)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
    ),
    max_size=10,
)


def pack(lives, alignment: int) -> tuple[int, list[int]]:
    numbers = [number for life in lives for number in life]
    offsets = (ctypes.c_int64 * len(lives))()
    function = library().oocdnn_testing_pack_lifetimes
    function.restype = ctypes.c_int64
    given_lives = (ctypes.c_int64 * len(numbers))(*numbers)
    total = function(given_lives, ctypes.c_int64(len(lives)), ctypes.c_int64(alignment), offsets)
    return total, list(offsets)


@settings(max_examples=500, deadline=None)
@given(lives=LIVES, alignment=st.sampled_from([1, 8]))
def test_what_is_needed_at_the_same_time_lies_apart(lives, alignment):
    total, offsets = pack(lives, alignment)
    for offset, (size, *_) in zip(offsets, lives, strict=True):
        assert offset % alignment == 0
        assert 0 <= offset <= offset + size <= total
    for one, other in itertools.combinations(range(len(lives)), 2):
        (size, begin, end), (size2, begin2, end2) = lives[one], lives[other]
        if begin > end2 or begin2 > end or not size or not size2:
            continue
        first, second = offsets[one], offsets[other]
        assert first + size <= second or second + size2 <= first
    at_once = max(
        (sum(size for size, a, b in lives if a <= time <= b) for time in range(20)), default=0
    )
    assert at_once <= total <= sum(-(-size // alignment) * alignment for size, *_ in lives)


def test_those_that_never_meet_take_the_largest_alone():
    assert pack([(5, 0, 1), (9, 2, 3), (7, 4, 5)], 4) == (9, [0, 0, 0])
    assert pack([(5, 0, 4), (9, 2, 3), (7, 4, 5)], 1) == (14, [9, 0, 0])
