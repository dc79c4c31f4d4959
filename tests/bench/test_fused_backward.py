"""Both ways to the gradients of a fused layer give the same elements, and count their bytes."""

from __future__ import annotations

import numpy as np
import pytest
from python.support import integers

import oocdnn
from oocdnn.bench.gpu.wires import Wires
from oocdnn.bench.studies.fused_backward import Backward
from oocdnn.bench.studies.timed import Timer, total

IMAGES, CHANNELS, SIZE, REPEATS = 2, 3, 8, 2


class Gauge:
    """Rates of no memory, which is overwritten as by one that copies."""

    def rates(self, source, target, repeats) -> Wires:
        target[:] = 255
        return Wires(1.0, 1.0, 2.0)


@pytest.fixture(scope="module")
def backward():
    shape = (IMAGES, CHANNELS, SIZE, SIZE)
    x, w = integers(shape, 1), integers((CHANNELS, CHANNELS, 3, 3), 2)
    room = np.empty_like(x), np.empty_like(x)
    dz = integers((IMAGES, CHANNELS, SIZE // 2, SIZE // 2), 3)
    with oocdnn.Context("cpu", "1MiB", profile="none") as context:
        timer = Timer(context, Gauge(), REPEATS)
        made = Backward(timer, x, w, integers((CHANNELS,), 4), room, dz, None)
        yield made, made.separate(), made.fused()


def test_both_ways_give_the_same_elements(backward):
    made, *_ = backward
    for apart, fused in zip(made.gradients["separate"], made.gradients["fused"], strict=True):
        assert np.any(fused)
        np.testing.assert_array_equal(fused, apart)


def test_every_byte_is_counted_once(backward):
    _, separate, fused = backward
    y, z, w, b = IMAGES * CHANNELS * SIZE * SIZE * 4, IMAGES * CHANNELS * 64, 324, 12
    winners, alive, both = IMAGES * CHANNELS * 4, IMAGES * CHANNELS * 8, IMAGES * CHANNELS * 4 * 2
    amounts = [(one.bytes_in, one.bytes_out) for one in separate]
    assert amounts == [
        (z + winners + 12, y), (y + alive + 12, y), (y + w, y), (2 * y, w), (y, b),
    ]  # fmt: skip
    assert [(one.bytes_in, one.bytes_out) for one in fused] == [
        (z + both + y + w, y + w + b), (z + both + w, y), (z + both + y, w), (z + both, b),
    ]  # fmt: skip


def test_a_line_and_a_sum(backward):
    _, separate, fused = backward
    assert all(len(one.seconds) == REPEATS for one in (*separate, *fused))
    assert total(separate) > 0
    assert all(one.name in one.line() for one in fused)
