"""Planning by and by, for operands that lie elsewhere at each call.

On a machine without a GPU test_suites.py runs this file on the fake driver.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from python.support import assert_equal, integers

import oocdnn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import DeviceArray

PROFILE = str(Path(__file__).resolve().parents[1] / "profile.txt")
X, W = integers((8, 8, 40, 40), 1), integers((8, 8, 3, 3), 2)


def opened(**options):
    try:
        return oocdnn.Context("cuda", "256KiB", profile=PROFILE, wrap="check", **options)
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))


def calls(context, rounds):
    """The statistics of calls with operands on the host and on the GPU, but never all there."""
    expected = oracle.forward(X, W, padding=1).astype(np.float32)
    places = list(itertools.product((np.array, DeviceArray), repeat=3))[:-1]
    operands = [[put(a) for put, a in zip(p, (X, W, expected), strict=True)] for p in places]
    for x, w, out in operands * rounds:
        context.conv2d(x, w, padding=1, out=out)
        yield context.stats
        assert_equal(out.get() if isinstance(out, DeviceArray) else out, expected)


def test_calls_are_exact_while_plans_change():
    """When they do is the clock's to say; that they do so by and by model/test_timed.py shows."""
    with opened(planning="gradual") as context:
        first, *others = calls(context, 20)
        assert context.check_reports() == []
    assert first.prepared > 0
    assert first.planning_seconds > 0.0
    for one in others:
        assert one.planning_seconds > 0.0 or one.prepared == 0
