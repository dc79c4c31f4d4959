"""Problems and tilings for the property tests: by hand, and drawn by hypothesis."""

from __future__ import annotations

import math

import oracle
from geometry import core
from geometry.core import Activation, Direction, PoolMode, Problem
from hypothesis import strategies as st

# A simulated schedule stays below this many steps.
MOST_TILES = 48


def dense(problem: Problem) -> Problem:
    """Gives every used operand the strides of a dense array."""
    for operand in range(len(core.OPERANDS)):
        if core.uses(problem, operand):
            problem.stride[operand][:] = core.strides_of(core.dims_of(problem, operand))
    return problem


def make(direction, **shape) -> Problem:
    """A dense float32 problem of three axes; y's extents follow from the others."""
    problem = Problem(direction=direction, rank=3, alpha=1.0, beta=0.0)
    problem.epilogue.residual_alpha = 1.0
    s = problem.shape
    for name in ("pooled", "saved"):
        getattr(s, name)[:] = (1, 1, 1)
    for name in ("window", "stride"):
        getattr(problem.pool, name)[:] = (1, 1, 1)
    s.n, s.g, s.k, s.c = (shape.pop(name, 1) for name in "ngkc")
    for name in ("input", "filter", "stride", "dilation"):
        getattr(s, name)[:] = shape.pop(name, (1, 1, 1))
    for name in ("pad_before", "pad_after"):
        getattr(s, name)[:] = shape.pop(name, (0, 0, 0))
    assert not shape, f"no size is called {list(shape)}"
    for a in range(3):
        s.out[a] = core.output_extent(
            s.input[a], s.pad_before[a], s.pad_after[a], s.filter[a], s.stride[a], s.dilation[a]
        )
    return dense(problem)


@st.composite
def axes(draw, rank: int):
    """One spatial axis: filters wider than the input, pads wider than filter or tile, rows that no
    tap reaches."""
    taps = draw(st.integers(1, 3 if rank == 3 else 4))
    dilation, stride = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    reach = (taps - 1) * dilation + 1
    before = draw(st.integers(0, reach + 2))
    after = draw(st.one_of(st.just(before), st.integers(0, reach + 2)))
    out = draw(st.integers(1, {1: 12, 2: 8, 3: 4}[rank]))
    unreached = draw(st.integers(0, stride - 1))
    extent = max(1, (out - 1) * stride + reach - before - after + unreached)
    return extent, taps, before, after, stride, dilation


@st.composite
def problems(draw, directions=tuple(Direction), epilogues: bool = True) -> Problem:
    direction, rank = draw(st.sampled_from(directions)), draw(st.sampled_from((1, 2, 2, 3)))
    unseen = [(1, 1, 0, 0, 1, 1)] * (3 - rank)
    seen = [draw(axes(rank)) for _ in range(rank)]
    if direction == Direction.BWD_BIAS:
        seen = [(extent, 1, 0, 0, 1, 1) for extent, *_ in seen]
    extents, taps, before, after, stride, dilation = zip(*unseen, *seen, strict=True)
    problem = make(
        direction,
        n=draw(st.integers(1, 3)), g=draw(st.integers(1, 3)), k=draw(st.integers(1, 4)),
        c=1 if direction == Direction.BWD_BIAS else draw(st.integers(1, 4)),
        input=extents, filter=taps, pad_before=before, pad_after=after, stride=stride,
        dilation=dilation,
    )  # fmt: skip
    problem.rank = rank
    problem.flip = draw(st.booleans())
    if epilogues:
        draw_epilogue(draw, problem)
        if draw(st.booleans()):
            draw_pool(draw, problem)
    return dense(problem)


def draw_pool(draw, problem: Problem) -> None:
    """Windows that overlap, touch or leave gaps, with any padding; and saving, with or without."""
    forward = problem.direction == Direction.FWD
    problem.saves = forward and draw(st.booleans())
    behind = draw(st.sampled_from(("", "clips", "slopes"))) if not forward else ""
    problem.clips, problem.slopes = behind == "clips", behind == "slopes"
    if draw(st.integers(0, 3)) > 0:
        pool = problem.pool
        problem.beta = 0.0 if forward else problem.beta
        pool.mode = draw(st.sampled_from(list(PoolMode)[1:]))
        pool.ceil = draw(st.booleans())
        for a in range(3 - problem.rank, 3):
            extent = problem.shape.out[a]
            pool.window[a] = window = draw(st.integers(1, min(extent + 1, 4)))
            pool.stride[a] = draw(st.integers(1, 4))
            pool.pad_before[a] = before = draw(st.integers(0, window - 1))
            pool.pad_after[a] = after = draw(st.integers(0, window - 1))
            if oracle.pooled_extent(extent, before, after, window, pool.stride[a], pool.ceil) < 1:
                pool.window[a], pool.pad_before[a], pool.pad_after[a] = 1, 0, 0
    core.set_pooled(problem)


def draw_tables(draw, problem: Problem) -> None:
    """A prologue and sums, where the problem may have them."""
    if problem.direction not in (Direction.FWD, Direction.BWD_DATA):
        return
    if core.stays(problem, core.Y) and problem.direction == Direction.BWD_DATA:
        return  # dy is made on the device
    problem.prologue.affine = draw(st.booleans())
    problem.prologue.activation = draw(st.sampled_from((Activation.IDENTITY, Activation.RELU)))
    problem.sums = not (problem.pool.mode or problem.saves) and draw(st.booleans())
    core.set_pooled(problem)


@st.composite
def joint_problems(draw) -> Problem:
    """dx along with dw or db or both, or dw along with db; windows and bits or neither."""
    dx = draw(st.sampled_from((True, True, False)))
    direction = Direction.BWD_DATA if dx else Direction.BWD_FILTER
    problem = draw(problems((direction,), epilogues=False))
    some = ((True, True), (True, False), (False, True))
    problem.also.dw, problem.also.db = draw(st.sampled_from(some)) if dx else (False, True)
    shape = problem.shape
    for a in range(3):
        reach = (shape.filter[a] - 1) * shape.dilation[a] + 1
        if problem.also.db and dx:
            shape.pad_before[a] = min(shape.pad_before[a], reach - 1)
            shape.pad_after[a] = min(shape.pad_after[a], reach - 1)
        padding = shape.pad_before[a] + shape.pad_after[a]
        shape.input[a] = max(shape.input[a], reach - padding)
        shape.out[a] = core.output_extent(
            shape.input[a], shape.pad_before[a], shape.pad_after[a], shape.filter[a],
            shape.stride[a], shape.dilation[a],
        )  # fmt: skip
    draw_pool(draw, problem)
    return dense(problem)


def draw_epilogue(draw, problem: Problem) -> None:
    """Whole numbers only, so that the results stay exact."""
    problem.alpha = draw(st.sampled_from((1.0, 2.0, -3.0)))
    problem.beta = draw(st.sampled_from((0.0, 0.0, 1.0, -2.0)))
    epilogue = problem.epilogue
    if problem.direction in (Direction.FWD, Direction.BWD_DATA):
        epilogue.bias, epilogue.scale = draw(st.booleans()), draw(st.booleans())
    epilogue.residual = draw(st.booleans())
    if epilogue.residual:
        epilogue.residual_alpha = draw(st.sampled_from((1.0, 2.0)))
    activations = (Activation.IDENTITY, Activation.RELU, Activation.ELU)
    epilogue.activation = draw(st.sampled_from(activations))


@st.composite
def tilings(draw, problem: Problem):
    """Cuts of up to three axes: more of them hide from each other what one alone gets wrong."""
    length = list(core.make_tiling(problem, [2**40] * 7).extent)
    whole, as_data = tuple(length), draw(st.booleans())
    cuttable = [axis for axis in range(7) if whole[axis] > 1]
    cut = draw(st.lists(st.sampled_from(cuttable), max_size=3, unique=True)) if cuttable else []
    for axis in cut:
        length[axis] = draw(st.integers(1, whole[axis] - 1))
        if math.prod(core.counts(core.make_tiling(problem, length, as_data))) > MOST_TILES:
            length[axis] = whole[axis]
    tiling = core.make_tiling(problem, length, as_data)
    if cut and draw(st.booleans()):
        return draw(tapered(problem, tiling, draw(st.sampled_from(cut))))
    return tiling


@st.composite
def tapered(draw, problem: Problem, tiling: core.Tiling, axis: int):
    """The tiling with short tiles at the ends of an axis, if that is cut."""
    short = core.Tiling.from_buffer_copy(tiling)
    core.taper(problem, short, axis, draw(st.integers(1, tiling.length[axis])))
    return tiling if math.prod(core.counts(short)) > 2 * MOST_TILES else short


@st.composite
def orders(draw, problem: Problem):
    """A legal loop order: output axes in any order, then reduction axes in any order. Sums that
    come along have the groups alone in common with dx."""
    order = draw(st.permutations(range(7)))
    along = problem.also.dw or problem.also.db
    return sorted(order, key=lambda axis: axis != 1 if along else core.is_reduction(problem, axis))


depths = st.lists(st.integers(1, 4), min_size=len(core.OPERANDS), max_size=len(core.OPERANDS))


@st.composite
def runs(draw, directions=tuple(Direction), epilogues: bool = True):
    """Everything that a schedule needs: problem, tiling, order, depths, and a seed for data."""
    return draw(runs_of(problems(directions, epilogues)))


@st.composite
def runs_of(draw, some_problems):
    problem = draw(some_problems)
    return (
        problem,
        draw(tilings(problem)),
        draw(orders(problem)),
        draw(depths),
        draw(st.integers(0, 2**32 - 1)),
    )
