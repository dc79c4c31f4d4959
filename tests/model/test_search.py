"""A search fits, is near the best there is, and says why where it cannot."""

from __future__ import annotations

import dataclasses
import math
import re
from itertools import groupby

import pytest
from geometry import core
from geometry.cases import make, problems
from geometry.core import Direction
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import DIRECT, ENGINES, ONEDNN, Candidate, Profile, Refused

thorough = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))

PROFILES = [
    Profile(),
    Profile(shared_engines=True),
    Profile(drain_bytes_per_second=2e8, copy_seconds=0),
    Profile(run_seconds=0, flops_fallback=1e8),
    Profile(copy_seconds=1e-8, run_seconds=1e-8, fetch_row_bytes=0, drain_row_bytes=0),
]
SUMMED = {Direction.FWD: 3, Direction.BWD_DATA: 2}  # the channel axis that is summed over
PARTIAL_SUMS_GAIN = 1.25
CLEARLY = 1.02  # an engine that is preferred stays so up to this much slower
# Of 9,500 of these problems 8 were more than 5 % above the best, the worst of them 14.6 %; the mean
# is 0.03 %. One of 34 % was met since.
NEAR = 1.4


def least_budget(problem, engine: str, **options) -> int:
    with pytest.raises(Refused) as refused:
        planner.search(problem, 0, engines=engine, **options)
    assert refused.value.code == planner.OUT_OF_MEMORY
    return refused.value.detail


def whole_bytes(problem, engine: str) -> int:
    tiling = core.make_tiling(problem, [2**40] * 7, engine != ONEDNN)
    return planner.estimate(problem, tiling, [1] * len(core.OPERANDS), engine)


@st.composite
def budgets(draw, problem, engine: str, **options) -> int:
    """Between the least and what one tile of everything needs, that excluded."""
    least, most = least_budget(problem, engine, **options), whole_bytes(problem, engine)
    assume(least < most)
    return int(least * (most / least) ** draw(st.floats(0, 1, exclude_max=True)))


def judged(candidate: Candidate) -> float:
    """Predicted seconds, with the handicap that partial sums have."""
    axis = SUMMED.get(candidate.problem.direction)
    partial = axis is not None and candidate.counts()[axis] > 1
    return candidate.seconds * (PARTIAL_SUMS_GAIN if partial else 1.0)


@thorough
@given(st.data())
def test_every_candidate_fits_and_is_legal(data):
    problem = data.draw(problems())
    least = max(least_budget(problem, engine) for engine in (ONEDNN, DIRECT))
    budget = data.draw(st.integers(least, 4 * whole_bytes(problem, ONEDNN) + least))
    found = planner.search(problem, budget, data.draw(st.sampled_from(PROFILES)))
    for one in found.ranked:
        assert core.is_legal(problem, one.tiling, one.order)
        name = ENGINES.split(",")[one.engine]
        bytes_ = planner.estimate(problem, one.tiling, one.depths, name)
        assert bytes_ == one.cost["device_bytes"] == one.facts["estimate"] <= budget
    groups = [list(group) for _, group in groupby(found.ranked, key=lambda one: one.engine)]
    assert sorted(group[0].engine for group in groups) == [0, 1, 2]
    assert all(len(group) <= 2 for group in groups[1:])
    first = [group[0].seconds for group in groups]
    for i, group in enumerate(groups):
        assert first[i] <= CLEARLY * min(first[i:])
        # An engine that comes later although it is preferred is clearly slower.
        later = [j for j in range(i, len(groups)) if groups[j][0].engine < group[0].engine]
        assert all(first[j] > CLEARLY * min(first[i:]) for j in later)


@settings(thorough, max_examples=40)
@given(st.data())
def test_the_best_is_near_the_best_of_all(data):
    need_near_the_best(data)


@pytest.mark.long
@settings(thorough, max_examples=1000)
@given(st.data())
def test_the_best_is_near_the_best_of_all_for_many(data):
    need_near_the_best(data)


def need_near_the_best(data):
    problem = data.draw(problems())
    engine = data.draw(st.sampled_from((ONEDNN, DIRECT)))
    reproducible = engine == DIRECT and data.draw(st.booleans())
    budget = data.draw(budgets(problem, engine, reproducible=reproducible))
    profile = data.draw(st.sampled_from(PROFILES))
    options = {"engines": engine, "reproducible": reproducible}
    usual = planner.search(problem, budget, profile, **options)
    every = planner.search(problem, budget, profile, exhaustive=True, best=200, **options)
    assert judged(usual.ranked[0]) <= NEAR * min(judged(one) for one in every.ranked)


@thorough
@given(st.data())
def test_the_least_budget_is_exact(data):
    problem = data.draw(problems())
    engine = data.draw(st.sampled_from((ONEDNN, DIRECT)))
    least = least_budget(problem, engine)
    assert planner.search(problem, least, engines=engine).ranked
    with pytest.raises(Refused, match=f"needs at least {least} bytes .*budget is {least - 1}"):
        planner.search(problem, least - 1, engines=engine)


@st.composite
def large(draw):
    """Problems of a megabyte to a terabyte, in every direction."""
    rank = draw(st.integers(1, 3))
    most = {1: 100_000, 2: 2000, 3: 200}[rank]
    shape = {"input": [], "filter": [], "stride": [], "dilation": [], "pad_before": []}
    direction = draw(st.sampled_from(list(Direction)))
    for axis in range(3):
        unseen = axis < 3 - rank
        taps = 1 if unseen or direction == Direction.BWD_BIAS else draw(st.integers(1, 7))
        dilation = draw(st.integers(1, 2))
        shape["filter"].append(taps)
        shape["dilation"].append(dilation)
        shape["stride"].append(1 if unseen else draw(st.integers(1, 3)))
        shape["pad_before"].append(0 if unseen else draw(st.integers(0, taps - 1)))
        reach = (taps - 1) * dilation + 1
        shape["input"].append(1 if unseen else draw(st.integers(reach, most)))
    problem = make(
        direction, n=draw(st.integers(1, 64)), g=draw(st.sampled_from((1, 1, 2, 32))),
        k=draw(st.integers(1, 512)),
        c=1 if direction == Direction.BWD_BIAS else draw(st.integers(1, 512)),
        pad_after=shape["pad_before"], **shape,
    )  # fmt: skip
    problem.rank, problem.dtype = rank, draw(st.integers(0, 3))
    return problem


def total_bytes(problem) -> int:
    used = [i for i in range(6) if core.uses(problem, i)]
    elements = sum(math.prod(core.dims_of(problem, i)) for i in used)
    return elements * (4, 8, 2, 2)[problem.dtype]


def window_bytes(problem) -> int:
    """Of what the taps of one (k, c) pair reach, in every operand."""
    if problem.direction == Direction.BWD_BIAS:
        return 0
    shape = problem.shape
    reach = [(t - 1) * d + 1 for t, d in zip(shape.filter, shape.dilation, strict=True)]
    return 8 * 2 * math.prod(2 * rows for rows in reach)


@thorough
@given(large(), st.booleans())
def test_every_problem_fits_a_32nd_of_its_bytes(problem, reproducible):
    budget = max(256 << 10, total_bytes(problem) // 32)
    assume(window_bytes(problem) <= budget)
    engines = DIRECT if reproducible else ENGINES
    found = planner.search(problem, budget, planner.H200, engines, reproducible)
    assert {one.engine for one in found.ranked} == set(range(len(engines.split(","))))
    assert all(one.cost["device_bytes"] <= budget for one in found.ranked)


def test_what_fits_altogether_runs_whole_where_nothing_overlaps():
    problem = core.parse("conv2d:fwd x64x16x32x32 w16x16x3x3 pad1")
    budget = whole_bytes(problem, ONEDNN)
    for profile in (Profile(shared_engines=True), Profile(shared_engines=True, run_seconds=0)):
        whole = planner.search(problem, budget, profile).ranked[0]
        assert whole.cost["steps"] == 1
        assert set(whole.depths) == {0, 1}
        assert "whole" in whole.facts["text"]
        cut = planner.search(problem, budget - 1, profile)
        assert cut.ranked[0].cost["steps"] > 1
        assert f"budget is {budget / 2**20:.1f} MiB" in cut.refused[0]


def test_slots_are_counted_in_words():
    problem = core.parse("conv2d:fwd x64x16x32x32 w16x16x3x3 pad1")
    counts = {
        count
        for budget in (1 << 14, 1 << 20)
        for one in planner.search(problem, budget).ranked
        for count in re.findall(r"(\d+ slots?) of", one.facts["text"])
    }
    assert counts == {"1 slot", "2 slots", "3 slots"}


def test_behind_a_wire_what_fits_is_cut_so_that_copies_and_computing_overlap():
    problem = core.parse("conv2d:fwd x64x64x224x224 w64x64x3x3 pad1")
    budget = 4 * whole_bytes(problem, DIRECT)
    best = planner.search(problem, budget, planner.H200, DIRECT).ranked[0]
    whole = core.make_tiling(problem, [2**40] * 7, True)
    order = core.default_order(problem)
    assert best.cost["steps"] > 1
    at_once = planner.price(problem, whole, order, [1] * len(core.OPERANDS), planner.H200)[
        "seconds"
    ]
    assert best.seconds < 0.6 * at_once
    assert best.seconds < 1.05 * planner.floor_of(problem, planner.H200)


@pytest.mark.parametrize(
    "text",
    [
        "conv2d:fwd x256x256x56x56 w256x256x3x3 pad1",
        "conv2d:bwd_data x256x256x56x56 w256x256x3x3 pad1",
        "conv2d:bwd_filter x256x256x56x56 w256x256x3x3 pad1",
        "conv3d:fwd x4x64x96x96x96 w64x64x3x3x3 pad1",
        "conv2d:fwd x1x64x4096x4096 w64x64x3x3 pad1",
    ],
)
def test_where_the_filter_fits_hardly_a_byte_crosses_twice(text):
    problem = core.parse(text)
    best = planner.search(problem, 64 << 20, planner.H200).ranked[0]
    crossed = best.cost["bytes_in"] + best.cost["bytes_out"]
    assert crossed <= 1.001 * total_bytes(problem)  # a few rows twice may save a step
    assert best.seconds <= 1.05 * planner.floor_of(problem, planner.H200)


def test_rows_stay_whole_where_an_outer_cut_suffices():
    problem = core.parse("conv2d:fwd x1x64x512x512 w64x64x3x3 pad1")
    best = planner.search(problem, 16 << 20, planner.H200).ranked[0]
    assert best.counts()[5] > 1
    assert best.counts()[6] == 1


def test_summed_channels_are_whole_where_that_costs_little():
    problem = core.parse("conv2d:fwd x16x256x64x64 w256x256x3x3 pad1")
    best = planner.search(problem, 32 << 20, planner.H200).ranked[0]
    assert best.counts()[3] == 1
    assert not best.facts["accumulates"]


def test_partial_sums_leave_a_way_out_for_engines_without_them():
    problem = core.parse("conv2d:fwd x1x512x2048x2048 w512x512x3x3 pad1")
    found = planner.search(problem, 1 << 20, planner.H200, ONEDNN)
    assert found.ranked[0].facts["accumulates"]
    assert any(not one.facts["accumulates"] for one in found.ranked)


def test_something_frugal_is_offered():
    problem = core.parse("conv2d:fwd x64x256x56x56 w256x256x3x3 pad1")
    budget = 8 << 20
    found = planner.search(problem, budget, planner.H200, ONEDNN)
    assert min(one.cost["device_bytes"] for one in found.ranked) <= 0.6 * budget


@thorough
@given(st.data())
def test_reproducible_plans_add_up_in_one_order(data):
    """N, D, H, W: an axis is cut only where the axes before it advance by single rows."""
    problem = data.draw(problems((Direction.BWD_FILTER, Direction.BWD_BIAS)))
    budget = data.draw(budgets(problem, DIRECT, reproducible=True))
    for one in planner.search(problem, budget, reproducible=True).ranked:
        assert one.engine > 0, "onednn does not keep its bits"
        sums = (0, 4, 5, 6)
        cut = [axis for axis in sums if one.counts()[axis] > 1]
        for axis in cut:
            assert all(one.tiling.length[before] == 1 for before in sums if before < axis)
        assert [axis for axis in one.order if axis in cut] == cut


def test_exhaustive_reproducible_plans_add_up_in_one_order():
    """Of f64, whose sums have no blocks, so that every axis may be cut."""
    problem = core.parse("conv3d:bwd_filter x4x2x4x4x4 w2x2x1x1x1 f64")
    options = {"engines": DIRECT, "reproducible": True}
    budget = 2 * least_budget(problem, DIRECT, reproducible=True)
    most = 0
    for one in planner.search(problem, budget, exhaustive=True, best=1000, **options).ranked:
        cut = [axis for axis in (0, 4, 5, 6) if one.counts()[axis] > 1]
        assert [axis for axis in one.order if axis in cut] == cut
        most = max(most, len(cut))
    assert most > 1


PIXELS = (0, 4, 5, 6)  # the axes over which filter gradients sum


def pixel_block(extents: list[int]) -> list[int]:
    """The extents of one block of pixels whose products are summed in float32."""
    left, block = 512, []
    for extent in reversed(extents):
        block.append(math.ceil(extent / math.ceil(extent / left)))
        left = 1 if block[-1] < extent else left // extent
    return block[::-1]


@pytest.mark.parametrize(
    "text",
    [
        "conv2d:bwd_filter x8x16x50x50 w16x16x3x3 pad1",
        "conv2d:bwd_filter x64x8x7x7 w8x8x3x3 pad1",
        "conv1d:bwd_filter x2x8x9001 w8x8x9",
        "conv3d:bwd_filter x2x8x40x9x11 w8x8x3x3x3 pad1",
        "conv2d:bwd_filter x64x8x7x7 w8x8x3x3 pad1 f64",
    ],
)
def test_reproducible_plans_cut_between_blocks(text):
    problem = core.parse(text)
    out = list(problem.shape.out)
    block = dict(zip(PIXELS, pixel_block([problem.shape.n, *out]), strict=True))
    if text.endswith("f64"):
        block = dict.fromkeys(PIXELS, 1)
    least, most = least_budget(problem, DIRECT, reproducible=True), whole_bytes(problem, DIRECT)
    found = 0
    for share in range(6):
        budget = int(least * (most / least) ** (share / 6))
        for one in planner.search(problem, budget, engines=DIRECT, reproducible=True).ranked:
            for axis in PIXELS:
                if one.counts()[axis] > 1:
                    assert one.tiling.length[axis] % block[axis] == 0
                    found += 1
    assert found > 5


@pytest.mark.parametrize("text", ["fwd x1x9000x4x4 w4x9000x3x3", "bwd_data x1x4x4x4 w9000x4x3x3"])
def test_reproducible_plans_cut_channels_between_groups_of_blocks(text):
    problem = core.parse(f"conv2d:{text} pad1")
    summed = SUMMED[problem.direction]
    least = least_budget(problem, DIRECT, reproducible=True)
    best = planner.search(problem, least, engines=DIRECT, reproducible=True).ranked[0]
    assert best.counts()[summed] > 1
    assert best.tiling.length[summed] == 2**15 // 9
    assert least > least_budget(problem, DIRECT)


def test_without_an_engine_the_search_says_so():
    problem = core.parse("conv1d:fwd x1x1x8 w1x1x3")
    with pytest.raises(Refused, match="onednn: its bits depend on the tile") as refused:
        planner.search(problem, 1 << 20, engines=ONEDNN, reproducible=True)
    assert refused.value.code == planner.UNSUPPORTED
    assert {
        one.engine for one in planner.search(problem, 1 << 20, engines=f",{DIRECT}").ranked
    } == {1}


@pytest.mark.parametrize("size", ["n", "k", "c"])
@pytest.mark.parametrize("direction", list(Direction))
def test_an_empty_problem_has_a_plan_without_steps(direction, size):
    problem = make(direction, input=(1, 4, 4), filter=(1, 1, 1), **{size: 0})
    best = planner.search(problem, 0).ranked[0] if size != "c" or direction != 3 else None
    assert best is None or (best.cost["steps"], best.seconds) == (0, 0.0)


def test_tiles_stay_below_what_engines_can_index():
    problem = core.parse("conv3d:fwd x1x8x1024x1024x1024 w8x8x3x3x3 pad1")
    found = planner.search(problem, 1 << 45, planner.H200)
    assert found.ranked[0].cost["steps"] > 1
    for one in found.ranked:
        tile = core.tile_shape(problem, one.tiling)  # a short one is no larger
        assert tile.n * tile.g * tile.c * math.prod(tile.input) < 2**31 - 1
        assert tile.n * tile.g * tile.k * math.prod(tile.out) < 2**31 - 1


def test_types_of_tiles():
    """Partial sums and finishing passes are in the accumulator's type; 16-bit tiles are floats
    except with oneDNN; the bias's gradient is summed in doubles."""

    def slots(text: str, engine: str, **lengths) -> int:
        problem = core.parse(text)
        length = [lengths.get(axis, 2**40) for axis in core.AXES]
        tiling = core.make_tiling(problem, length, engine == DIRECT)
        return planner.estimate(problem, tiling, [1] * len(core.OPERANDS), engine)

    image = "x4x32x8x8 w32x32x1x1"  # x and y: 8192 elements, w: 1024
    assert slots(f"conv2d:fwd {image} bf16", ONEDNN) == 2 * (8192 + 8192 + 1024)
    assert slots(f"conv2d:fwd {image} bf16", DIRECT) == 4 * (8192 + 8192 + 1024)
    assert slots(f"conv2d:fwd {image} bf16", ONEDNN, C=16) == 2 * (4096 + 512) + 4 * 8192
    assert slots(f"conv2d:fwd {image} bf16 +relu", ONEDNN) == 2 * (8192 + 1024) + 4 * 8192
    assert slots(f"conv2d:fwd {image} beta1", ONEDNN) == 4 * (3 * 8192 + 1024)
    assert slots(f"conv2d:fwd {image} f64", DIRECT) == 8 * (2 * 8192 + 1024)
    assert slots("conv2d:bwd_bias y4x32x8x8", DIRECT) == 4 * 8192 + 8 * 32
    assert slots(f"conv2d:bwd_filter {image}", ONEDNN) == 4 * (2 * 8192 + 1024)
    assert slots(f"conv2d:bwd_filter {image}", DIRECT) == 4 * (2 * 8192 + 1024)  # one block
    assert slots(f"conv2d:bwd_filter {image}", DIRECT, N=2) == 4 * 2 * 4096 + 8 * 1024
    large = "x16x32x8x8 w32x32x1x1"
    assert slots(f"conv2d:bwd_filter {large} bf16 beta1", DIRECT) == 4 * 2 * 32768 + 8 * 2 * 1024


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("conv2d:fwd x64x256x56x56 w256x256x3x3 pad1", 6_000),
        ("conv2d:bwd_filter x128x64x224x224 w64x64x3x3 pad1", 6_000),
        ("conv3d:bwd_data x2x64x128x128x128 w64x8x3x3x3 pad1 grp8", 6_000),
    ],
)
def test_searching_considers_a_bounded_number(text, limit):
    """Time is measured elsewhere; what it is spent on is counted here."""
    assert planner.search(core.parse(text), 64 << 20).considered <= limit


@pytest.mark.parametrize("direction", ["fwd", "bwd_data", "bwd_filter"])
def test_an_engine_that_cannot_lead_is_looked_at_briefly(direction):
    problem = core.parse(f"conv2d:{direction} x64x256x56x56 w256x256x3x3 pad1")
    rates = {f"onednn/f32/{direction}": 1e14, f"direct/f32/{direction}": 1e11}
    profile = dataclasses.replace(planner.H200, flops=rates)
    alone, both = (
        planner.search(problem, 64 << 20, profile, engines)
        for engines in (DIRECT, f"{ONEDNN},{DIRECT}")
    )
    fast = planner.search(problem, 64 << 20, profile, ONEDNN)
    assert both.ranked[0].engine == 0
    assert both.considered < fast.considered + alone.considered / 2
    offered = min(one.seconds for one in both.ranked if one.engine == 1)
    assert offered <= 1.1 * alone.ranked[0].seconds


@pytest.mark.parametrize("direction", ["fwd", "bwd_data", "bwd_filter"])
def test_what_moves_again_has_a_spare_slot_where_that_costs_nothing(direction):
    """Arithmetic that is slower than predicted is then hidden all the same."""
    problem = core.parse(f"conv2d:{direction} x256x256x28x28 w512x256x3x3 pad1")
    best = planner.search(problem, 2 << 30, planner.H200, engines="cudnn+symmetric").ranked[0]
    assert best.cost["steps"] > 8
    for operand in (core.X, core.W, core.Y):
        counts = enumerate(best.counts())
        again = any(count > 1 and core.moves(problem, operand, axis) for axis, count in counts)
        assert not again or best.depths[operand] >= 2


# Each tile costs much beside its work, so there are few of them, and the ends weigh.
FEW_TILES = dataclasses.replace(planner.H200, flops_fallback=60e12, run_seconds=3e-4)


@pytest.mark.parametrize("direction", ["fwd", "bwd_data"])
def test_ends_are_short_where_that_is_clearly_faster(direction):
    problem = core.parse(f"conv2d:{direction} x256x256x56x56 w256x256x3x3 pad1")
    engine = "cudnn+symmetric"
    best = planner.search(problem, 2 << 30, FEW_TILES, engine).ranked[0]
    taper = best.tiling.taper
    assert 0 < taper.length < best.tiling.length[taper.axis]
    run = (best.order, best.depths, FEW_TILES, engine)
    assert planner.price(problem, best.tiling, *run) == best.cost
    for pieces in range(1, 2 * best.counts()[taper.axis]):
        length = list(best.tiling.length)
        length[taper.axis] = -(-best.tiling.extent[taper.axis] // pieces)
        other = planner.price(problem, core.make_tiling(problem, length), *run)
        assert other["seconds"] > best.seconds / 0.995


@pytest.mark.parametrize("run_seconds", [0.02, 0.05])
def test_tiles_between_short_ends_stay_below_what_engines_can_index(run_seconds):
    """They may be longer than those of plans without, and here would like to."""
    problem = core.parse("conv2d:fwd x64x64x2048x2048 w64x64x3x3 pad1")
    machine = dataclasses.replace(FEW_TILES, flops_fallback=10e12, run_seconds=run_seconds)
    found = planner.search(problem, 1 << 45, machine, "cudnn+symmetric")
    assert any(one.tiling.taper.length for one in found.ranked)
    for one in found.ranked:
        tile = core.tile_shape(problem, one.tiling)
        assert tile.n * tile.c * math.prod(tile.input) < 2**31 - 1


def test_ends_are_not_short_where_engines_take_turns():
    problem = core.parse("conv2d:fwd x256x256x56x56 w256x256x3x3 pad1")
    machine = dataclasses.replace(FEW_TILES, shared_engines=True)
    found = planner.search(problem, 256 << 20, machine, "cudnn+symmetric")
    assert all(one.cost["steps"] > 1 and not one.tiling.taper.length for one in found.ranked)
