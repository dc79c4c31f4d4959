"""What oneDNN's engine keeps from one call to the next: reorders of filters, by their strides."""

import numpy as np
import oracle
import pytest
from engine.cases import DEVICE

import oocdnn

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="oneDNN computes on the CPU device")

rng = np.random.default_rng(3)
X = rng.integers(-4, 5, (2, 16, 12, 12)).astype(np.float32)
DY = rng.integers(-4, 5, (2, 32, 10, 10)).astype(np.float32)
FILTERS = {
    order: rng.integers(-4, 5, np.array((32, 16, 3, 3))[list(order)]).astype(np.float32)
    for order in ((0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 3, 1), (2, 3, 1, 0))
}
VIEWS = [filter_.transpose(np.argsort(order)) for order, filter_ in FILTERS.items()]


def test_filters_in_any_memory_order_one_after_another():
    """The tiles are alike, so the calls share what was prepared for the first of them."""
    with oocdnn.Context("cpu", "64MiB", engine="onednn", profile="none") as ctx:
        for w in [*VIEWS, *VIEWS]:
            np.testing.assert_array_equal(ctx.conv2d(X, w), oracle.forward(X, w))


def test_gradients_of_filters_in_any_memory_order_one_after_another():
    wanted = oracle.backward_filter(X, DY, (32, 16, 3, 3))
    with oocdnn.Context("cpu", "64MiB", engine="onednn", profile="none") as ctx:
        for order in [*FILTERS, *FILTERS]:
            out = np.full_like(FILTERS[order], np.nan).transpose(np.argsort(order))
            ctx.conv_backward_filter(X, DY, out.shape, out=out)
            np.testing.assert_array_equal(out, wanted)
