"""Plans whose runs are timed where engines are tried out: what disappoints gives way to what does
not, and what keeps its promise is taken without a look at the rest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
from geometry import core
from model import planner
from model.planner import Profile

ENGINE = "plain+symmetric+invariant"
PROBLEM = core.parse("conv2d:fwd x32x8x24x24 w8x8x3x3 pad1")
BUDGET = 200_000
FAST = Profile(flops_fallback=1e12)  # hides all arithmetic behind the wire


def ranked(profile: Profile) -> list[planner.Candidate]:
    return planner.search(PROBLEM, BUDGET, profile, engines=ENGINE).ranked


def test_a_run_that_keeps_its_promise_is_the_only_one_prepared():
    plan = planner.timed_plan(PROBLEM, BUDGET, FAST, 1e-9)
    assert plan.prepared == 1
    assert plan.seconds <= ranked(FAST)[0].seconds


@pytest.mark.parametrize("run_seconds", [1e-3, 5e-3])
def test_what_disappoints_gives_way_to_larger_tiles(run_seconds):
    """Every run takes as long, so the fewest are the fastest; the search is told so run by run."""
    first = ranked(FAST)[0]
    plan = planner.timed_plan(PROBLEM, BUDGET, FAST, run_seconds)
    tiles = math.prod(first.counts())
    assert plan.prepared > 1
    assert plan.seconds < 0.5 * tiles * run_seconds
    assert plan.seconds >= 2 * run_seconds  # it does not fit in one


def test_a_run_that_is_known_to_be_long_costs_no_look_at_others():
    """Nothing ran, so there is time left for tiles of another size."""
    seen = []

    def run_seconds(x: int, _: int) -> float:
        seen.append(x)
        return 30.0 if x == seen[0] else 1e-3

    plan = planner.timed_plan(PROBLEM, BUDGET, FAST, run_seconds)
    assert plan.prepared > 1
    assert plan.seconds < 1


@pytest.mark.parametrize("run_seconds", [1e-3, 5e-3])
def test_what_one_engine_takes_says_nothing_of_the_other(run_seconds):
    """The same tile is timed on both, and is far faster on the second."""
    plan = planner.timed_plan(PROBLEM, BUDGET, FAST, run_seconds, twin=1e-6)
    alone = planner.timed_plan(PROBLEM, BUDGET, FAST, 1e-6)
    assert plan.prepared == 2
    assert plan.seconds == alone.seconds
    assert "chosen: twin: N 32 in 32 of 1;" in plan.text
    assert "chosen: plain: N 32 in 32 of 1;" in alone.text


HOST, X_ON_DEVICE, Y_ON_DEVICE = 0, 1, 4


@pytest.mark.parametrize("run_seconds", [1e-4, 1e-3, 5e-3])
@pytest.mark.parametrize("placed", [X_ON_DEVICE, Y_ON_DEVICE, X_ON_DEVICE | Y_ON_DEVICE])
def test_what_was_timed_is_known_wherever_the_operands_lie(run_seconds, placed):
    """A problem whose operands lie elsewhere gets about as good a plan, with fewer tries."""

    def planned(*on_device):
        return planner.timed_again(PROBLEM, BUDGET, FAST, lambda *_: run_seconds, on_device)

    (alone,) = planned(placed)
    before, again = planned(HOST, placed)
    assert again.seconds <= 1.05 * alone.seconds
    assert again.timed - before.timed < alone.timed


@pytest.mark.parametrize("run_seconds", [1e-6, 1e-3, 5e-3])
def test_gradual_plans_try_one_tile_and_keep_to_it_wherever_operands_lie(run_seconds):
    places = (HOST, X_ON_DEVICE, Y_ON_DEVICE, X_ON_DEVICE | Y_ON_DEVICE)

    def planned(**how):
        return planner.timed_again(PROBLEM, BUDGET, FAST, lambda *_: run_seconds, places, **how)

    gradual, whole = planned(worth=-1e6), planned()
    assert not any(plan.settled for plan in gradual)
    # Unless another is far better.
    assert gradual[0].timed == 1
    assert gradual[-1].timed <= len(places)
    if run_seconds == 1e-6:
        assert gradual[-1].timed < len(places)
    else:
        assert gradual[-1].timed < whole[-1].timed


def test_a_gradual_plan_that_disappoints_gives_way_to_what_is_known():
    """With x on the device other tiles promise to be far faster, and are not."""
    first: list[tuple[int, int]] = []

    def seconds(*tile: int) -> float:
        first.append(tile)
        return 1e-6 if tile == first[0] else 10.0

    wire = dataclasses.replace(FAST, fetch_bytes_per_second=1e7, drain_bytes_per_second=1e9)
    places = (HOST, X_ON_DEVICE, Y_ON_DEVICE, X_ON_DEVICE | Y_ON_DEVICE)
    plans = planner.timed_again(PROBLEM, BUDGET, wire, seconds, places, worth=-1e6)
    assert plans[-1].timed > 1
    assert all(plan.seconds < 1.0 for plan in plans)


@pytest.mark.parametrize("run_seconds", [1e-6, 1e-3])
def test_gradual_plans_come_to_those_by_estimate_once_calls_are_worth_it(run_seconds):
    places = (HOST, X_ON_DEVICE, Y_ON_DEVICE)

    def planned(**how):
        return planner.timed_again(PROBLEM, BUDGET, FAST, lambda *_: run_seconds, places, **how)

    for gradual, whole in zip(planned(worth=1e6), planned(), strict=True):
        assert gradual.seconds <= whole.seconds
        assert gradual.timed >= whole.timed  # other kinds of tiles too
        assert gradual.settled


@pytest.mark.parametrize(("seconds", "prepared"), [(0.1, 3), (1.0, 1)])
def test_few_plans_are_tried_where_runs_take_long(seconds, prepared):
    """A try takes a dozen runs, and all of them three seconds at most, however long the call."""
    first = ranked(FAST)[0]
    plan = planner.timed_plan(PROBLEM, BUDGET, FAST, seconds)
    assert math.prod(first.counts()) == 32
    assert plan.prepared == prepared
    assert plan.seconds <= 32.1 * seconds  # what was tried is never worse than the first


def test_a_run_that_was_timed_is_not_an_assumption():
    """The tile's rate is known, whatever the profile lacks."""
    plan = planner.timed_plan(PROBLEM, BUDGET, FAST, 1e-3)
    assert "not measured" not in plan.text
    slow = Profile(flops={"plain/f32/fwd": 1e5}, marks={"flops plain/f32/fwd": "unmeasured"})
    assert "not measured: run_seconds, flops plain/f32/fwd\n" in guessed(slow).text


def guessed(profile: Profile) -> planner.TimedPlan:
    """Nothing is timed where nobody measured what a run costs."""
    marks = {**profile.marks, "run_seconds": "unmeasured"}
    timeless = dataclasses.replace(profile, run_seconds=0.0, marks=marks)
    return planner.timed_plan(PROBLEM, BUDGET, timeless, 1e-9)


def as_the_first(run_seconds: float, others: float) -> Callable[[int, int], float]:
    """Runs of the tile that comes first take `run_seconds`, of any other `others`."""
    first: list[tuple[int, int]] = []

    def seconds(*tile: int) -> float:
        first.append(tile)
        return run_seconds if tile == first[0] else others

    return seconds


SLOW = Profile(flops_fallback=1e8)  # hides all copies behind the arithmetic
FOREVER = 1e6


def promised(profile: Profile) -> float:
    """Seconds of a run of the best plan's tile."""
    best = ranked(profile)[0]
    return best.cost["compute_seconds"] / best.cost["steps"]


def test_measuring_finds_what_is_faster_than_predicted():
    """The first plan keeps its promise, so by estimate nothing else is looked at."""
    run = promised(SLOW)
    kept = planner.timed_plan(PROBLEM, BUDGET, SLOW, as_the_first(run, 0.5 * run))
    measured = planner.timed_plan(PROBLEM, BUDGET, SLOW, as_the_first(run, 0.5 * run), FOREVER)
    assert kept.prepared == 1
    assert measured.prepared > 1
    assert measured.seconds < 0.9 * kept.seconds


def test_measuring_keeps_the_first_where_nothing_is_faster():
    run = promised(SLOW)
    kept = planner.timed_plan(PROBLEM, BUDGET, SLOW, as_the_first(run, 100 * run))
    measured = planner.timed_plan(PROBLEM, BUDGET, SLOW, as_the_first(run, 100 * run), FOREVER)
    assert measured.prepared > 1
    assert measured.seconds == kept.seconds


# Arithmetic takes longest, and by the profile tiles of half of the filters are somewhat slower.
FILTERS = core.parse("conv2d:fwd x64x64x24x24 w64x64x3x3 pad1")
ROOM = 4_000_000
WHOLE_RATE, HALF_RATE = 1e8, 0.9e8
HALVES_SLOWER = Profile(
    tiles={
        f"{channels} {size} plain/f32/fwd": rate
        for channels, rate in ((32, HALF_RATE), (64, WHOLE_RATE))
        for size in (10_000, 1_000_000)
    }
)


def halves(rate: float) -> Callable[[int, int], float]:
    """Runs of tiles of all filters are as predicted, of half of them or less so fast."""

    def seconds(x_bytes: int, y_bytes: int) -> float:
        operations = 2 * 9 * 64 / 4 * y_bytes
        return 1e-6 + operations / (rate if y_bytes < 0.6 * x_bytes else WHOLE_RATE)

    return seconds


def test_no_plan_that_is_ranked_cuts_the_filters():
    found = planner.search(FILTERS, ROOM, HALVES_SLOWER, engines=ENGINE).ranked
    assert all(one.counts()[2] == 1 for one in found)


def test_measuring_tries_each_kind_of_tile():
    """A library may have a faster engine for half of the filters, of which no rate knows."""
    whole = planner.search(FILTERS, ROOM, HALVES_SLOWER, engines=ENGINE).ranked[0]
    runs = halves(1.3 * WHOLE_RATE)
    plan = planner.timed_plan(FILTERS, ROOM, HALVES_SLOWER, runs, FOREVER)
    assert plan.seconds <= 0.8 * whole.seconds
    assert "K 64 in 2 of 32" in plan.text
    kept = planner.timed_plan(FILTERS, ROOM, HALVES_SLOWER, halves(HALF_RATE), FOREVER)
    assert kept.seconds == pytest.approx(whole.seconds, rel=0.02)


@pytest.mark.parametrize(("worth", "found"), [(1e6, True), (-1e6, False)])
def test_gradual_plans_try_each_kind_of_tile_once_calls_are_worth_it(worth, found):
    whole = planner.search(FILTERS, ROOM, HALVES_SLOWER, engines=ENGINE).ranked[0]
    runs = halves(1.3 * WHOLE_RATE)
    (plan,) = planner.timed_again(FILTERS, ROOM, HALVES_SLOWER, runs, (HOST,), worth=worth)
    assert (plan.seconds <= 0.8 * whole.seconds) == found
    assert plan.settled == found


def test_kinds_are_not_tried_where_the_wire_takes_longest():
    def again(worth: float) -> int:
        return planner.timed_again(FILTERS, ROOM, FAST, lambda *_: 1e-9, (HOST,), worth=worth)[
            0
        ].timed

    assert again(1e6) == again(math.nan)


def test_after_the_time_limit_no_other_plan_is_tried():
    plan = planner.timed_plan(PROBLEM, BUDGET, SLOW, 1.0, measure_seconds=0)
    assert plan.prepared == 1


def test_measuring_needs_no_measured_profile():
    guess = Profile(flops_fallback=1e8, measured=False)
    plan = planner.timed_plan(PROBLEM, BUDGET, guess, as_the_first(1e-6, 1e-7), FOREVER)
    assert plan.prepared > 1


def test_without_a_measured_profile_nothing_is_timed():
    guess = Profile(flops_fallback=1e12, measured=False)
    plan = planner.timed_plan(PROBLEM, BUDGET, guess, 1.0)
    assert plan.prepared == 1
    assert plan.seconds == ranked(guess)[0].seconds


# Copies cost much, which speaks for large tiles; but those are slow, the profile says.
WRONG = Profile(
    copy_seconds=2e-4, tiles={"8 2000 plain/f32/fwd": 1e11, "8 40000 plain/f32/fwd": 1e8}
)


def test_what_is_only_thought_slow_is_timed_too():
    first = ranked(WRONG)[0]
    plan = planner.timed_plan(PROBLEM, BUDGET, WRONG, 1e-6)
    assert plan.prepared > 1
    assert plan.seconds < 0.8 * first.cost["seconds"]
    right = Profile(copy_seconds=WRONG.copy_seconds, flops_fallback=1e12)
    assert plan.seconds <= 1.05 * ranked(right)[0].seconds


def misled(rates: dict[tuple[int, int], float]) -> Profile:
    """By the rates of tiles of so many channels and outputs; copies speak for large ones."""
    tiles = {f"{channels} {size} plain/f32/fwd": rate for (channels, size), rate in rates.items()}
    return Profile(copy_seconds=2e-4, tiles=tiles)


def test_tiles_of_more_channels_may_be_as_fast_as_those_of_fewer():
    """All that were measured of 64 channels are slow, so the best plan cuts them in two."""
    problem, budget = core.parse("conv2d:fwd x16x64x24x24 w64x64x3x3 pad1"), 900_000
    rates = {(32, 2000): 1e12, (32, 40000): 1e12, (64, 2000): 1e9, (64, 40000): 1e9}
    wrong = misled(rates)
    first = planner.search(problem, budget, wrong, engines=ENGINE).ranked[0]
    assert first.counts()[2] > 1
    plan = planner.timed_plan(problem, budget, wrong, 1e-6)
    assert plan.prepared > 1
    assert plan.seconds < 0.8 * first.cost["seconds"]


def test_tiles_of_few_channels_may_be_as_fast_as_those_of_more():
    """The line through the rates of 64 and of 128 channels has tiles of 3 be very slow."""
    problem, budget = core.parse("conv2d:fwd x16x3x24x24 w64x3x3x3 pad1"), 900_000
    rates = {(64, 2000): 2e10, (64, 40000): 1e10, (128, 2000): 4e10, (128, 40000): 4e10}
    wrong = misled(rates)
    first = planner.search(problem, budget, wrong, engines=ENGINE).ranked[0]
    plan = planner.timed_plan(problem, budget, wrong, lambda _, y_bytes: 1e-6 + 1e-11 * y_bytes)
    right = Profile(copy_seconds=wrong.copy_seconds, flops_fallback=1e12)
    best = planner.search(problem, budget, right, engines=ENGINE).ranked[0]
    assert first.seconds > 10 * best.seconds
    assert plan.seconds <= 1.05 * best.seconds


@pytest.mark.parametrize("budget", [600_000, 900_000])
def test_what_a_tile_teaches_goes_for_others_with_as_many_channels(budget):
    """Cut in two, the filters' tiles are slower than squares of 32 channels are, of any size; whole
    they are faster than those of 64. Creeping from size to size would not find out."""
    problem = core.parse("conv2d:fwd x16x64x24x24 w64x64x3x3 pad1")
    sizes = {2_000: 0.7, 8_000: 0.8, 32_000: 0.9, 128_000: 1.0}
    wrong = Profile(
        tiles={
            f"{channels} {size} plain/f32/fwd": rate * share
            for channels, rate in ((32, 1.3e10), (64, 0.9e10))
            for size, share in sizes.items()
        }
    )

    def run(x_bytes: int, y_bytes: int) -> float:
        whole = y_bytes > 0.6 * x_bytes
        return 1e-6 + 2 * 9 * 64 * (y_bytes / 4) / (1.2e10 if whole else 1.0e10)

    first = planner.search(problem, budget, wrong, engines=ENGINE).ranked[0]
    right = Profile(flops_fallback=1.2e10)
    best = planner.search(problem, budget, right, engines=ENGINE).ranked[0]
    assert first.counts()[2] > 1
    assert planner.timed_plan(problem, budget, wrong, run).seconds <= 1.02 * best.seconds


@pytest.mark.parametrize("pixels", [96, 112, 128, 160, 192, 256])
def test_a_length_is_found_whose_blocks_fill_the_device(pixels):
    """132 blocks of so many pixels and of 128 channels run at a time, so that rates go up and down
    with a tile's length, and by the profile all lengths are alike."""
    problem = core.parse("conv2d:bwd_data x256x256x56x56 w256x256x3x3 pad1")
    rates = {(128, 29e12), (512, 39e12)}
    tiles = {
        f"{channels} {size} plain/f32/bwd_data": rate
        for channels, rate in rates
        for size in (1_600_000, 25_700_000)
    }
    at_once = 2 * 9 * 256 * 128 * pixels * 132 / 38e12  # seconds

    def run(x_bytes: int, _: int) -> float:
        blocks = 2 * math.ceil(x_bytes / (4 * 256 * pixels))
        return 2.7e-5 + math.ceil(blocks / 132) * at_once

    plan = planner.timed_plan(problem, 2 << 30, dataclasses.replace(planner.H200, tiles=tiles), run)
    at_best = 2 * 9 * 256 * 256 * 256 * 56 * 56 / 38e12
    assert plan.seconds <= 1.085 * at_best


def test_hopes_that_are_not_fulfilled_come_to_an_end():
    plan = planner.timed_plan(PROBLEM, BUDGET, WRONG, 1e-2)
    assert 1 < plan.prepared < 20
    assert plan.seconds > 1e-2


OTHERS = {"f16/fwd", "f32/bwd_data", "f64/fwd", "bf16/bwd_filter", "bf16+sums/fwd"}


@pytest.mark.parametrize("measure_seconds", [-1.0, 10.0])
def test_a_plan_keeps_what_its_runs_have_taught_and_no_copy_of_the_profile(measure_seconds):
    """Contexts keep hundreds of plans, and profiles have thousands of rates."""
    sizes = [(8 << i, 1000 << j) for i in range(6) for j in range(6)]
    others = {f"{c} {n} plain/{of}": 1e10 for of in OTHERS for c, n in sizes}
    assert len(others) == 180
    profile = dataclasses.replace(FAST, tiles=others)
    plan = planner.timed_plan(PROBLEM, BUDGET, profile, 5e-3, measure_seconds)
    assert 0 < plan.learnt <= 2 * plan.prepared
