"""Batches in parts on the GPU, where the arrays lie or copied there, on every engine that it has.

On a machine without a GPU test_suites.py runs this file on the fake driver.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from counted import Counted
from python.support import assert_equal, channels_last, integers

import oocdnn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import DeviceArray


@pytest.fixture
def ctx():
    try:
        context = oocdnn.Context("cuda", "1MiB", wrap="check")
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    with context:
        yield context
        assert context.check_reports() == []


PLACES = {
    "fwd": "x@dev w@dev y@dev",
    "bwd_data": "dy@dev w@dev dx@dev",
    "bwd_filter": "x@dev dy@dev dw@dev",
    "bwd_bias": "dy@dev db@dev",
}


@pytest.mark.parametrize("order", [np.ascontiguousarray, channels_last])
@pytest.mark.parametrize("beta", [0, 1])
@pytest.mark.parametrize("engine", ["direct", "cudnn-nchw", "cudnn-nhwc"])
def test_a_divided_batch_on_the_device(ctx, engine, beta, order):
    """Parts of three samples, the first of one: where the arrays lie, or copied on the device."""
    x, w = order(integers((7, 8, 20, 24), 1)), integers((8, 8, 3, 3), 2)
    y = oracle.forward(x, w, padding=1)
    dy = order(integers(y.shape, 3))
    dx = oracle.backward_data(dy, w, x.shape, padding=1)
    dw = oracle.backward_filter(x, dy, w.shape, padding=1)
    calls = [
        ("fwd", ctx.conv2d, (x, w), y, ()),
        ("bwd_data", ctx.conv_backward_data, (dy, w), dx, (x.shape,)),
        ("bwd_filter", ctx.conv_backward_filter, (x, dy), dw, (w.shape,)),
        ("bwd_bias", ctx.conv_backward_bias, (dy,), oracle.backward_bias(dy), ()),
    ]
    layout = " nhwc" if order is channels_last else ""
    counted = Counted()
    for name, function, inputs, total, shape in calls:
        counted.begin()
        sizes = "y7x8x20x24" if name == "bwd_bias" else "x7x8x20x24 w8x8x3x3 pad1"
        problem = f"conv2d:{name} {sizes}{layout} beta{beta} {PLACES[name]}" + " old@dev" * beta
        try:
            ctx.use_plan(problem, f"{engine} n3 taper n1 slots 1")
        except oocdnn.InvalidProblem as error:
            if "no engine that serves" not in str(error):
                raise
            pytest.skip(str(error))
        except oocdnn.Unsupported:
            assert engine != "direct"
            continue
        old = integers(total.shape, 4)
        out = DeviceArray(order(old) if name in ("fwd", "bwd_data") else old)
        keywords = {} if name == "bwd_bias" else {"padding": 1}
        function(*(DeviceArray(one) for one in inputs), *shape, out=out, beta=beta, **keywords)
        assert_equal(out.get(), total + beta * old)
        assert ctx.stats.split["n"] == 3, name
        counted.done()
    counted.need(1.0 if engine == "direct" else 0.25)
