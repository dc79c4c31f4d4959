"""Batches in parts of which each is a part of the caller's memory: which are chosen on a device
that says how long everything takes, and what is measured of them."""

from __future__ import annotations

import math

import pytest
from geometry import core
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import DIVIDED, TIMED, TIMED_WHOLE, WHOLE, Profile, Speeds

from oocdnn.workspace import MicroBatch, even

PROBLEM = core.parse("conv2d:fwd x16x4x8x8 w4x4x3x3 pad1")
SAMPLE_BYTES = 4 * (4 + 4) * 64  # of x and y
ROOMY = 1 << 20
NO_LIMIT = 2**63 - 1
MS = 1e-3
FREE = Profile(flops_fallback=1e15, shared_engines=True)


def problem_of(batch: int):
    return core.parse(f"conv2d:fwd x{batch}x4x8x8 w4x4x3x3 pad1")


def samples(plan: planner.DividedPlan) -> int:
    return int(plan.plan.split(" n")[1].split()[0])


def test_the_whole_where_workspace_suffices():
    speeds = Speeds(MS, MS, 4 * MS, 1000)
    for batch in (WHOLE, DIVIDED, TIMED_WHOLE, TIMED):
        plan = planner.divided_plan(PROBLEM, ROOMY, NO_LIMIT, FREE, speeds, batch)
        assert (plan.engine, samples(plan)) == ("hungry", 16)
        assert 16_000 <= plan.bytes < 16_064  # and no slot


@pytest.mark.parametrize(("limit", "expected"), [(16_000, 16), (15_999, 8), (4000, 4), (1999, 1)])
def test_the_largest_parts_that_fit_are_the_fastest(limit, expected):
    plan = planner.divided_plan(PROBLEM, ROOMY, limit, FREE, Speeds(MS, MS, 4 * MS, 1000))
    assert (plan.engine, samples(plan)) == ("hungry", expected)
    assert plan.bytes <= limit + 64
    assert plan.seconds == pytest.approx(16 * MS + 16 / expected * MS, rel=0.01)


def test_a_whole_without_workspace_where_parts_are_no_faster():
    """Each run costs so much that sixteen of them take longer."""
    plan = planner.divided_plan(PROBLEM, ROOMY, 1000, FREE, Speeds(10 * MS, MS, 4 * MS, 1000))
    assert (plan.engine, samples(plan), plan.bytes) == ("frugal", 16, 0)


def test_untimed_the_whole_is_believed_to_be_the_fastest():
    speeds = Speeds(MS, MS, 4 * MS, 1000)
    plan = planner.divided_plan(PROBLEM, ROOMY, 8000, FREE, speeds, DIVIDED)
    assert (plan.engine, samples(plan)) == ("frugal", 16)
    plan = planner.divided_plan(PROBLEM, ROOMY, 8000, FREE, speeds, WHOLE)
    assert samples(plan) == 16


@pytest.mark.parametrize(("budget", "seconds"), [(ROOMY, 17 * MS), (40_000, 2 * 9 * MS)])
def test_a_whole_without_room_to_be_timed_is_judged_by_a_part(budget, seconds):
    speeds = Speeds(MS, MS, 4 * MS, 1000)
    plan = planner.divided_plan(PROBLEM, budget, NO_LIMIT, FREE, speeds, TIMED_WHOLE)
    assert (plan.engine, samples(plan)) == ("hungry", 16)
    assert plan.seconds == pytest.approx(seconds, rel=0.01)


def test_the_budget_divides_as_a_limit_does():
    """Eight samples fit, though they cannot be timed: there is no room for tiles beside."""
    plan = planner.divided_plan(PROBLEM, 8128, NO_LIMIT, FREE, Speeds(MS, MS, 4 * MS, 1000))
    assert (plan.engine, samples(plan)) == ("hungry", 8)


def test_parts_that_get_slower_and_slower_are_not_all_tried():
    """Each run costs as much as eight samples: below four of them nothing is gained."""
    speeds = Speeds(8 * MS, MS, 4 * MS, 1000)
    problem = problem_of(1024)
    plan = planner.divided_plan(problem, 1 << 24, 256_000, FREE, speeds)
    assert (plan.engine, samples(plan)) == ("hungry", 256)
    # 1024, 512, 256, ... down to 8, which takes twice as long as the best
    assert plan.prepared == 8


@pytest.mark.parametrize("batch", [WHOLE, DIVIDED, TIMED_WHOLE, TIMED])
def test_more_samples_than_are_divided_are_a_whole(batch):
    problem = core.parse("conv1d:fwd x1100000x1x1 w1x1x1")
    plan = planner.divided_plan(problem, 1 << 28, 0, FREE, Speeds(MS, 0.0, 0.0, 1), batch)
    assert samples(plan) == 1_100_000


def test_what_cannot_be_timed_is_not_believed():
    """The whole would be frugal: that it is faster than parts that were timed is a mere guess."""
    budget = 4 * (1000 + SAMPLE_BYTES) + 1000
    plan = planner.divided_plan(PROBLEM, budget, 4000, FREE, Speeds(MS, MS, 4 * MS, 1000))
    assert (plan.engine, samples(plan)) == ("hungry", 4)


def test_a_shorter_part_comes_first():
    plan = planner.divided_plan(problem_of(13), ROOMY, 4000, FREE, Speeds(MS, MS, 9 * MS, 1000))
    assert samples(plan) == 4
    assert plan.plan.endswith(" taper n1")


@settings(deadline=None)
@given(
    st.integers(1, 40), st.integers(0, 40), st.integers(0, 20), st.integers(1, 9),
    st.integers(1, 30),
)  # fmt: skip
def test_no_even_division_by_powers_of_two_is_clearly_faster(batch, room, run, hungry, frugal):
    speeds = Speeds(run * MS, hungry * MS, frugal * MS, 1000)
    plan = planner.divided_plan(problem_of(batch), ROOMY, room * 1000, FREE, speeds)
    sizes = [batch] + [2**i for i in range(6) if 2**i < batch]

    def seconds(n: int) -> float:
        return (run + n * (hungry if n <= room else frugal)) * MS

    best = min(math.ceil(batch / n) * seconds(n) for n in sizes)
    assert plan.seconds <= 1.03 * best + 1e-4
    assert plan.bytes <= room * 1000 + 64


def test_all_that_is_measured():
    speeds = Speeds(MS, MS, 4 * MS, 1000)
    ways = planner.measured_parts(PROBLEM, ROOMY, NO_LIMIT, FREE, speeds)
    assert [(n, size) for n, _, size in ways] == [
        (n, size) for n in (16, 8, 4, 2, 1) for size in (1000 * n, 0)
    ]
    for n, seconds, size in ways:
        expected = MS + n * (MS if size else 4 * MS)
        assert seconds == pytest.approx(expected, rel=0.01)


def test_a_limit_and_a_policy_bound_what_is_measured():
    speeds = Speeds(MS, MS, 4 * MS, 1000)
    ways = planner.measured_parts(PROBLEM, ROOMY, 5000, FREE, speeds, policy=2)
    assert [n for n, _, _ in ways] == sorted((n for n, _, _ in ways), reverse=True)
    assert {n for n, _, _ in ways} == set(range(1, 17))
    assert {n for n, _, size in ways if size} == set(range(1, 6))
    ways = planner.measured_parts(PROBLEM, ROOMY, NO_LIMIT, FREE, speeds, policy=0)
    assert {n for n, _, _ in ways} == {16}


def test_parts_too_large_to_be_timed_are_left_out():
    speeds = Speeds(MS, MS, 4 * MS, 1000)
    ways = planner.measured_parts(PROBLEM, 4 * (1000 + SAMPLE_BYTES) + 1000, NO_LIMIT, FREE, speeds)
    assert max(n for n, _, _ in ways) == 4
    with pytest.raises(planner.Refused, match="cannot be timed within"):
        planner.measured_parts(PROBLEM, SAMPLE_BYTES, NO_LIMIT, FREE, speeds)


def test_what_divisions_promise_is_what_a_limit_gives():
    speeds = Speeds(MS, MS, 4 * MS, 1000)
    ways = planner.measured_parts(PROBLEM, ROOMY, NO_LIMIT, FREE, speeds)
    for division in even([MicroBatch(*way) for way in ways], 16):
        plan = planner.divided_plan(PROBLEM, ROOMY, division.workspace_bytes, FREE, speeds)
        assert plan.seconds == pytest.approx(division.seconds, rel=0.02)
        assert math.ceil(16 / samples(plan)) == len(division.samples)
