"""Host memory between sections of a chain is pinned within half of what may be pinned."""

from __future__ import annotations

from ctypes import c_int64

import testing_library
from hypothesis import given, settings
from hypothesis import strategies as st

LIBRARY = testing_library.load()
SIZES = st.lists(st.integers(1, 600), min_size=4, max_size=4)


def reserved(cap: int, rounds: list[list[int]]) -> list[tuple[int, int]]:
    """After each round the bytes that are pinned, and those that are left to slabs."""
    count, sizes = len(rounds), [size for sizes in rounds for size in sizes]
    pinned, left = (c_int64 * count)(), (c_int64 * count)()
    code = LIBRARY.oocdnn_testing_shelves(
        c_int64(cap), (c_int64 * len(sizes))(*sizes), c_int64(len(rounds[0])), c_int64(count),
        pinned, left,
    )  # fmt: skip
    assert code == 0
    return list(zip(pinned, left, strict=True))


@settings(deadline=None)
@given(st.integers(0, 3000), st.lists(SIZES, min_size=1, max_size=3))
def test_what_fits_into_half_of_the_cap_is_pinned(cap, rounds):
    """One after the other; what has to grow is let go first."""
    held, pinned, expected = [0] * 4, [0] * 4, []
    for sizes in rounds:
        for i, size in enumerate(sizes):
            if held[i] >= size:
                continue
            held[i], pinned[i] = size, 0
            pinned[i] = size if sum(pinned) + size <= cap // 2 else 0
        expected.append((sum(pinned), cap - sum(pinned)))
    assert reserved(cap, rounds) == expected
