"""Calls like earlier ones, with arrays on the GPU.

On a machine without a GPU test_suites.py runs this file on the fake driver.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
from python.support import assert_equal, channels_last, integers

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


def host(array):
    return array.get() if isinstance(array, DeviceArray) else np.asarray(array)


class LikeCupys(DeviceArray):
    """What calls look at of one of CuPy's arrays."""

    shape = property(lambda self: self.like.shape)
    strides = property(lambda self: self.like.strides)
    data = property(lambda self: SimpleNamespace(ptr=self.pointer.value))


@pytest.mark.parametrize("on_gpu", list(itertools.product((False, True), repeat=3)), ids=str)
def test_calls_like_earlier_ones(ctx, monkeypatch, on_gpu):
    """With CuPy's arrays and NumPy's: other places, another stream, another memory order."""
    streams = itertools.cycle((1, 2))
    cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=next(streams)))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=LikeCupys, cuda=cuda))
    place = [LikeCupys if there else np.array for there in on_gpu]
    long_way, own = [], oocdnn._core.native.NativeContext.run

    def run(self, call, *arguments):
        long_way.append(call.stream)
        own(self, call, *arguments)

    monkeypatch.setattr(oocdnn._core.native.NativeContext, "run", run)
    for order, seed in itertools.product((np.ascontiguousarray, channels_last), range(3)):
        x, w = order(integers((2, 8, 30, 41), seed)), integers((12, 8, 3, 3), seed)
        reference = oracle.forward(x, w, padding=1)
        out = order(np.zeros(reference.shape, np.float32))
        placed = [put(values) for put, values in zip(place, (x, w, out), strict=True)]
        assert ctx.conv2d(*placed[:2], padding=1, out=placed[2]) is placed[2]
        assert_equal(host(placed[2]), reference)
        assert placed[2].strides == out.strides
    if on_gpu[0]:
        with pytest.raises(oocdnn.InvalidProblem, match="out overlaps x"):
            oocdnn.conv2d(placed[0], np.zeros((8, 8, 1, 1), np.float32), out=placed[0])
    assert len(long_way) == 2
    assert all(stream in ((1, 2) if any(on_gpu) else (0,)) for stream in long_way)
