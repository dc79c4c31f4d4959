"""Fused chains whose operands lie anywhere: what the finishing pass makes goes where it is wanted.

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


@pytest.fixture
def ctx():
    try:
        context = oocdnn.Context("cuda", "256KiB", wrap="check")
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    with context:
        yield context
        assert context.check_reports() == []


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, repeat=2)), ids="-".join)
def test_fused_chains_from_any_place(ctx, tmp_path, tiers, saves):
    """z and its bits; where x is on the GPU, so are the bits, whose library is not known here."""
    x, w, b = integers((3, 8, 30, 41)), integers((12, 8, 3, 3)), integers((12,))
    y = oracle.finish(oracle.forward(x, w, padding=1), bias=b, activation="relu")
    pool = oracle.Pool("max", (2, 2), (2, 2), ((0, 0), (0, 0)))
    z, _ = oracle.pool(y, pool)
    blank = np.full(z.shape, np.nan, np.float32)
    placed = places(tmp_path, "x")[tiers[0]](x), places(tmp_path, "z")[tiers[1]](blank)
    keywords = {"padding": 1, "activation": "relu", "pool": 2, "save_for_backward": saves}
    if saves and tiers[0] == "device":
        with pytest.raises(oocdnn.Unsupported):
            ctx.conv_bias_act_pool(placed[0], w, b, out=placed[1], **keywords)
        return
    made = ctx.conv_bias_act_pool(placed[0], w, b, out=placed[1], **keywords)
    assert_equal(host(placed[1]), z)
    out = 0 if tiers[1] == "device" else z.size * 4
    if saves:
        expected = oracle.saved(y, pool, "relu")
        np.testing.assert_array_equal(made[1].bits, expected.ravel())
        out += expected.nbytes
    assert ctx.stats.bytes_d2h == out


@pytest.mark.parametrize("shape", [(2, 8, 30, 41), (2, 8, 31, 64)])
def test_fused_chains_in_core(ctx, shape):
    """z is made where the caller wants it; y has a tile of its own."""
    x, w = integers(shape), integers((12, 8, 3, 3))
    y = oracle.finish(oracle.forward(x, w, padding=1), activation="relu")
    z, _ = oracle.pool(y, oracle.Pool("max", (3, 3), (2, 2), ((1, 1), (1, 1))))
    out = DeviceArray(np.full(z.shape, np.nan, np.float32))
    padded = x[:, :, 0, 0].size * (x.shape[2] + 2) * (x.shape[3] + 2)  # the engine's tile of x
    with oocdnn.Context("cuda", "8MiB", wrap="check") as roomy:
        roomy.conv_bias_act_pool(
            DeviceArray(x), DeviceArray(w), padding=1, activation="relu", out=out,
            pool=oocdnn.Pool("max", 3, 2, 1),
        )  # fmt: skip
        assert_equal(host(out), z)
        assert roomy.check_reports() == []
        assert roomy.stats.tiles == 1
        assert roomy.stats.bytes_h2d == roomy.stats.bytes_d2h == 0
        assert roomy.stats.peak_device_bytes < 4 * (y.size + padded + w.size + z.size)
