"""How plans are chosen: by estimate, by measurement, exhaustively; always within the budget, and
with the same results."""

from __future__ import annotations

import oracle
import pytest
from python.support import assert_equal, integers

import oocdnn

X = integers((4, 16, 24, 24))
W = integers((16, 16, 3, 3))
EXPECTED = oracle.forward(X, W)
PROBLEM = "conv2d:fwd x4x16x24x24 w16x16x3x3"
BUDGET = 40_000
WAYS = ("estimate", "gradual", "measure", "exhaustive")
EQUAL = 1.08  # a plan may be so much slower, for the memory it spares and the work it does not hide


def opened(**options) -> oocdnn.Context:
    return oocdnn.Context("cpu", BUDGET, profile="none", link_gb_per_s=1.0, **options)


@pytest.mark.parametrize("planning", WAYS)
def test_every_way_keeps_the_budget_and_the_results(planning):
    with opened(planning=planning, planning_seconds=0.2, wrap="check") as context:
        for call in range(2):
            assert_equal(oocdnn.conv2d(X, W), EXPECTED)
            assert context.stats.tiles > 1
            assert (context.stats.prepared > 0) == (call == 0)
            assert 0 < context.stats.peak_device_bytes <= BUDGET


def test_an_exhaustive_plan_is_predicted_to_be_as_fast_at_least():
    with opened() as context:
        usual = context.plan(PROBLEM).predicted_seconds
    with opened(planning="exhaustive", planning_seconds=1) as context:
        assert context.plan(PROBLEM).predicted_seconds <= EQUAL * usual


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"planning": "guess"}, "'guess'.*estimate, gradual, measure or exhaustive"),
        ({"planning": ""}, "estimate, gradual, measure or exhaustive"),
        ({"planning_seconds": -1}, "seconds of planning"),
        ({"planning_seconds": float("inf")}, "seconds of planning"),
    ],
)
def test_other_words_and_numbers_are_refused(options, what):
    with pytest.raises(oocdnn.InvalidProblem, match=what):
        opened(**options)


def test_a_variable_says_how_where_no_argument_does(monkeypatch):
    monkeypatch.setenv("OOCDNN_PLANNING", "guess")
    monkeypatch.setenv("OOCDNN_PLANNING_SECONDS", "soon")
    with pytest.raises(oocdnn.InvalidProblem, match="guess"):
        opened()
    with pytest.raises(oocdnn.InvalidProblem, match="soon"):
        opened(planning="measure")
    opened(planning="measure", planning_seconds=1).close()


def test_arrays_too_large_for_an_index_are_computed_in_parts_where_they_lie():
    """Of 2^31 elements and more, on the device; one sample has fewer."""
    problem = "conv2d:fwd x2x1x32768x32769 w1x1x1x1 x@dev w@dev y@dev"
    with oocdnn.Context("cpu", "64MiB", engine="direct", wrap="resident") as context:
        plan = context.plan(problem)
    assert plan.plan.startswith("direct n1 g1 k1 c1 d1 h32768 w32769 order n ")
    assert plan.booked_bytes < 1 << 20
