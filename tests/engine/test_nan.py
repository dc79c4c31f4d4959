"""NaN and infinity of the filter, as docs/reference/support.md has it: padding is zeros, which our
own engines multiply like other elements; and one of any operand is nowhere else."""

from __future__ import annotations

import itertools
import os

import numpy as np
import oracle
import pytest
from python.support import integers

import oocdnn

DEVICE = os.environ.get("OOCDNN_TEST_DEVICE", "cpu")
OWN = ["direct", "reference"] if DEVICE == "cpu" else ["direct"]

# Stride, dilation, padding before and after on both axes.
WINDOWS = [
    (1, 1, (1, 1)),
    (2, 1, (1, 1)),
    (1, 2, (2, 3)),
    (2, 2, (4, 1)),
    (3, 1, (2, 0)),
]


def results(engine: str, budget: str, window, x, w, dy):
    stride, dilation, pads = window
    keywords = {"stride": stride, "dilation": dilation, "padding": [pads, pads]}
    with oocdnn.Context(DEVICE, budget, engine=engine) as ctx:
        y = ctx.conv2d(x, w, **keywords)
        dx = ctx.conv_backward_data(dy, w, x.shape, **keywords)
    return y, dx


def met(tap, window, extents, places) -> np.ndarray:
    """Of `places` outputs on each axis those for which the tap meets one of `extents` elements."""
    stride, dilation, pads = window
    axes = []
    for at, extent, count in zip(tap, extents, places, strict=True):
        read = np.arange(count) * stride - pads[0] + at * dilation
        axes.append((read >= 0) & (read < extent))
    return np.outer(*axes)


def tied(tap, window, extents, places=None) -> np.ndarray:
    """Of `extents` elements of dx those that the tap ties to a place of dy; with `places` to one
    of so many that there are."""
    stride, dilation, pads = window
    axes = []
    for axis, (at, extent) in enumerate(zip(tap, extents, strict=True)):
        place = np.arange(extent) + pads[0] - at * dilation
        there = place % stride == 0
        if places is not None:
            there &= (place >= 0) & (place // stride < places[axis])
        axes.append(there)
    return np.outer(*axes)


def problem(window):
    stride, dilation, pads = window
    x, w = np.ones((2, 3, 13, 11), np.float32), np.abs(integers((4, 3, 3, 3), 1)) + 1
    y = oracle.forward(x, w, stride=stride, dilation=dilation, padding=[pads, pads])
    return x, w, np.ones(y.shape, np.float32)


def in_channel(shape, channel: int, mask: np.ndarray) -> np.ndarray:
    whole = np.zeros(shape, bool)
    whole[:, channel] = mask
    return whole


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("budget", ["16KiB", "16MiB"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("engine", OWN)
def test_a_filters_nan_reaches_all_that_read_its_tap(engine, window, budget, value):
    """In y that is each element of its channel: where the tap meets padding, zero times NaN is NaN,
    and zero times infinity. In dx it is each element that the tap connects to a place of y, one of
    dy or of the zeros around it; between strided ones there is none."""
    x, w, dy = problem(window)
    for tap in itertools.product(range(3), repeat=2):
        spoiled = w.copy()
        spoiled[1, 2][tap] = value
        y, dx = results(engine, budget, window, x, spoiled, dy)
        np.testing.assert_array_equal(~np.isfinite(y), in_channel(y.shape, 1, np.True_))
        lost = in_channel(x.shape, 2, tied(tap, window, x.shape[2:]))
        np.testing.assert_array_equal(~np.isfinite(dx), lost)


@pytest.mark.skipif(DEVICE != "cpu", reason="oneDNN is the CPU's")
@pytest.mark.parametrize("window", [(1, 1, (1, 1)), (2, 1, (1, 1)), (1, 2, (2, 2))], ids=str)
def test_onednn_leaves_padding_out(window):
    """What the support matrix says of it, of one tile."""
    x, w, dy = problem(window)
    for tap in itertools.product(range(3), repeat=2):
        spoiled = w.copy()
        spoiled[1, 2][tap] = np.nan
        y, dx = results("onednn", "16MiB", window, x, spoiled, dy)
        lost = in_channel(y.shape, 1, met(tap, window, x.shape[2:], y.shape[2:]))
        np.testing.assert_array_equal(np.isnan(y), lost)
        lost = in_channel(x.shape, 2, tied(tap, window, x.shape[2:], y.shape[2:]))
        np.testing.assert_array_equal(np.isnan(dx), lost)
