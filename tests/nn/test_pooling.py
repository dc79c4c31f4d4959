"""Pools as layers: PyTorch's where PyTorch has them, the fused pass's rules everywhere."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nn.comparing import FLOAT64, assert_same
from python.support import DTYPES, channels_last, integers, is_channels_last

import oocdnn
from oocdnn import nn

shapes = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def windows(draw, rank: int, uneven: bool):
    """Window, stride, padding and extents that make at least one window."""

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    window, stride = each(1, 4), each(1, 4)
    # PyTorch's padding is at most half of the window, and the same on both sides.
    most = [w - 1 if uneven else w // 2 for w in window]
    pads = [tuple(draw(st.integers(0, m)) for _ in range(2)) for m in most]
    pads = [pair if uneven else (pair[0], pair[0]) for pair in pads]
    room = each(0, 7)
    # PyTorch also wants averaging windows that the array fills without its padding.
    sizes = zip(window, pads, room, strict=True)
    extents = tuple((max(w - sum(pair), 1) if uneven else w) + more for w, pair, more in sizes)
    return window, stride, tuple(pads), extents


@shapes
@given(data=st.data(), rank=st.integers(1, 3), ceil=st.booleans(), average=st.booleans())
def test_pools_are_pytorchs(torch, data, rank, ceil, average):
    window, stride, pads, extents = data.draw(windows(rank, uneven=False))
    counted = data.draw(st.booleans()) if average else True
    x = integers((2, 3, *extents), 5, FLOAT64)
    name = f"{'Avg' if average else 'Max'}Pool{rank}d"
    arguments = {"stride": stride, "padding": tuple(before for before, _ in pads)}
    ours = {"count_padding": counted} if average else {}
    theirs = {"count_include_pad": counted} if average else {}
    layer = getattr(nn, name)(window, **arguments, ceil=ceil, **ours)
    module = getattr(torch.nn, name)(window, **arguments, ceil_mode=ceil, **theirs)
    assert_same(layer, module, torch, x, tolerance=1e-14 if average else 0.0)


@shapes
@given(data=st.data(), rank=st.integers(1, 3), ceil=st.booleans(), mode=st.sampled_from("ma"))
def test_pools_are_those_of_the_fused_pass(data, rank, ceil, mode):
    """Any padding, equals, infinities and NaN too; each dz goes where the reference's winner is."""
    window, stride, pads, extents = data.draw(windows(rank, uneven=True))
    x = integers((2, 2, *extents), 5, FLOAT64, largest=1)
    odd = np.random.default_rng(1).random(x.shape)
    x[odd < 0.05], x[odd > 0.8] = np.nan, -np.inf
    by = oracle.Pool("max" if mode == "m" else "avg_inside", window, stride, pads, ceil)
    z, winners = oracle.pool(x, by)
    if mode == "m":
        layer = getattr(nn, f"MaxPool{rank}d")(window, stride, pads, ceil)
    else:
        layer = getattr(nn, f"AvgPool{rank}d")(window, stride, pads, ceil, False)
    np.testing.assert_array_equal(layer(x), z)
    dz = integers(z.shape, 6, FLOAT64)
    dx = layer.backward(dz)
    assert dx.shape == x.shape
    if mode == "m":
        np.testing.assert_array_equal(dx, back(dz, winners, by, x.shape))
    else:
        np.testing.assert_allclose(dx, spread(dz, by, x.shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [10**4, 2**31, 2**59])
@pytest.mark.parametrize("counted", [True, False])
def test_windows_may_be_far_larger_than_the_array(size, counted):
    x = np.random.default_rng(0).permutation(np.arange(60.0)).reshape(1, 1, 3, 4, 5)
    largest = nn.MaxPool3d(size, ceil=True)
    assert largest(x).tolist() == [[[[[59.0]]]]]
    np.testing.assert_array_equal(largest.backward(np.full((1,) * 5, 2.0)), 2.0 * (x == 59))
    average = nn.AvgPool3d(size, ceil=True, count_padding=counted)
    assert average(x).tolist() == [[[[[29.5]]]]]
    np.testing.assert_array_equal(average.backward(np.full((1,) * 5, 60.0)), np.ones_like(x))


def rows_of(at, tap, by):
    """The place in x of a tap of the window at a place in z."""
    moves = zip(at[2:], by.stride, by.padding, tap, strict=True)
    return tuple(o * s - before + t for o, s, (before, _), t in moves)


# Extent of y, padding before and after, window, stride, and the rows of z with and without `ceil`;
# 0: there are none, and a call is refused. All of them are PyTorch's.
ROWS = [
    (7, 0, 0, 3, 2, 3, 3),
    (8, 0, 0, 3, 2, 4, 3),
    (8, 1, 1, 3, 2, 5, 4),
    (3, 0, 0, 1, 2, 2, 2),
    (4, 0, 0, 1, 3, 2, 2),
    (1, 0, 0, 2, 2, 1, 0),
    (2, 0, 0, 3, 2, 1, 0),
    (1, 0, 0, 3, 3, 1, 0),
    (1, 0, 0, 4, 4, 1, 0),
    (2, 1, 1, 5, 3, 1, 0),
    (1, 1, 1, 4, 2, 1, 0),
    (1, 2, 2, 5, 3, 1, 1),
    (1, 0, 0, 3, 2, 0, 0),
    (1, 0, 0, 2, 1, 0, 0),
    (1, 0, 0, 4, 3, 0, 0),
]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("mode", ["max", "avg"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rows_of_z(row, mode, rank):
    """The rows of the layer and of a call; planes shorter than the window among them."""
    extent, before, after, window, stride, up, down = row
    x = integers((1, 2, *[extent] * rank), 3)
    w = np.eye(2, dtype=np.float32).reshape(2, 2, *[1] * rank)
    padding = [(before, after)] * rank
    for ceil, rows in ((True, up), (False, down)):
        pool = oocdnn.Pool(mode, window, stride, padding, ceil)
        layer = getattr(nn, f"{mode.title()}Pool{rank}d")(window, stride, padding, ceil)
        if rows < 1:
            for call in (layer, lambda x, pool=pool: oocdnn.conv_bias_act_pool(x, w, pool=pool)):
                with pytest.raises(oocdnn.InvalidProblem, match="z would be empty"):
                    call(x)
            continue
        wanted, _ = oracle.pool(x, oracle.Pool(mode, *each_axis(pool, rank), ceil))
        z = layer(x)
        assert z.shape == (1, 2, *[rows] * rank)
        np.testing.assert_allclose(z, wanted, rtol=1e-6)
        np.testing.assert_allclose(oocdnn.conv_bias_act_pool(x, w, pool=pool), wanted, rtol=1e-6)


def each_axis(pool, rank):
    return (pool.window,) * rank, (pool.stride,) * rank, tuple(pool.padding)


@settings(shapes, max_examples=150)
@given(data=st.data(), rank=st.integers(1, 3), mode=st.sampled_from(["max", "avg"]))
def test_short_planes_are_pytorchs(torch, data, rank, mode):
    """Planes around the window's size, fused and as a layer; PyTorch refuses what is refused, and
    averages over short volumes."""
    window = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    stride = [data.draw(st.integers(1, 6)) for _ in range(rank)]
    padding = [data.draw(st.integers(0, w // 2)) for w in window]
    extents = [data.draw(st.integers(1, w + 1)) for w in window]
    counted = mode == "max" or data.draw(st.booleans())
    x = integers((1, 2, *extents), 4, FLOAT64)
    pool = oocdnn.Pool(mode, window, stride, padding, True, counted)
    w = np.eye(2).reshape(2, 2, *[1] * rank)
    more = {} if mode == "max" else {"count_include_pad": counted}
    theirs = getattr(torch.nn, f"{mode.title()}Pool{rank}d")(
        window, stride, padding, ceil_mode=True, **more
    )
    rows = zip(extents, padding, padding, window, stride, strict=True)
    if min(oracle.pooled_extent(*axis, True) for axis in rows) < 1:
        with pytest.raises(RuntimeError, match=r"too small|smaller than kernel|output size"):
            theirs(torch.from_numpy(x))
        with pytest.raises(oocdnn.InvalidProblem, match="z would be empty"):
            oocdnn.conv_bias_act_pool(x, w, pool=pool)
        return
    if mode == "avg" and rank == 3 and any(e < w for e, w in zip(extents, window, strict=True)):
        pads = tuple((pad, pad) for pad in padding)
        kind = "avg" if counted else "avg_inside"
        wanted, _ = oracle.pool(x, oracle.Pool(kind, window, stride, pads, True))
        np.testing.assert_allclose(oocdnn.conv_bias_act_pool(x, w, pool=pool), wanted, rtol=1e-14)
        return
    wanted = theirs(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(oocdnn.conv_bias_act_pool(x, w, pool=pool), wanted, rtol=1e-14)
    ours = {} if mode == "max" else {"count_padding": counted}
    layer = getattr(nn, f"{mode.title()}Pool{rank}d")(window, stride, padding, True, **ours)
    assert_same(layer, theirs, torch, x, tolerance=0.0 if mode == "max" else 1e-14)


def back(dz, winners, by, shape):
    """dx of a maximum by the definition, element by element."""
    dx = np.zeros(shape)
    for at in np.ndindex(*dz.shape):
        tap = np.unravel_index(winners[at], by.window)
        dx[(*at[:2], *rows_of(at, tap, by))] += dz[at]
    return dx


def spread(dz, by, shape):
    """dx of an average of what lies inside by the definition, element by element."""
    dx = np.zeros(shape)
    for at in np.ndindex(*dz.shape):
        places = [rows_of(at, tap, by) for tap in np.ndindex(*by.window)]
        inside = [
            place
            for place in places
            if all(0 <= row < size for row, size in zip(place, shape[2:], strict=True))
        ]
        for place in inside:
            dx[(*at[:2], *place)] += dz[at] / len(inside)
    return dx


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("layer", [nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)], ids=["max", "avg"])
def test_every_type(layer, name):
    x = 4 * integers((2, 3, 9, 8), 5)
    y = layer(x.astype(DTYPES[name]))
    dx = layer.backward(4 * integers(y.shape, 6, DTYPES[name]))
    assert y.dtype == dx.dtype == DTYPES[name]
    np.testing.assert_array_equal(y.astype(np.float32), layer(x))
    np.testing.assert_array_equal(dx.astype(np.float32), layer.backward(4 * integers(y.shape, 6)))


@pytest.mark.parametrize("layer", [nn.MaxPool2d(2), nn.AvgPool2d(2)], ids=["max", "avg"])
@pytest.mark.parametrize("name", DTYPES)
def test_memory_order_is_kept_both_ways(layer, name):
    x = channels_last(integers((2, 3, 8, 6), 5, DTYPES[name]))
    y = layer(x)
    dx = layer.backward(y)
    assert is_channels_last(y)
    assert is_channels_last(dx)
    plain = layer(np.ascontiguousarray(x))
    np.testing.assert_array_equal(plain, y)
    np.testing.assert_array_equal(layer.backward(plain), dx)


def test_what_cannot_be_pooled():
    with pytest.raises(oocdnn.InvalidProblem, match="less than the window"):
        nn.MaxPool2d(2, padding=2)
    with pytest.raises(oocdnn.InvalidProblem, match="MaxPool2d takes 4"):
        nn.MaxPool2d(2)(np.zeros((1, 2, 3)))
    with pytest.raises(oocdnn.InvalidProblem, match="smaller window"):
        nn.AvgPool1d(4)(np.zeros((1, 2, 3)))
    layer = nn.AvgPool1d(2)
    layer(np.zeros((1, 2, 4)))
    with pytest.raises(oocdnn.InvalidProblem, match=r"dy has shape \(1, 2, 3\)"):
        layer.backward(np.zeros((1, 2, 3)))
