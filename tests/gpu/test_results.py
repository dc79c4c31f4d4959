"""Results that calls make themselves: in pinned memory that is used again.

On a machine without a GPU test_suites.py runs this file on the fake driver, which counts what is
registered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import oracle
import pytest
from python.support import assert_equal, channels_last, integers, is_channels_last

import oocdnn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pinning import SHAPE, W, X, Y, checked, counter, make, ordinary


@pytest.fixture
def ctx(monkeypatch) -> Iterator[oocdnn.Context]:
    with checked(monkeypatch) as context:
        yield context


@pytest.fixture
def pieces(ctx) -> Callable[[], int]:
    return counter(ctx)


def test_results_come_back_in_memory_of_earlier_ones(ctx, pieces):
    def result() -> np.ndarray:
        y = ctx.conv2d(X, W)
        assert_equal(y, Y)
        assert y.flags.writeable
        assert y.flags.c_contiguous
        assert y.flags.aligned
        return y

    first, second = result(), result()
    places = {first.ctypes.data, second.ctypes.data}
    assert len(places) == 2
    view = first[1:, 2:]
    values = view.copy()
    del first
    third = result()
    assert third.ctypes.data not in places
    np.testing.assert_array_equal(view, values)
    del view
    fourth = result()
    assert fourth.ctypes.data in places
    assert pieces() == 3
    del second, third, fourth
    assert pieces() == 3
    ctx.release()
    assert pieces() < 0  # what staged is gone, too


def test_results_of_every_order_and_type(ctx):
    for _ in range(3):
        y = ctx.conv2d(channels_last(X), W)
        assert is_channels_last(y)
        assert_equal(y, Y)
        wide = ctx.conv2d(X.astype(np.float64), W.astype(np.float64))
        assert wide.dtype == np.float64
        assert_equal(wide, Y)
        halves = integers(SHAPE, 0, np.float16)
        assert_equal(ctx.conv2d(halves, W.astype(np.float16)), oracle.forward(halves, W))


def test_results_outlive_their_context(pieces):
    with make() as context:
        y = context.conv2d(X, W)
        spare = context.conv2d(X, W)
        del spare
    assert pieces() == 1
    assert_equal(y, Y)
    y[...] = 1
    del y
    assert pieces() == 0


def test_results_beyond_the_share_are_ordinary(pieces):
    with make(host_cap=2 * Y.nbytes) as context:
        results = [context.conv2d(X, W) for _ in range(4)]
        assert [ordinary(y) for y in results] == [False, False, True, True]
        for y in results:
            assert_equal(y, Y)
        other = context.conv2d(X[:1], W)  # of another size: a block must go for it
        del results[0]
        assert not ordinary(context.conv2d(X[:1], W))
        assert_equal(other, Y[:1])


def test_a_result_is_an_operand(ctx):
    one = np.zeros((4, 4, 1, 1), np.float32)
    one[range(4), range(4)] = 1
    y = ctx.conv2d(X, W)
    for _ in range(4):
        y = ctx.conv2d(y, one)
    assert_equal(y, Y)
