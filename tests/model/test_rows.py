"""Contiguous rows of the caller's memory that lie far apart: they cost more than others, but where
they are made of whole pieces of 64 KiB."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from geometry import core
from geometry.cases import dense, depths, make, orders, tapered
from geometry.core import Direction, DType, PoolMode, Problem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import NO_ROWS, Profile
from model.simulated import candidate_of, problem_of, simulated

from oocdnn.perfmodel.rates import Engine
from oocdnn.perfmodel.schedule import walk
from oocdnn.perfmodel.tiling import Tiling

thorough = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
PIECE = 65536
N, K, C, H = 0, 2, 3, 5


@st.composite
def broad(draw) -> Problem:
    """Images of whose rows several make a piece, or one does, or none; every plane is far from the
    next. All rows of x are reached."""
    direction, dtype = draw(st.sampled_from(Direction)), draw(st.sampled_from(DType))
    bias = direction == Direction.BWD_BIAS
    taps, stride = (1, 1) if bias else (draw(st.integers(1, 5)), draw(st.integers(1, 2)))
    before, after = (0, 0) if bias else (draw(st.integers(0, taps - 1)) for _ in "ab")
    height = (draw(st.integers(8, 24)) - 1) * stride + taps - before - after
    row = draw(st.sampled_from((2, 3, 4, 6, 8, 16))) * 4096
    problem = make(
        direction, n=draw(st.integers(1, 2)), k=draw(st.integers(1, 2)),
        c=1 if bias else draw(st.integers(1, 2)),
        input=(1, height, row // (4, 8, 2, 2)[dtype]), filter=(1, taps, 1), stride=(1, stride, 1),
        pad_before=(0, before, 0), pad_after=(0, after, 0),
    )  # fmt: skip
    problem.dtype = dtype
    if direction != Direction.FWD and draw(st.booleans()):
        draw_windows(draw, problem)
    return problem


def draw_windows(draw, problem: Problem) -> None:
    """Over rows of y, of which each plane of z is far from the next too: dy is restored."""
    pool, extent = problem.pool, problem.shape.out[1]
    pool.mode, problem.clips = draw(st.sampled_from(list(PoolMode)[1:])), draw(st.booleans())
    pool.window[1], pool.stride[1] = draw(st.integers(1, min(extent, 3))), draw(st.integers(1, 2))
    core.set_pooled(problem)
    dense(problem)


def put_apart(problem: Problem) -> None:
    """Leaves room behind each plane. Else a box of all rows of a plane that is cut would be one row
    with the next plane's, which a price of all tiles at once takes for two."""
    for name in ("x", "y", "z", "saved"):
        operand = core.OPERANDS.index(name)
        if not core.uses(problem, operand):
            continue
        n, g, c, d, h, w = core.dims_of(problem, operand)
        problem.stride[operand][:] = core.strides_of([n, g, c, d, h + 1, w])


@st.composite
def broad_runs(draw) -> tuple:
    problem = draw(broad())
    length = list(core.make_tiling(problem, [2**40] * 7).extent)
    for axis in (N, K, C, H):
        if draw(st.booleans()):
            length[axis] = draw(st.integers(1, length[axis]))
    tiling = core.make_tiling(problem, length, draw(st.booleans()))
    if core.counts(tiling)[H] > 1:
        put_apart(problem)
        if draw(st.booleans()):
            tiling = draw(tapered(problem, tiling, H))
    return problem, tiling, draw(orders(problem)), draw(depths)


class Counter:
    """Rows of boxes, element by element."""

    def __init__(self) -> None:
        self._known: dict[tuple, int] = {}

    def far(self, extents: Sequence[int], strides: Sequence[int], size: int) -> int:
        """Of the box's rows, those that cost more than a near one."""
        key = (*extents, *strides, size)
        if key not in self._known:
            self._known[key] = self._counted(extents, strides, size)
        return self._known[key]

    @staticmethod
    def _counted(extents: Sequence[int], strides: Sequence[int], size: int) -> int:
        places = np.zeros(1, dtype=np.int64)
        for extent, stride in zip(extents, strides, strict=True):
            places = np.add.outer(places, np.arange(extent) * (stride * size)).ravel()
        if places.size == 0:
            return 0
        places.sort()
        begins = np.flatnonzero(np.diff(places, prepend=-PIECE) != size)
        lengths = np.diff(np.append(begins, places.size)) * size
        apart = np.diff(places[begins], prepend=places[0] - PIECE)
        return int(np.count_nonzero((apart >= PIECE) & (lengths % PIECE != 0)))


COUNTER = Counter()


def far_rows(problem: Problem, tiling, order, rings) -> tuple[int, int]:
    """Of all fetches, and of all drains."""
    seen, candidate = problem_of(problem), candidate_of(tiling, order, rings, Engine())
    cut = Tiling(seen, candidate.lengths, candidate.padding_as_data, candidate.taper)
    fetched = drained = 0

    def count(operand, rows) -> int:
        return COUNTER.far(rows, seen.strides_of(operand), seen.size(operand))

    for step in walk(cut, candidate.order, candidate.depths):
        fetched += sum(count(entry.operand, entry.fetched) for entry in step.entries)
        if step.ends:
            drained += sum(count(out.operand, out.rows) for out in step.exits)
    return fetched, drained


@thorough
@given(broad_runs())
def test_far_rows_are_counted_as_they_lie_in_memory(run):
    """A row costs a second, its bytes nearly none, and all else nothing."""
    dear = {"far_fetch_row_bytes": 1e12, "far_drain_row_bytes": 1e12}
    rates = {f"{name}_bytes_per_second": 1e12 for name in ("fetch", "drain", "both")}
    profile = Profile(**rates, **(NO_ROWS | dear), copy_seconds=0)
    cost = planner.price(*run, profile, engines=planner.DIRECT)
    counted = tuple(round(cost[f"{name}_seconds"]) for name in ("fetch", "drain"))
    assert counted == far_rows(*run)


@thorough
@given(broad_runs())
def test_the_simulation_agrees(run):
    rows = dict(zip(planner.ROWS, (10, 3000, 20, 50000), strict=True))
    profile = Profile(**rows, flops_fallback=1e12)
    price = planner.price(*run, profile, engines=planner.DIRECT)
    outcome = simulated(*run, profile)
    for name in ("seconds", "fetch_seconds", "compute_seconds", "drain_seconds"):
        assert price[name] == pytest.approx(getattr(outcome, name), rel=1e-9, abs=0), name


def test_many_tiles_whose_rows_differ_are_counted_as_one_by_one():
    """Tiles whose boxes begin before x have a row more each: of 16 KiB, each fourth tile has whole
    pieces. The stretch of them is counted at once."""
    problem = make(
        Direction.FWD, c=2, input=(1, 64, 4096), filter=(1, 61, 1), pad_before=(0, 60, 0)
    )
    tiling = core.make_tiling(problem, [1, 1, 1, 2, 1, 1, 4096])
    run = problem, tiling, core.default_order(problem), [1] * len(core.OPERANDS)
    rates = {f"{name}_bytes_per_second": 1e12 for name in ("fetch", "drain", "both")}
    profile = Profile(**rates, **(NO_ROWS | {"far_fetch_row_bytes": 1e12}), copy_seconds=0)
    cost = planner.price(*run, profile, engines=planner.DIRECT)
    tiles = range(64)  # of which tile i has rows 0 to i, or the last 61
    partial = sum(min(i + 1, 61) % 4 != 0 for i in tiles)
    assert round(cost["fetch_seconds"]) == 2 * partial + 1  # of two channels; and w


# Beside convolutions that use the memory, GB/s of fetches and drains: rows of 48 KiB without gaps,
# and one each MiB (docs/results/h200/copies.txt). A near row's figure is the H200's profile's.
DENSE, FAR = (55.2, 55.2), (46.6, 41.9)
ROW, NEAR = 49152, 264
# Of TF32 64 tiles of 2.64 ms each (there), of bf16 95 ms in all (floor.txt).
FLOPS = {DType.F32: 470e12, DType.BF16: 830e12}


def beside_convolutions(dtype: int) -> Profile:
    fetch, drain = (ROW * (dense / far - 1) for dense, far in zip(DENSE, FAR, strict=True))
    rows = dict(zip(planner.ROWS, (NEAR, fetch, NEAR, drain), strict=True))
    return Profile(
        fetch_bytes_per_second=DENSE[0] * 1e9,
        drain_bytes_per_second=DENSE[1] * 1e9,
        both_bytes_per_second=102.4e9,
        move_bytes_per_second=2e12,
        **rows,
        copy_seconds=5e-6,
        run_seconds=10e-6,
        flops_fallback=FLOPS[DType(dtype)],
    )


@pytest.mark.parametrize(
    "text",
    [
        "conv2d:fwd x1x2048x1024x1024 w2048x2048x3x3 pad1 f32/tf32",
        "conv2d:fwd x1x2048x1024x1024 w2048x2048x3x3 pad1 bf16",
        "conv2d:bwd_data x1x2048x1024x1024 w2048x2048x3x3 pad1 f32/tf32",
        "conv2d:bwd_filter x1x2048x1024x1024 w2048x2048x3x3 pad1 bf16",
    ],
)
def test_tiles_have_rows_of_whole_pieces(text):
    """Rows of a plane were as many as made even tiles: 12 of 4 KB, and the call took 224 ms for
    205 with 16."""
    problem = core.parse(text)
    best = planner.search(problem, 2 << 30, beside_convolutions(problem.dtype)).ranked[0]
    row = 1024 * (2 if problem.dtype == DType.BF16 else 4)
    assert best.counts()[6] == 1
    assert best.counts()[H] > 1
    assert best.tiling.length[H] * row % PIECE == 0
