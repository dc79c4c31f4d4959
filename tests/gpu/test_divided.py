"""Batches that are divided where their engine wants more workspace than it may have, on the device
and where the arrays lie. On the fake driver, with a fake cuDNN whose best engine wants workspace
for every sample. In how many parts is a matter of time there, so only the fewest are known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from gpu.suite import FAKE_CUDNN, FAKE_DRIVER, run_suite
from model.planner import Profile
from python.support import assert_equal, integers

import oocdnn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE, DeviceArray

SAMPLE = 64 << 10  # bytes of workspace
HUNGRY = "e20"
MOVES = {"stride": 1, "padding": 1}

inside = pytest.mark.skipif(not FAKE, reason="runs in the suite below")


@pytest.mark.skipif(FAKE or not FAKE_CUDNN.exists(), reason=f"{FAKE_CUDNN} is not there")
def test_divided_batches(tmp_path: Path) -> None:
    run_suite(
        tmp_path,
        "gpu/test_divided.py",
        libraries=(FAKE_DRIVER, FAKE_CUDNN),
        OOCDNN_CUDNN_LIBRARY=str(FAKE_CUDNN),
        OOC_FAKE_HUNGRY=str(SAMPLE),
    )


def context(budget: str | int = "64MiB", **options) -> oocdnn.Context:
    return oocdnn.Context("cuda", budget, engine="cudnn-nchw", wrap="check", **options)


def forward(ctx: oocdnn.Context, n: int = 16, calls: int = 1) -> oocdnn.Stats:
    x, w = integers((n, 4, 8, 8)), integers((4, 4, 3, 3))
    reference = oracle.forward(x, w, **MOVES)
    out = DeviceArray(np.full(reference.shape, np.nan, np.float32))
    a, b = DeviceArray(x), DeviceArray(w)
    for _ in range(calls):
        ctx.conv2d(a, b, out=out, **MOVES)
    assert_equal(out.get(), reference)
    assert ctx.check_reports() == []
    return ctx.stats


@inside
def test_nothing_is_divided_where_there_is_room():
    with context() as ctx:
        stats = forward(ctx)
    assert stats.tiles == 1
    assert HUNGRY in stats.engine
    assert stats.peak_device_bytes == 16 * SAMPLE


@inside
@pytest.mark.parametrize(("limit", "parts"), [(16, 1), (15, 2), (8, 2), (7, 4), (2, 8), (1, 16)])
def test_parts_that_the_limit_has_room_for(limit, parts):
    with context(workspace=limit * SAMPLE) as ctx:
        stats = forward(ctx)
    assert stats.split["n"] == stats.tiles >= parts
    assert HUNGRY in stats.engine
    assert stats.peak_device_bytes <= limit * SAMPLE


@inside
def test_a_shorter_part_where_the_batch_does_not_divide():
    with context(workspace=4 * SAMPLE) as ctx:
        assert forward(ctx, n=13).split["n"] in (4, 7, 13)
        assert forward(ctx, n=3).split["n"] in (1, 2, 3)


@inside
def test_without_room_for_a_sample_another_engine_runs():
    with context(workspace=SAMPLE - 1) as ctx:
        stats = forward(ctx)
    assert HUNGRY not in stats.engine
    with context(workspace=0) as ctx:
        stats = forward(ctx)
    assert stats.peak_device_bytes < 640


@inside
def test_a_budget_divides_too():
    with context(10 * SAMPLE) as ctx:
        stats = forward(ctx)
    assert HUNGRY in stats.engine
    assert stats.split["n"] > 1
    assert stats.peak_device_bytes <= 10 * SAMPLE


@inside
def test_after_the_first_call_nothing_is_prepared_or_booked():
    with context(workspace=4 * SAMPLE) as ctx:
        stats = forward(ctx, calls=2)
        assert stats.tiles > 1
        assert stats.prepared == stats.device_allocations == 0


@inside
def test_a_division_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("OOCDNN_PLANS", str(tmp_path / "plans.sqlite"))
    seen = []
    for _ in range(2):
        with context(workspace=4 * SAMPLE) as ctx:
            seen.append(forward(ctx))
    assert seen[0].tiles == seen[1].tiles > 1
    assert seen[1].prepared == 1 < seen[0].prepared
    with context(workspace=SAMPLE) as ctx:  # another limit, another plan
        assert forward(ctx).tiles == 16


@inside
@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("n", [8, 11])
def test_every_direction_with_every_beta(beta, n):
    """µ-cuDNN ran all parts of a filter's gradient with the caller's beta: with 0 only the last was
    left."""
    x, w = integers((n, 4, 8, 8), 1), integers((4, 4, 3, 3), 2)
    y = oracle.forward(x, w, **MOVES)
    dy = integers(y.shape, 3)
    with context(workspace=2 * SAMPLE) as ctx:

        def check(problem, function, operands, total, *shape):
            sizes = f"x{n}x4x8x8 w4x4x3x3 pad1 beta{beta:g}{' old@dev' if beta else ''}"
            ctx.use_plan(f"conv2d:{problem} {sizes}", "n2 slots 1")
            old = integers(total.shape, 4)
            out = DeviceArray(old)
            function(*(DeviceArray(one) for one in operands), *shape, out=out, beta=beta, **MOVES)
            assert_equal(out.get(), oracle.finish(total, beta=beta, old=old))
            assert ctx.stats.split["n"] == -(-n // 2)
            assert HUNGRY in ctx.stats.engine

        check("fwd x@dev w@dev y@dev", ctx.conv2d, (x, w), y)
        check(
            "bwd_data dy@dev w@dev dx@dev",
            ctx.conv_backward_data,
            (dy, w),
            oracle.backward_data(dy, w, x.shape, **MOVES),
            x.shape,
        )
        check(
            "bwd_filter x@dev dy@dev dw@dev",
            ctx.conv_backward_filter,
            (x, dy),
            oracle.backward_filter(x, dy, w.shape, **MOVES),
            w.shape,
        )
        assert ctx.check_reports() == []


PROBLEM = "conv2d:fwd x16x4x8x8 w4x4x3x3 pad1"


@inside
def test_what_is_measured_is_run_by_its_bytes():
    with context() as ctx:
        parts = ctx.measure_parts(PROBLEM)
        # The hungry engine, then one that wants 640 bytes, then one that wants nothing.
        assert {part.samples for part in parts} == {16, 8, 4, 2, 1}
        for part in parts:
            assert part.seconds > 0
            assert part.workspace_bytes in (part.samples * SAMPLE, 640, 0)
        found = ctx.divisions(PROBLEM, "undivided")
        assert found[0].workspace_bytes == 16 * SAMPLE
        assert found[0].samples == [16]
        found = ctx.divisions(PROBLEM)
        sizes = [division.workspace_bytes for division in found]
        assert sizes == sorted(sizes, reverse=True)
        x, w = DeviceArray(integers((16, 4, 8, 8))), DeviceArray(integers((4, 4, 3, 3)))
        out = DeviceArray(np.zeros((16, 4, 8, 8), np.float32))
        for division in found:
            ctx.conv2d(x, w, out=out, workspace=division.workspace_bytes, **MOVES)
            assert (HUNGRY in ctx.stats.engine) == (division.workspace_bytes >= SAMPLE)


@inside
def test_one_workspace_for_many_layers():
    """Two layers share what one of them could use alone."""
    with context() as ctx:
        problems = {"first": PROBLEM, "second": PROBLEM.replace("fwd", "bwd_data")}
        layers = {name: ctx.divisions(problem) for name, problem in problems.items()}
        shared = oocdnn.workspace.divide_workspace(layers, 16 * SAMPLE)
        assert shared.workspace_bytes <= 16 * SAMPLE
        assert all(one.workspace_bytes >= SAMPLE for one in shared.chosen.values())


@inside
def test_bad_measurements():
    with context() as ctx:
        with pytest.raises(oocdnn.InvalidProblem, match="no policy 'some'"):
            ctx.divisions(PROBLEM, "some")  # type: ignore[arg-type]
        with pytest.raises(oocdnn.InvalidProblem, match="batch is empty"):
            ctx.divisions("conv2d:fwd x0x4x8x8 w4x4x3x3 pad1")
    with context(4096) as ctx, pytest.raises(oocdnn.OutOfMemory, match="cannot be timed within"):
        ctx.divisions("conv2d:fwd x2x64x64x64 w4x64x3x3 pad1")


@inside
def test_a_limit_that_no_engine_keeps_says_so():
    x, w = DeviceArray(integers((2, 4, 8, 8))), DeviceArray(integers((4, 4, 3, 3)))
    out = DeviceArray(np.zeros((2, 4, 8, 8), np.float32))
    with context() as ctx:
        ctx.conv2d(x, w, out=out, workspace=0, **MOVES)  # one that wants none
        with pytest.raises(oocdnn.InvalidProblem, match="workspace is -1; it must be at least 0"):
            ctx.conv2d(x, w, out=out, workspace=-1, **MOVES)
        with pytest.raises(oocdnn.InvalidProblem, match="workspace is 'much'"):
            ctx.conv2d(x, w, out=out, workspace="much", **MOVES)  # type: ignore[arg-type]
    with pytest.raises(
        oocdnn.InvalidProblem, match="limit of workspace: 'much' is not a number of bytes"
    ):
        context(workspace="much")


@inside
def test_no_far_slower_engine_runs_the_whole_for_want_of_memory(tmp_path):
    """The plain loop wants no workspace, and was once taken for a budget that others do not fit."""
    rates = {"direct": 1e8, "cudnn-nchw": 1e12, "cudnn-nhwc": 1e12}
    profile = tmp_path / "profile.txt"
    profile.write_text(Profile(flops={f"{e}/f32/fwd": r for e, r in rates.items()}).text())
    with oocdnn.Context("cuda", 10 * SAMPLE, profile=profile, wrap="check") as ctx:
        stats = forward(ctx)
        plan = ctx.plan(f"{PROBLEM} x@dev w@dev y@dev")
    assert HUNGRY in stats.engine
    assert stats.tiles == plan.tiles > 1
    assert plan.host_bytes == 0
