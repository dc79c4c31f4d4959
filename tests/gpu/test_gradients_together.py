"""dx, dw and db of one pass whose operands lie anywhere, and all on the GPU.

On a machine without a GPU test_suites.py runs this file on the fake driver.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from gpu.test_operands import TIERS, host, places
from python.support import assert_equal, integers

import oocdnn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import DeviceArray

POOL = oracle.Pool("max", (2, 2), (2, 2), ((0, 0), (0, 0)))


def context(budget: str) -> oocdnn.Context:
    try:
        return oocdnn.Context("cuda", budget, wrap="check")
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))


def need_gradients(got, x, w, dy) -> None:
    assert_equal(host(got[0]), oracle.backward_data(dy, w, x.shape, padding=1))
    assert_equal(host(got[1]), oracle.backward_filter(x, dy, w.shape, padding=1))
    assert_equal(host(got[2]), oracle.backward_bias(dy))


def blank(shape) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, repeat=2)), ids="-".join)
def test_operands_from_any_place(tmp_path, tiers):
    x, w, b = integers((6, 8, 30, 41)), integers((12, 8, 3, 3)), integers((12,))
    y = oracle.finish(oracle.forward(x, w, padding=1), bias=b, activation="relu")
    z, winners = oracle.pool(y, POOL)
    dz = integers(z.shape, 9)
    dy = np.where(y > 0, oracle.pool_backward(dz, winners, y.shape[2:], POOL), 0)
    with context("512KiB") as ctx:
        _, saved = ctx.conv_bias_act_pool(
            x, w, b, padding=1, activation="relu", pool=2, save_for_backward=True
        )
        put = [
            places(tmp_path, name)[tier] for name, tier in zip(("in", "out"), tiers, strict=True)
        ]
        dx, dw = put[1](blank(x.shape)), places(tmp_path, "dw")[tiers[1]](blank(w.shape))
        got = ctx.conv_bias_act_pool_backward(
            dz, saved, put[0](x), w, out={"dx": dx, "dw": dw, "db": blank((12,))}
        )
        assert ctx.check_reports() == []
        out, read = (0 if tier == "device" else array.nbytes for tier, array in
                     ((tiers[1], dx), (tiers[0], x)))  # fmt: skip
        out += 48 + (0 if tiers[1] == "device" else w.nbytes)
        assert ctx.stats.tiles > 1
        assert ctx.stats.bytes_d2h == out
        assert ctx.stats.bytes_h2d == read + dz.nbytes + saved.nbytes + w.nbytes
    need_gradients(got, x, w, dy)


@pytest.mark.parametrize("mode", ["cross_correlation", "convolution"])
@pytest.mark.parametrize("budget", ["8MiB", "128KiB"])
def test_all_on_the_gpu(budget, mode):
    """As they lie there, or of what does not fit in tiles."""
    x, w = integers((4, 8, 30, 41)), integers((12, 8, 3, 3))
    flip = (..., *([slice(None, None, -1 if mode == "convolution" else 1)] * 2))
    dy = integers((4, 12, 30, 41), 9)
    blanks = {"dx": blank(x.shape), "dw": blank(w.shape), "db": blank((12,))}
    with context(budget) as ctx:
        out = {name: DeviceArray(array) for name, array in blanks.items()}
        _, saved = ctx.conv_bias_act_pool(x, w, padding=1, mode=mode, save_for_backward=True)
        got = ctx.conv_bias_act_pool_backward(
            DeviceArray(dy), saved, DeviceArray(x), DeviceArray(w), out=out
        )
        assert ctx.check_reports() == []
        assert ctx.stats.bytes_h2d == ctx.stats.bytes_d2h == 0
    assert_equal(host(got[0]), oracle.backward_data(dy, w[flip], x.shape, padding=1))
    assert_equal(host(got[1])[flip], oracle.backward_filter(x, dy, w.shape, padding=1))
    assert_equal(host(got[2]), oracle.backward_bias(dy))
