"""Boxes of tensors in host memory: they are cut into as few pieces as fit, and copied whole, and
nothing beside them is touched."""

from __future__ import annotations

import itertools
import math
from ctypes import c_int, c_int64, c_void_p

import numpy as np
import pytest
import testing_library
from hypothesis import given, settings
from hypothesis import strategies as st

LIBRARY = testing_library.load()
LIBRARY.oocdnn_testing_cut.restype = c_int64
LIBRARY.oocdnn_testing_copy_box.restype = c_int64
Dims = c_int64 * 6
FLOAT = 4  # bytes


def strides(array: np.ndarray) -> Dims:
    return Dims(*(step // FLOAT for step in array.strides))


def cut(array: np.ndarray, begin, end, most) -> list[tuple[slice, ...]]:
    room = math.prod(array.shape)
    numbers = (c_int64 * (12 * room))()
    count = LIBRARY.oocdnn_testing_cut(
        strides(array), Dims(*begin), Dims(*end), Dims(*most), numbers, c_int64(room)
    )
    pieces = [numbers[12 * i : 12 * (i + 1)] for i in range(count)]
    return [tuple(map(slice, piece[:6], piece[6:])) for piece in pieces]


@settings(deadline=None)
@given(st.data())
def test_pieces_are_the_fewest_that_fit_and_cover_the_box_once(data):
    extents = [data.draw(st.integers(1, most)) for most in (12, 12, 3, 3, 2, 2)]
    most = [data.draw(st.integers(1, extent)) for extent in extents]
    begin = [data.draw(st.integers(0, 1)) for _ in extents]
    end = [b + extent for b, extent in zip(begin, extents, strict=True)]
    order = data.draw(st.permutations(range(6)))  # in memory
    array = np.zeros([end[d] + 1 for d in order], np.float32).transpose(np.argsort(order))
    pieces = cut(array, begin, end, most)
    assert len(pieces) == math.prod(map(math.ceil, np.divide(extents, most)))
    for piece in pieces:
        array[piece] += 1
        assert all(s.stop - s.start <= m for s, m in zip(piece, most, strict=True))
    box = tuple(map(slice, begin, end))
    assert (array[box] == 1).all()
    assert array.sum() == math.prod(extents)


def copy_box(array: np.ndarray, begin, end, memory, unpacks: bool, threads: int = 1) -> int:
    data = c_void_p(array.ctypes.data)
    packed = None if memory is None else c_void_p(memory.ctypes.data)
    return LIBRARY.oocdnn_testing_copy_box(
        c_int(threads), strides(array), Dims(*begin), Dims(*end), data, packed, c_int(unpacks)
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("shape", "begin", "end"),
    [
        ((2, 1, 3, 1, 5, 7), (0, 0, 1, 0, 1, 2), (2, 1, 3, 1, 4, 6)),
        ((2, 1, 3, 1, 40, 50), (0, 0, 1, 0, 0, 0), (2, 1, 3, 1, 40, 50)),  # runs of 8,000 bytes
        ((1, 1, 2, 1, 1, 9001), (0, 0, 0, 0, 0, 3), (1, 1, 2, 1, 1, 8888)),
        ((1, 1, 1, 1, 3, 500_001), (0, 0, 0, 0, 1, 1), (1, 1, 1, 1, 3, 500_000)),  # of 2 MB
        ((1, 1, 1, 1, 1, 600_011), (0, 0, 0, 0, 0, 5), (1, 1, 1, 1, 1, 600_010)),  # one
    ],
)
def test_a_box_is_copied_whole_and_nothing_else(threads, shape, begin, end):
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    bytes_ = copy_box(array, begin, end, None, False)
    memory = np.full(bytes_ // FLOAT + 16, -1, np.float32)
    copy_box(array, begin, end, memory, False, threads)
    assert (memory[-16:] == -1).all()
    target = np.full_like(array, -2)
    copy_box(target, begin, end, memory, True, threads)
    box = tuple(itertools.starmap(slice, zip(begin, end, strict=True)))
    wanted = np.full_like(array, -2)
    wanted[box] = array[box]
    np.testing.assert_array_equal(target, wanted)
