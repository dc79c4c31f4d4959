"""The defects of ooc_cuDNN and µ-cuDNN that a call can show, each as a call that they got wrong.

Numbers are those of ooc_cuDNN's list of defects, letters those of µ-cuDNN's. Files of the same kind
in tests/geometry and tests/model guard the others.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracle
import pytest

import oocdnn

N, C, K, SIDE = 7, 6, 6, 32
BUDGET = "48KiB"  # an image of x has 24 KiB
ENGINES = pytest.mark.parametrize("engine", ["", "direct", "reference"])


def integers(shape, seed, dtype=np.float32):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


X, DY = integers((N, C, SIDE, SIDE), 1), integers((N, K, SIDE, SIDE), 2)
W = integers((K, C, 3, 3), 3)
Y = oracle.forward(X, W, padding=1)
DX = oracle.backward_data(DY, W, X.shape, padding=1)
DW = oracle.backward_filter(X, DY, W.shape, padding=1)


def context(budget=BUDGET, **options):
    return oocdnn.Context("cpu", budget, profile="none", **options)


@ENGINES
def test_4_old_values_wait_for_a_slot_that_is_still_drained(engine):
    """With beta, y's old values were fetched into a slot that the tile before had not left."""
    old = integers(Y.shape, 4)
    with context(engine=engine, wrap="check") as ctx:
        y = ctx.conv2d(X, W, padding=1, beta=1, out=old.copy())
        assert ctx.stats.tiles >= N
        assert ctx.check_reports() == []
    np.testing.assert_array_equal(y, old + Y)


@ENGINES
def test_5_workspace_is_in_the_budget_and_used_by_one_run_at_a_time(engine):
    """Three streams shared one workspace, which no limit counted."""
    with context(engine=engine, wrap="check") as ctx:
        plan = ctx.plan(f"conv2d:fwd x{N}x{C}x{SIDE}x{SIDE} w{K}x{C}x3x3 pad1")
        np.testing.assert_array_equal(ctx.conv2d(X, W, padding=1), Y)
        assert ctx.stats.peak_device_bytes == plan.booked_bytes <= plan.budget_bytes
        assert ctx.check_reports() == []


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_6_b_a_tile_comes_while_another_leaves(direction):
    """Backward data waited for the last tile's way out before the next one's way in, and the host
    waited for each micro-batch. Here a wire makes each way take 20 ms."""
    with context(link_gb_per_s=0.001, trace=True, threads=1) as ctx:
        if direction == "forward":
            ctx.conv2d(X[:4], W, padding=1)
        else:
            ctx.conv_backward_data(DY[:4], W, X[:4].shape, padding=1)
        events = json.loads(ctx.take_trace())["traceEvents"]
    fetches = [e for e in events if e["name"].startswith("fetch")]
    drains = [e for e in events if e["name"].startswith("drain")]
    assert len(drains) >= 4
    assert any(
        fetch["args"]["step"] > drain["args"]["step"] and fetch["ts"] < drain["ts"] + drain["dur"]
        for fetch in fetches
        for drain in drains
    )


@pytest.mark.parametrize("beta", [0, 1])
def test_8_a_a_filter_gradient_stays_until_it_is_complete(beta):
    """dw crossed for every tile and the caller's beta was ignored, or was applied to every
    micro-batch, so that with beta = 0 only the last one's gradient was left."""
    old = integers(W.shape, 5)
    with context(wrap="check") as ctx:
        dw = ctx.conv_backward_filter(X, DY, W.shape, padding=1, beta=beta, out=old.copy())
        assert any(ctx.stats.split[axis] > 1 for axis in "nhw")  # dw is a sum over tiles
        assert ctx.stats.bytes_d2h == W.nbytes
        assert ctx.check_reports() == []
    np.testing.assert_array_equal(dw, beta * old + DW)


def test_12_calls_leave_nothing_behind():
    """Each call created buffers, streams and events, and destroyed few of them."""

    def held():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    with context() as ctx:
        ctx.conv2d(X, W, padding=1)
        before = held()
        for _ in range(5):
            ctx.conv2d(X, W, padding=1)
            assert (ctx.stats.device_allocations, ctx.stats.prepared) == (0, 0)
        assert held() == before


def test_14_the_next_call_has_the_memory_of_the_last():
    """Memory was handed out first come, first served, and nothing was used twice."""
    with context() as ctx:
        for _ in range(2):
            np.testing.assert_array_equal(ctx.conv2d(X, W, padding=1), Y)
            dx = ctx.conv_backward_data(DY, W, X.shape, padding=1)
            np.testing.assert_array_equal(dx, DX)
            assert ctx.stats.peak_device_bytes <= ctx.stats.budget_bytes
        assert ctx.stats.device_allocations == 0


def test_16_strides_of_an_array_are_not_ignored():
    wide = np.full((N, C, SIDE, 2 * SIDE), 77, np.float32)
    wide[..., ::2] = X
    with context() as ctx:
        np.testing.assert_array_equal(ctx.conv2d(wide[..., ::2], W, padding=1), Y)


def test_16_scalars_of_float64_are_float64():
    """Alpha and beta were float, whatever the tensors."""
    x, w, old = X.astype(np.float64), W.astype(np.float64), integers(Y.shape, 6, np.float64)
    with context(budget="96KiB") as ctx:
        y = ctx.conv2d(x, w, padding=1, alpha=1 / 3, beta=0.1, out=old.copy())
    np.testing.assert_allclose(y, Y / 3 + 0.1 * old, rtol=0, atol=1e-13)


def test_16_e_g_groups_width_and_three_axes_are_split():
    """Groups were refused, only N, C, K and H were split (only N in µ-cuDNN), and images had two
    axes."""
    x, w = integers((1, 4, 3, 4, 4096), 7), integers((6, 2, 2, 3, 3), 8)
    with context() as ctx:
        y = ctx.conv3d(x, w, padding=1, groups=2)
        assert ctx.stats.split["w"] > 1
    np.testing.assert_array_equal(y, oracle.forward(x, w, padding=1, groups=2))


def test_17_strides_past_what_a_pitch_can_be():
    """Copies took the distance of two images for a pitch, which ends at 2^31 - 1 bytes."""
    apart = (1 << 31) + 4096
    x, w = integers((2, 1, 8, 8), 9), integers((1, 1, 3, 3), 10)
    memory = np.empty((apart + 4096) // 4, np.float32)  # of which few pages are ever touched
    for spread in ((2, 1, 8, 8), (1, 2, 8, 8)):  # two images, two channels
        far = np.ndarray(spread, np.float32, memory, strides=(apart, apart, 32, 4))
        far[...] = x.reshape(spread)
        filters = np.concatenate([w] * spread[1], axis=1)
        with context(budget="4KiB") as ctx:
            y = ctx.conv2d(far, filters, padding=1)
        np.testing.assert_array_equal(y, oracle.forward(x.reshape(spread), filters, padding=1))


def test_e_a_last_batch_that_does_not_divide():
    """Layers had one batch size, and a smaller last batch aborted."""
    with context(budget="128KiB") as ctx:
        for images in (N, 3, 1, N):
            y = ctx.conv2d(X[:images], W, padding=1)
            np.testing.assert_array_equal(y, Y[:images])


def test_f_threads_plan_at_the_same_time():
    """The cache of plans was locked in part."""

    def call(number, ctx):
        images, rows = 1 + number % 4, 8 + number % 12
        y = ctx.conv2d(X[:images, :, :rows], W, padding=1)
        return np.array_equal(y, oracle.forward(X[:images, :, :rows], W, padding=1))

    with context() as ctx, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: call(number, ctx), range(200)))
