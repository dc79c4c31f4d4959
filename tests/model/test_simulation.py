"""The planner's prices against a simulation by events that shares no code with it, over problems,
tilings, memory orders, machines and places of operands as they come."""

from __future__ import annotations

import itertools
import math

import pytest
from geometry import core
from geometry.cases import (
    dense,
    depths,
    draw_pool,
    draw_tables,
    joint_problems,
    make,
    orders,
    problems,
    runs,
    runs_of,
    tapered,
    tilings,
)
from geometry.core import SAVED, Direction, DType
from geometry.simulation import is_short
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import (
    HOST,
    IN_FILE,
    IS_TILE,
    NO_ROWS,
    ON_DEVICE,
    ON_HOST,
    PAGEABLE,
    ROWS,
    Profile,
)
from model.simulated import all_as_data, problem_of, simulated, taper_of

from oocdnn.perfmodel.events import Crossing, Signal, Simulation
from oocdnn.perfmodel.problem import AXES, DIRECTIONS, OPERANDS
from oocdnn.perfmodel.rates import Engine, math_of
from oocdnn.perfmodel.tiling import Tiling

thorough = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
WALKED = 512  # steps: the planner extrapolates longer schedules

rates = st.sampled_from((1e6, 1e7, 3e7, 1e8, 1e9, 1e10))
seconds = st.sampled_from((0.0, 1e-7, 1e-6, 1e-4))
RATES = ("fetch", "drain", "both", "inside", "finish", "pool", "restore", "normalize")


BESIDE = [f"beside/{others}/{rate}" for others in (1, 2) for rate in ("fetch", "drain", "both")]
STAGING = [f"{place}/{rate}" for place in ("page", "file") for rate in ("fetch", "drain", "both")]


@st.composite
def wires(draw, engine: str) -> dict[str, float]:
    """What an engine's tiles change of the rates, in either memory order of the caller's."""
    found = {rate: draw(rates) for rate in sorted(draw(st.sets(st.sampled_from(RATES))))}
    found |= {
        rows: draw(seconds) * 1e7
        for rows in sorted(draw(st.sets(st.sampled_from((*ROWS, "inside_row_bytes")))))
    }
    found |= {"hop": draw(st.sampled_from((1e-7, 1e-5)))} if draw(st.booleans()) else {}
    order = draw(st.sampled_from(("nchw", "nhwc")))
    others = draw(st.sets(st.sampled_from(STAGING))) | draw(st.sets(st.sampled_from(BESIDE)))
    return {f"{engine}/{order}/{name}": value for name, value in found.items()} | {
        name: draw(rates) for name in sorted(others)
    }


TYPES = ("f32", "f32/tf32", "f32/fp32x3", "f64", "bf16", "bf16+sums")
KINDS = [f"{t}/{d}" for t in TYPES for d in DIRECTIONS]


@st.composite
def flops(draw, engine: str) -> dict[str, float]:
    """Rates of some types and directions."""
    kinds = draw(st.sets(st.sampled_from(KINDS), max_size=4))
    return {f"{engine}/{kind}": draw(rates) * 10 for kind in sorted(kinds)}


@st.composite
def tiles(draw, engine: str, own: str) -> dict[str, float]:
    """Rates of tiles, by channels and outputs, of some types and directions and often our own."""
    found, channels = {}, st.sampled_from((1, 3, 7, 64, 512))
    others = st.sets(st.sampled_from([kind for kind in KINDS if kind != own]), max_size=2)
    for kind in sorted(draw(others) | draw(st.sampled_from((set(), {own})))):
        sizes = draw(st.sets(st.tuples(channels, st.integers(1, 5000)), min_size=1, max_size=5))
        for width, outputs in sorted(sizes):
            found[f"{width} {outputs} {engine}/{kind}"] = draw(rates) * 10
    return found


@st.composite
def profiles(draw, engine: str, kind: str) -> Profile:
    row_bytes = st.sampled_from((0.0, 64.0, 1000.0, 4000.0))
    return Profile(
        shared_engines=draw(st.sampled_from((False, False, False, True))),
        fetch_bytes_per_second=draw(rates),
        drain_bytes_per_second=draw(rates),
        both_bytes_per_second=draw(rates) * 2,
        move_bytes_per_second=draw(rates) * 10,
        **{name: draw(row_bytes) for name in ROWS},
        copy_seconds=draw(seconds),
        run_seconds=draw(seconds),
        step_seconds=draw(seconds),
        hop_seconds=draw(seconds),
        flops_fallback=draw(rates) * 10,
        flops=draw(flops(engine)),
        tiles=draw(tiles(engine, kind)),
        wires=draw(wires(engine)),
        busy_gpus=draw(st.sampled_from((0, 0, 1, 2, 3))),
    )


@st.composite
def engines(draw) -> Engine:
    return Engine(
        name=draw(st.sampled_from(("direct", "other"))),
        channels_last=draw(st.booleans()),
        channels_at_once=draw(st.sampled_from((16, 128))),
        bounce_bytes=draw(st.sampled_from((0, 0, 1, 64, 4096))),
    )


def words_of(engine: Engine) -> str:
    """The engine as the testing library names it."""
    bounce = f"bounce={engine.bounce_bytes}," if engine.bounce_bytes else ""
    last = "+last" if engine.channels_last else ""
    return f"{bounce}{engine.name}{last}{'+wide' if engine.channels_at_once == 128 else ''}"


@st.composite
def strides(draw, problem, operand: int) -> list[int]:
    """Of dimensions in any order of memory, rows sometimes longer than what is used of them."""
    dims, run, found = core.dims_of(problem, operand), 1, [0] * 6
    for d in draw(st.permutations(range(6))):
        found[d] = run
        run *= dims[d] * draw(st.sampled_from((1, 1, 1, 1, 3, 1000)))
    return found


@st.composite
def cases(draw) -> tuple:
    problem = draw(st.one_of(problems(), joint_problems()))
    if problem.direction != Direction.BWD_BIAS and draw(st.booleans()):
        problem.shape.k, problem.shape.c = 37 * problem.shape.k, 50 * problem.shape.c
        dense(problem)
    draw_tables(draw, problem)
    problem.dtype = draw(st.sampled_from(DType))
    problem.math = int(problem.dtype == DType.F32 and draw(st.booleans()))
    core.set_pooled(problem)  # slopes are of that type
    memory = draw(st.sampled_from(("dense", "channels last", "any")))
    for operand in (i for i in range(SAVED) if core.uses(problem, i)):
        dims = core.dims_of(problem, operand)
        if memory == "any":
            problem.stride[operand][:] = draw(strides(problem, operand))
        elif memory == "channels last":
            problem.stride[operand][:] = core.strides_of(dims, True)
    engine = draw(engines())
    places = st.sampled_from((ON_HOST, ON_HOST, ON_HOST, ON_DEVICE, IS_TILE, PAGEABLE, IN_FILE))
    tiers = draw(
        st.one_of(st.just(HOST), st.lists(places, min_size=len(OPERANDS), max_size=len(OPERANDS)))
    )
    run = problem, draw(tilings(problem)), draw(orders(problem)), draw(depths)
    seen = problem_of(problem)
    sums = seen.element_bytes < seen.sum_bytes and draw(st.booleans())
    math = math_of(engine.name, seen.math)
    mark = f"/{math}" if math != "fp32" else "+sums" if sums else ""
    kind = f"{seen.dtype}{mark}/{seen.direction}"
    return (*run, draw(profiles(engine.name, kind))), tiers, engine


@st.composite
def long_cases(draw) -> tuple:
    """Tens of tiles that roll rows, wait for slots and share the wire, on machines whose engines
    take about as long as each other."""
    taps, stride = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    direction = draw(st.sampled_from(Direction))
    plain = direction == Direction.BWD_BIAS
    problem = make(
        direction, n=draw(st.integers(1, 4)), k=draw(st.integers(1, 8)),
        c=1 if plain else draw(st.integers(1, 8)), input=(1, draw(st.integers(20, 60)), 9),
        filter=(1, 1 if plain else taps, 1), stride=(1, 1 if plain else stride, 1),
    )  # fmt: skip
    if draw(st.booleans()):
        draw_pool(draw, problem)
        dense(problem)
    length = list(core.make_tiling(problem, [2**40] * 7).extent)
    length[5] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        length[draw(st.sampled_from((0, 2, 3)))] = 1
    tiling = core.make_tiling(problem, length, draw(st.booleans()))
    if draw(st.booleans()):
        tiling = draw(tapered(problem, tiling, 5))
    order = draw(orders(problem))
    near = st.floats(-0.7, 0.7).map(lambda power: 10**power)
    profile = Profile(
        fetch_bytes_per_second=1e8 * draw(near),
        drain_bytes_per_second=1e8 * draw(near),
        both_bytes_per_second=2e8 * draw(near),
        move_bytes_per_second=3e8 * draw(near),
        flops_fallback=1e9 * draw(near),
        copy_seconds=draw(st.sampled_from((0, 1e-5, 1e-4))),
        hop_seconds=draw(st.sampled_from((0, 1e-5))),
    )
    depths = draw(st.lists(st.integers(1, 3), min_size=len(OPERANDS), max_size=len(OPERANDS)))
    return (problem, tiling, order, depths, profile), HOST, Engine("direct")


@thorough
@given(st.one_of(cases(), long_cases()))
def test_prices_are_what_the_simulation_takes(case):
    run, tiers, engine = case
    price = planner.price(*run, engines=words_of(engine), tiers=tiers)
    outcome = simulated(*run, tiers, engine)
    assert outcome.steps == price["steps"] <= WALKED
    assert (outcome.bytes_in, outcome.bytes_out) == (price["bytes_in"], price["bytes_out"])
    for name in ("seconds", "fetch_seconds", "compute_seconds", "drain_seconds"):
        assert price[name] == pytest.approx(getattr(outcome, name), rel=1e-9, abs=0), name


def test_a_transfer_of_nothing_has_no_rows():
    """It used to have a far row that was none of its rows, and so one near row too few."""
    problem = core.parse("conv2d:bwd_filter x1x1x1x4 w1x1x1x1 pad1x0")
    tiling = core.make_tiling(problem, [1, 1, 1, 1, 1, 1, 4])
    profile = Profile(
        fetch_bytes_per_second=1e6, copy_seconds=1e-6, fetch_row_bytes=8, far_fetch_row_bytes=800
    )
    run = (problem, tiling, core.default_order(problem), [1] * len(core.OPERANDS), profile)
    price = planner.price(*run, engines=planner.DIRECT)
    rows = 1 + 3  # x has padding above and below its only row, dy has three rows
    copies = 2 * core.counts(tiling)[5]
    assert price["fetch_seconds"] == pytest.approx(copies * 1e-6 + rows * (16 + 800) / 1e6)


@thorough
@given(st.one_of(runs(), runs_of(joint_problems())))
def test_tiles_are_cut_alike(run):
    """Every box of every tile, worked out twice."""
    native, cut, *_ = run
    problem = problem_of(native)
    lengths = dict(zip(AXES, cut.length, strict=True))
    tiling = Tiling(problem, lengths, all_as_data(cut), taper_of(cut))
    assert list(tiling.lengths.values()) == list(cut.length)
    assert list(tiling.counts.values()) == core.counts(cut)
    for index in itertools.product(*map(range, tiling.counts.values())):
        shape = core.tile_shape(native, cut, is_short(cut, index))
        assert tiling.outputs(dict(zip(AXES, index, strict=True))) == math.prod(shape.out)
        for operand in (*problem.inputs, *problem.written):
            box = core.region(native, cut, OPERANDS.index(operand), index)
            spans = tiling.spans(operand, dict(zip(AXES, index, strict=True)))
            assert [span.origin for span in spans] == list(box.origin)
            assert [span.extent for span in spans] == list(box.extent)
            assert [(span.begin, span.end) for span in spans] == list(
                zip(box.valid_begin, box.valid_end, strict=True)
            )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9))
@example([3, 3])
def test_a_signal_reaches_who_waits_a_hop_later(work):
    """A relay of two processes, each of which waits for the other's last piece of work."""
    clock, hop = Simulation(0.5), 0.5
    done = [Signal() for _ in work]

    def process(first: int):
        for i in range(first, len(work), 2):
            if i > 0:
                yield done[i - 1]
            yield float(work[i])
            clock.send(done[i])

    for first in range(2):
        clock.start(process(first))
    clock.run()
    assert clock.now == sum(work) + hop * (len(work) - 1)


def test_two_who_cross_slow_each_other_down():
    """By hand, at 0.8 of the speed together: one crosses for 4 s from 0, another from 1 for 2. From
    1 to 3.5 they do so together; then the first has another second alone."""
    clock, ended = Simulation(0.0, together=0.8), []

    def process(start: float, seconds: float):
        yield start
        yield Crossing(seconds)
        ended.append(clock.now)
        yield 0.25

    clock.start(process(0.0, 4.0))
    clock.start(process(1.0, 2.0))
    clock.run()
    assert ended == pytest.approx([3.5, 4.5])


@pytest.mark.parametrize("taper", [0, 2])
def test_short_ends_gain_nothing_where_both_directions_take_as_long(taper):
    """By hand: 12 samples, each of which takes a second to fetch and one to drain, 1.1 while the
    other direction is busy too. Tiles of 4: the first is fetched alone until 4, the second beside
    the drain of the first until 8.4, the third beside that of the second until 12.8, and the third
    is drained alone. Ends of 2: the first is fetched until 2 and drained until 4.2, the second
    is fetched until 6.2; until 10.6 the third is fetched and the second drained; the fourth is
    fetched until 12.8, the third drained until 14.8, and the fourth then."""
    problem = core.parse("conv2d:fwd x12x1x10x10 w1x1x1x1")
    tiling = core.make_tiling(problem, [4, 1, 1, 1, 1, 10, 10])
    if taper:
        core.taper(problem, tiling, 0, taper)
    profile = Profile(
        fetch_bytes_per_second=400, drain_bytes_per_second=400, both_bytes_per_second=800 / 1.1,
        copy_seconds=0, **NO_ROWS, run_seconds=0, flops_fallback=1e12,
        move_bytes_per_second=1e12, hop_seconds=0, step_seconds=0,
    )  # fmt: skip
    tiers = [ON_HOST, IS_TILE, *HOST[2:]]
    run = problem, tiling, core.default_order(problem), [2] * len(core.OPERANDS), profile
    price = planner.price(*run, engines=planner.DIRECT, tiers=tiers)
    assert price["seconds"] == pytest.approx(16.8)
    assert simulated(*run, tiers).seconds == pytest.approx(16.8)


def test_waiting_for_ever_is_an_error():
    clock = Simulation(0.0)
    clock.start(iter([Signal()]))
    with pytest.raises(RuntimeError, match="1 process"):
        clock.run()


def test_three_engines_work_at_the_same_time():
    """By hand: tiles of 1 s to fetch, 2 s to compute, 3 s to drain, in two slots each."""
    problem = core.parse("conv2d:fwd x4x1x10x10 w1x1x1x1")
    tiling = core.make_tiling(problem, [1, 1, 1, 1, 1, 10, 10])
    free = {"copy_seconds": 0, **NO_ROWS, "hop_seconds": 0.0}
    profile = Profile(
        **free, fetch_bytes_per_second=400, drain_bytes_per_second=400 / 3, flops_fallback=100,
        run_seconds=0,
    )  # fmt: skip
    tiers = [ON_HOST, IS_TILE, *HOST[2:]]
    outcome = simulated(
        problem, tiling, core.default_order(problem), [2] * len(core.OPERANDS), profile, tiers
    )
    assert outcome.pipeline_seconds == pytest.approx(1 + 2 + 4 * 3)
    assert math.isclose(outcome.compute_seconds, 8)
    waiting = simulated(
        problem, tiling, core.default_order(problem), [1] * len(core.OPERANDS), profile, tiers
    )
    assert waiting.pipeline_seconds == pytest.approx(1 + 4 * (2 + 3))
