"""Prologues whose operands lie anywhere: the caller's own array is read, and left as it is.

On a machine without a GPU test_suites.py runs this file on the fake driver.
"""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest
from gpu.test_operands import TIERS, host, places
from python.support import assert_equal, integers

import oocdnn


@pytest.fixture
def ctx():
    try:
        context = oocdnn.Context("cuda", "256KiB", wrap="check")
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    with context:
        yield context
        assert context.check_reports() == []


@pytest.mark.parametrize("extent", [12, 60], ids=["in core", "tiles"])
@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, repeat=2)), ids="-".join)
def test_prologues_and_sums_from_any_place(ctx, tmp_path, tiers, extent):
    """Sums are made in x's library, which is not known here where x is on the GPU."""
    x, w = integers((2, 8, extent, 21)), integers((12, 8, 3, 3), 1)
    table = np.stack([integers((2, 8), 2), integers((2, 8), 3)], 2)
    pairs = table[:, :, :, None, None]
    y = oracle.forward(np.maximum(x * pairs[:, :, 0] + pairs[:, :, 1], 0), w, padding=1)
    blank = np.full(y.shape, np.nan, np.float32)
    placed = places(tmp_path, "x")[tiers[0]](x), places(tmp_path, "y")[tiers[1]](blank)
    sums = None if tiers[0] == "device" else oocdnn.Sums()
    prologue = oocdnn.Prologue(table, "relu")
    ctx.conv2d(placed[0], w, padding=1, out=placed[1], prologue=prologue, sums=sums)
    assert_equal(host(placed[1]), y)
    assert_equal(host(placed[0]), x)
    if sums is not None:
        np.testing.assert_array_equal(sums.table[..., 0], y.sum((2, 3)))
        np.testing.assert_array_equal(sums.table[..., 1], (y * y).sum((2, 3)))


@pytest.mark.parametrize("extent", [12, 60], ids=["in core", "tiles"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e6, -1e8])
def test_variances_far_from_zero(ctx, offset, dtype, extent):
    """Merged over threads and tiles; sums of squares would leave no correct digit at 1e8."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((2, 4, extent, 21)) + offset).astype(dtype)
    x[1, 3] = 0.1  # equal elements do not vary
    sums = oocdnn.Sums()
    y = ctx.conv2d(x, np.eye(4, dtype=dtype).reshape(4, 4, 1, 1), sums=sums)
    assert_equal(y, x)
    wide = x.astype(np.longdouble)
    mean, variance = sums.entries[..., 3], sums.entries[..., 4] / sums.count
    np.testing.assert_allclose(mean, wide.mean((2, 3)).astype(np.float64), 1e-14, 1e-15)
    np.testing.assert_allclose(variance[:, :3], wide.var((2, 3))[:, :3].astype(np.float64), 1e-12)
    assert mean[1, 3] == x[1, 3, 0, 0]
    assert variance[1, 3] == 0.0
    assert (sums.entries[..., 2] == sums.count).all()
