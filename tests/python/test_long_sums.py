"""Sums of very many terms stay accurate: their error does not grow with the number of terms.

The bounds are those of docs/how_it_works.md, in units of 2^-24 times the sum of the terms'
magnitudes.
"""

import numpy as np
import pytest
from engine.cases import DTYPES

import oocdnn

U = 2.0**-24
FILTER_BOUND = 258  # whatever the number of pixels
NEAR = 5e-6  # relative error of float32 in PyTorch, for sums of 300^3 terms


def context(budget="64MiB", **options):
    return oocdnn.Context("cpu", budget, profile="none", **options)


def relu_like(rng, shape, dtype=np.float32):
    values = rng.standard_normal(shape, np.float32)
    return np.maximum(values, 0).astype(dtype)


def positive(rng, shape, dtype=np.float32):
    return rng.random(shape, np.float32).astype(dtype)


def wanted(x, dy, taps):
    """The filter gradient in float64, of a filter without padding; all terms are positive."""
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    out = dy.shape[2:]
    dw = np.empty((dy.shape[1], x.shape[1], *taps))
    for tap in np.ndindex(taps):
        part = x[(..., *(slice(t, t + o) for t, o in zip(tap, out, strict=True)))]
        dw[(..., *tap)] = np.einsum("nkdhw,ncdhw->kc", dy, part, optimize=True)
    return dw


def relative_error(seen, exact):
    return float(np.max(np.abs(seen.astype(np.float64) - exact) / exact))


@pytest.mark.parametrize("options", [{}, {"reproducible": True}], ids=["usual", "reproducible"])
def test_a_sum_of_ones_is_exact_beyond_2_to_the_24(options):
    ones = np.ones((1, 1, 300, 300, 300), np.float32)
    with context(**options):
        dw = oocdnn.conv_backward_filter(ones, ones, (1, 1, 1, 1, 1))
    assert dw.item() == 27_000_000


@pytest.mark.parametrize(
    ("channels", "size", "taps"),
    [(1, 128, 1), (1, 256, 1), (1, 128, 3), (4, 100, 1), (16, 64, 1)],
)
def test_filter_gradients_over_large_volumes(channels, size, taps):
    rng = np.random.default_rng(size)
    x = relu_like(rng, (1, channels, *(size,) * 3))
    dy = positive(rng, (1, channels, *(size - taps + 1,) * 3))
    window = (taps,) * 3
    with context(reproducible=True):
        dw = oocdnn.conv_backward_filter(x, dy, (channels, channels, *window))
    error = relative_error(dw, wanted(x, dy, window))
    assert error <= min(NEAR, FILTER_BOUND * U)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_filter_gradients_of_16_bits_over_large_volumes(dtype):
    """The sum rounds once, to its type: scaled, so that it is finite in float16."""
    rng = np.random.default_rng(2)
    x, dy = (make(rng, (1, 1, 128, 128, 128), DTYPES[dtype]) for make in (relu_like, positive))
    with context(reproducible=True):
        dw = oocdnn.conv_backward_filter(x, dy, (1, 1, 1, 1, 1), alpha=2.0**-12)
    exact = wanted(x, dy, (1, 1, 1)) * 2.0**-12
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8}[dtype]
    assert relative_error(dw, exact) <= unit * (1 + 1e-4)


def test_depthwise_filter_gradients_over_large_planes():
    rng = np.random.default_rng(3)
    x = relu_like(rng, (1, 19, 1, 512, 512))
    dy = positive(rng, x.shape)
    with context(reproducible=True):
        dw = oocdnn.conv_backward_filter(x, dy, (19, 1, 1, 1, 1), groups=19)
    exact = np.einsum("ncdhw,ncdhw->c", x, dy, dtype=np.float64)
    assert relative_error(dw.reshape(19), exact) <= min(NEAR, FILTER_BOUND * U)


@pytest.mark.parametrize("budget", ["24MiB", "64MiB", "1GiB"])
def test_forward_over_very_many_channels(budget):
    rng = np.random.default_rng(4)
    channels = 1 << 22
    x, w = positive(rng, (1, channels, 1, 1)), positive(rng, (1, channels, 1, 1))
    exact = np.vdot(x.astype(np.float64), w.astype(np.float64))
    with context(budget, engine="direct"):
        y = oocdnn.conv2d(x, w)
        dx = oocdnn.conv_backward_data(x, w.reshape(channels, 1, 1, 1), (1, 1, 1, 1))
    assert relative_error(y, exact) <= (600 + channels / 16384) * U < 2.6e-4
    assert relative_error(dx, exact) <= (600 + channels / 16384) * U


@pytest.mark.parametrize("taps", [(31, 31), (1, 2000)])
def test_depthwise_filters_of_many_taps(taps):
    """Equal terms, whose roundings do not cancel."""
    x = np.full((1, 3, *taps), 0.1, np.float32)
    w = np.full((3, 1, *taps), 0.3, np.float32)
    exact = float(x.flat[0]) * float(w.flat[0]) * taps[0] * taps[1]
    with context(engine="direct"):
        y = oocdnn.conv2d(x, w, groups=3)
    assert relative_error(y, exact) <= 1e-6


@pytest.mark.parametrize(
    ("x_shape", "filter_shape"),
    [
        ((3, 3, 1, 57, 53), (2, 3, 1, 3, 3)),
        ((2, 2, 11, 13, 12), (3, 2, 3, 3, 3)),
        ((60, 1, 1, 9, 11), (2, 1, 1, 3, 3)),
        ((2, 5, 1, 1, 4001), (3, 5, 1, 1, 5)),
    ],
)
def test_reproducible_filter_gradients_have_the_same_bits_in_many_tiles(x_shape, filter_shape):
    rng = np.random.default_rng(5)
    out = [x - w + 1 for x, w in zip(x_shape[2:], filter_shape[2:], strict=True)]
    x = rng.standard_normal(x_shape, np.float32)
    dy = rng.standard_normal((x_shape[0], filter_shape[0], *out), np.float32)
    results, tiles = [], []
    for budget in ("64MiB", "40KiB", "25KiB", "17KiB"):
        with context(budget, reproducible=True) as ctx:
            results.append(oocdnn.conv_backward_filter(x, dy, filter_shape).tobytes())
            splits = ctx.stats.split
            tiles.append(splits["n"] * splits["d"] * splits["h"] * splits["w"])
    assert len(set(results)) == 1
    assert max(tiles) > 2


@pytest.mark.long
def test_a_filter_gradient_over_1e8_pixels():
    rng = np.random.default_rng(6)
    size = (1, 1, 464, 464, 464)
    count = int(np.prod(size))
    x = np.resize(relu_like(rng, 10**7), count).reshape(size)
    dy = np.resize(positive(rng, 9_999_991), count).reshape(size)
    exact = sum(
        np.vdot(a.astype(np.float64), b.astype(np.float64))
        for a, b in zip(x[0, 0], dy[0, 0], strict=True)
    )
    with context(reproducible=True):
        dw = oocdnn.conv_backward_filter(x, dy, (1, 1, 1, 1, 1))
    assert relative_error(dw, exact) <= min(NEAR, FILTER_BOUND * U)
