"""Overlap of strided tensors, element by element, against the set of all their bytes."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass

import pytest
from geometry import core
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oocdnn._arrays.overlap import Extent, share_elements


@dataclass(frozen=True)
class Box:
    """Strides in bytes, one for each extent."""

    address: int
    dims: tuple[int, ...]
    stride: tuple[int, ...]
    element: int = 4

    def bytes(self) -> set[int]:
        return {
            self.address + sum(i * s for i, s in zip(index, self.stride, strict=True)) + byte
            for index in itertools.product(*map(range, self.dims))
            for byte in range(self.element)
        }

    def native(self) -> ctypes.Array[ctypes.c_int64]:
        fill = 6 - len(self.dims)
        numbers = [self.address, self.element, *self.dims, *[1] * fill, *self.stride, *[0] * fill]
        return (ctypes.c_int64 * 14)(*numbers)

    def extent(self) -> Extent:
        length = self.element + sum(
            (n - 1) * s for n, s in zip(self.dims, self.stride, strict=True)
        )
        return Extent(self.address, self.dims, self.stride, self.element, length)


def shares_bytes(a: Box, b: Box) -> bool:
    return bool(core.library().oocdnn_testing_shares_bytes(a.native(), b.native()))


@st.composite
def boxes(draw, least=-9):
    dims = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    stride = tuple(draw(st.integers(least, 40)) for _ in dims)
    return Box(draw(st.integers(100, 160)), dims, stride, draw(st.sampled_from([1, 2, 4, 8])))


@settings(max_examples=1000, deadline=None)
@given(boxes(), boxes())
@example(Box(100, (2, 3), (6, 2), 1), Box(101, (2, 3), (6, 2), 1))  # between each other
@example(Box(100, (3,), (-4,)), Box(88, (2,), (4,)))
@example(Box(100, (0, 2), (4, 4)), Box(100, (2,), (4,)))
@example(Box(100, (2, 2), (0, 4)), Box(104, (1,), (4,)))
def test_random_boxes(a, b):
    expected = not a.bytes().isdisjoint(b.bytes())
    assert shares_bytes(a, b) == expected
    assert shares_bytes(b, a) == expected


@settings(max_examples=300, deadline=None)
@given(boxes(least=0), boxes(least=0))
def test_random_arrays(a, b):
    """The comparison that Python makes before the core."""
    expected = not a.bytes().isdisjoint(b.bytes())
    assert share_elements(a.extent(), b.extent()) == (expected and 0 not in a.dims + b.dims)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_slices_of_one_tensor(data):
    """The layouts of calls: parts of one dense tensor, in any order of its axes."""
    order = data.draw(st.permutations(range(3)))
    whole = tuple(data.draw(st.integers(1, 5)) for _ in order)
    stride, step = [0] * 3, 4
    for axis in reversed(order):
        stride[axis], step = step, step * whole[axis]

    def part() -> tuple[Box, set[tuple[int, ...]]]:
        cuts = [slice(*sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in whole]
        every = [data.draw(st.integers(1, 2)) for _ in whole]
        ranges = [range(n)[c][::e] for n, c, e in zip(whole, cuts, every, strict=True)]
        begin = 4096 + sum(r.start * s for r, s in zip(ranges, stride, strict=True))
        steps = tuple(e * s for e, s in zip(every, stride, strict=True))
        box = Box(begin, tuple(map(len, ranges)), steps)
        return box, set(itertools.product(*ranges))

    (a, first), (b, second) = part(), part()
    assert shares_bytes(a, b) == (not first.isdisjoint(second))


N, C, H, W = 64, 512, 56, 56
ROWS = (4 * C * H * W, 4 * H * W, 4 * W, 4)
LAST = (4 * C * H * W, 4, 4 * W * C, 4 * C)
HALF = (N, C // 2, H, W)
LARGE = {
    "channel halves": (Box(0, HALF, ROWS), Box(2 * C * H * W, HALF, ROWS), False),
    "one channel of both": (Box(0, HALF, ROWS), Box(2 * (C - 2) * H * W, HALF, ROWS), True),
    "halves, channels last": (Box(0, HALF, LAST), Box(2 * C, HALF, LAST), False),
    "last row of both": (
        Box(0, (N, C, 9, W), ROWS),
        Box(8 * 4 * W + 4 * (W - 1), (N, C, 9, 1), ROWS),
        True,
    ),
    "windows side by side": (Box(0, (N, C, H, 28), ROWS), Box(4 * 28, (N, C, H, 28), ROWS), False),
    "even and odd rows": (
        Box(0, (N, C, 28, W), (*ROWS[:2], 8 * W, 4)),
        Box(4 * W, (N, C, 28, W), (*ROWS[:2], 8 * W, 4)),
        False,
    ),
    "half floats between floats": (
        Box(0, (N, C * H * W), (4 * C * H * W, 8), 4),
        Box(4, (N, 2 * C * H * W - 1), (4 * C * H * W, 8), 2),
        False,
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_layouts_need_no_long_search(name):
    a, b, expected = LARGE[name]
    assert shares_bytes(a, b) == shares_bytes(b, a) == expected
    assert share_elements(a.extent(), b.extent()) == expected


def test_a_common_divisor_ends_a_long_search():
    a = Box(0, (1000, 1000, 1000), (100_003 * 8, 100_019 * 8, 100_043 * 8), 1)
    b = Box(1, (1000, 1000, 1000), (100_057 * 8, 100_069 * 8, 100_103 * 8), 1)
    assert not shares_bytes(a, b)
