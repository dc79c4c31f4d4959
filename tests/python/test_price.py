"""Prices of plans that the caller names: what the independent simulation says, and refusals."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("split", [{}, {"n": 3}, {"h": 5, "k": 2}, {"n": 2, "h": 24, "c": 3}])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_price_is_what_the_simulation_takes(ctx, split, slots):
    plan = ctx.price(TEXT, split, order=("n", "k", "h", "c"), slots=slots)
    whole = {"n": 3, "k": 40, "c": 20, "h": 24}
    outcome = simulate(
        PROBLEM,
        Candidate(
            lengths={axis: -(-whole[axis] // pieces) for axis, pieces in split.items()},
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
    assert plan.device_bytes >= (65536 if not split else 1), "the budget does not bound it"


def test_the_price_of_a_plan_is_its_own(ctx):
    plan = ctx.plan(TEXT)
    best = min(
        ctx.price(TEXT, plan.split, order=order, slots=slots).predicted_seconds
        for order in (ORDER[2:], ("k", "n", "h", "c"), ("n", "h", "k", "c"), ("h", "n", "k", "c"))
        for slots in (1, 2, 3, 4)
    )
    assert best <= plan.predicted_seconds * (1 + 1e-9)


@pytest.mark.parametrize(
    ("split", "more", "words"),
    [
        ({"rows": 2}, {}, "no axis 'rows'"),
        ({"n": 4}, {}, "N of 3 cannot be cut into 4"),
        ({"n": 0}, {}, "into 0 pieces"),
        ({}, {"order": ("n", "n")}, "names an axis twice"),
        ({"c": 2, "n": 3}, {"order": ("c", "n")}, "summed axis outside"),
        ({}, {"slots": 0}, "0 slots"),
    ],
)
def test_what_is_no_plan_is_refused(ctx, split, more, words):
    with pytest.raises(oocdnn.InvalidProblem, match=words):
        ctx.price(TEXT, split, **more)


def test_an_unreadable_problem_is_refused(ctx):
    with pytest.raises(oocdnn.InvalidProblem):
        ctx.price("conv2d:fwd nonsense", {})
