"""Prices of plans that the caller names: what the independent simulation says, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from counted import Counted

import oocdnn
from oocdnn.perfmodel.problem import OPERANDS, Problem
from oocdnn.perfmodel.profile import Profile
from oocdnn.perfmodel.rates import Engine
from oocdnn.perfmodel.simulate import Candidate, simulate

TEXT = "conv2d:fwd x3x20x24x24 w40x20x3x3 pad1"
PROBLEM = Problem(
    "fwd", n=3, groups=1, k=40, c=20, extents=(1, 24, 24), taps=(1, 3, 3), outputs=(1, 24, 24),
    pad_before=(0, 1, 1), pad_after=(0, 1, 1),
)  # fmt: skip
ORDER = ("groups", "w", "d", "n", "k", "h", "c")


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    file = tmp_path_factory.mktemp("profile") / "profile.txt"
    file.write_text(Profile(machine="another", measured=True).text(), encoding="utf-8")
    return file


@pytest.fixture
def ctx(profile):
    with oocdnn.Context("cpu", "64KiB", engine="direct", profile=profile) as context:
        yield context


WHOLE = {"n": 3, "k": 40, "c": 20, "h": 24}


@pytest.mark.parametrize("taper", [None, ("n", 1), ("h", 2), ("k", 8)])
@pytest.mark.parametrize("slots", [1, 3])
def test_a_price_of_short_tiles_is_what_the_simulation_takes(ctx, taper, slots):
    lengths = {"n": 2, "h": 7, "k": 16}
    text = " ".join(f"{axis}{length}" for axis, length in lengths.items())
    text += f" taper {taper[0]}{taper[1]}" if taper else ""
    depths = dict.fromkeys(OPERANDS, slots)
    candidate = Candidate(lengths, ORDER, depths, Engine("direct"), True, taper)
    outcome = simulate(PROBLEM, candidate, Profile())
    plan = ctx.price(TEXT, f"{text} order nkhc slots {slots}")
    assert plan.predicted_seconds == pytest.approx(outcome.seconds, rel=1e-9)
    assert (plan.bytes_h2d, plan.bytes_d2h) == (outcome.bytes_in, outcome.bytes_out)
    assert plan.tiles == outcome.steps


@pytest.mark.parametrize("split", [{}, {"n": 3}, {"h": 5, "k": 2}, {"n": 2, "h": 24, "c": 3}])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_price_is_what_the_simulation_takes(ctx, split, slots):
    lengths = {axis: -(-WHOLE[axis] // pieces) for axis, pieces in split.items()}
    tile = " ".join(f"{axis}{length}" for axis, length in lengths.items())
    plan = ctx.price(TEXT, f"{tile} order nkhc slots {slots}")
    outcome = simulate(
        PROBLEM,
        Candidate(
            lengths=lengths,
            order=ORDER,
            depths=dict.fromkeys(OPERANDS, slots),
            engine=Engine("direct"),
            padding_as_data=True,
        ),
        Profile(),
    )
    assert plan.predicted_seconds == pytest.approx(outcome.seconds, rel=1e-9)
    assert (plan.bytes_h2d, plan.bytes_d2h) == (outcome.bytes_in, outcome.bytes_out)
    assert plan.tiles == outcome.steps
    assert plan.budget_bytes == 65536
    assert plan.engine == "direct"
    assert not plan.prepared
    assert plan.estimated_bytes >= (65536 if not split else 1), "the budget does not bound it"


def test_the_price_of_the_chosen_plan_is_its_own(ctx):
    plan = ctx.plan(TEXT)
    again = ctx.price(TEXT, plan.plan)
    assert (again.plan, again.predicted_seconds) == (plan.plan, plan.predicted_seconds)
    for other in ctx.candidates(TEXT, best=8, random=20):
        assert ctx.price(TEXT, other["plan"]).predicted_seconds == other["predicted_seconds"]
        assert other["predicted_seconds"] >= plan.predicted_seconds / 1.05


def test_a_plan_that_is_used_is_followed(ctx):
    x, w = np.ones((3, 20, 24, 24), np.float32), np.ones((40, 20, 3, 3), np.float32)
    expected = ctx.conv2d(x, w, padding=1)
    counted = Counted()
    for other in ctx.candidates(TEXT, best=2, random=6, seed=3):
        counted.begin()
        try:
            ctx.use_plan(TEXT, other["plan"])
        except oocdnn.OutOfMemory:
            continue  # its exact bytes are more than the estimate
        np.testing.assert_array_equal(ctx.conv2d(x, w, padding=1), expected)
        plan = ctx.plan(TEXT)
        assert plan.plan == other["plan"]
        assert ctx.stats.tiles == plan.tiles
        assert ctx.stats.split == plan.splits
        assert ctx.stats.prepared == 0
        counted.done()
    counted.need(0.5)


def test_a_plan_that_is_used_stays_in_use(ctx):
    x, w = np.ones((3, 20, 24, 24), np.float32), np.ones((40, 20, 3, 3), np.float32)
    ctx.use_plan(TEXT, "n1 h2 w12 order nhw slots 1")
    for size in range(1, 80):  # more problems than plans are kept of
        ctx.conv1d(np.ones((1, 1, 20 + size), np.float32), np.ones((1, 1, 3), np.float32))
    ctx.conv2d(x, w, padding=1)
    assert ctx.plan(TEXT).plan == "direct n1 g1 k40 c20 d1 h2 w12 order nhw slots 1,1,1"
    assert ctx.stats.tiles == 3 * 12 * 2


def test_reproducible_results_forbid_plans_that_change_their_bits(profile):
    text = "conv2d:bwd_filter x3x4x24x24 w4x4x3x3 pad1"
    with oocdnn.Context("cpu", "1MiB", profile=profile, reproducible=True) as context:
        for plan in ("h8 w24 order hn n2", "n1 h8 w8 order nhw", "n1 h5 order nh"):
            with pytest.raises(oocdnn.InvalidProblem, match="reproducible"):
                context.use_plan(text, plan)
        context.use_plan(text, "n1 h8 order nh")


@pytest.mark.parametrize(
    ("many", "words"),
    [
        ({"best": -1}, "best is -1; it must be at least 0"),
        ({"best": 1.5}, r"best is 1\.5; it must be an integer"),
        ({"random": 10**6}, "ask for 0 to 1000 of each"),
    ],
)
def test_so_many_candidates_are_not_to_be_had(ctx, many, words):
    with pytest.raises(oocdnn.InvalidProblem, match=words):
        ctx.candidates(TEXT, **many)


@pytest.mark.parametrize("plan", ["n4", "rows2", "", "c10 n1 order cn", "slots 0"])
def test_what_is_no_plan_is_refused(ctx, plan):
    for use in (ctx.price, ctx.use_plan):
        with pytest.raises(oocdnn.InvalidProblem, match="in a plan"):
            use(TEXT, plan)


def test_a_plan_that_is_too_large_is_refused_with_its_bytes(ctx):
    with pytest.raises(oocdnn.OutOfMemory) as raised:
        ctx.use_plan(TEXT, "direct")
    assert raised.value.least > 65536


def test_an_unreadable_problem_is_refused(ctx):
    with pytest.raises(oocdnn.InvalidProblem):
        ctx.price("conv2d:fwd nonsense", "n1")
