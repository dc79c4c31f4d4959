"""The device memory of a context: what stats say that it has taken, at most."""

import numpy as np

import oocdnn

X, W = np.ones((8, 4, 16, 16), np.float32), np.ones((4, 4, 3, 3), np.float32)
PROBLEM = "conv2d:fwd x8x4x16x16 w4x4x3x3 pad1"


def peak(ctx: oocdnn.Context, samples: int) -> int:
    ctx.conv2d(X[:samples], W, padding=1)
    return ctx.stats.peak_device_bytes


def test_the_peak_stays_when_less_memory_is_taken_again():
    """Measuring gives the arena's memory back, and the next call takes what it needs."""
    with oocdnn.Context("cpu", "1MiB", profile="none", engine="direct") as ctx:
        most = peak(ctx, 8)
        ctx.measure_parts(PROBLEM)
        assert peak(ctx, 1) == most
        assert ctx.stats.device_allocations == 1
        ctx.release()
        assert peak(ctx, 1) < most
