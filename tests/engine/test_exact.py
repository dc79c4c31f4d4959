"""Whatever the problem and the budget: the exact sum, within the budget, without a hazard."""

import numpy as np
import pytest
from engine.cases import (
    AXES,
    DEVICE,
    DIRECTIONS,
    Case,
    HypothesisDraw,
    RandomDraw,
    forced_case,
    random_case,
    run_case,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn


@st.composite
def cases(draw):
    return random_case(HypothesisDraw(draw))


def check(outcome):
    assert outcome.reports == []
    assert outcome.stats.peak_device_bytes <= outcome.budget
    assert outcome.mismatches() == 0


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_random_problems(case):
    check(run_case(case))


ENGINES = ["onednn", "direct", "reference"] if DEVICE == "cpu" else ["direct"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(12))
def test_every_engine(engine, seed):
    case = random_case(RandomDraw(np.random.default_rng(seed)))
    if engine == "onednn" and (case.dtype == "f64" or case.direction == "backward_bias"):
        pytest.skip("oneDNN has no float64 convolution and no bias gradient of its own")
    check(run_case(case, engine=engine))


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_axis_that_has_to_be_split_is_split(direction, axis):
    if direction == "backward_bias" and axis in ("C", "groups"):
        pytest.skip("backward bias has neither C nor groups")
    seed = list(AXES).index(axis) * 10 + DIRECTIONS.index(direction)
    draw = RandomDraw(np.random.default_rng(seed))
    for _ in range(2):
        outcome = run_case(forced_case(draw, direction, axis))
        check(outcome)
        assert outcome.stats.split[AXES[axis]] > 1


def test_the_smallest_tiles_serve_where_no_faster_plan_fits():
    """oneDNN refuses the taps in the padding, and what the search offers of other engines is too
    large once prepared."""
    case = Case(
        direction="backward_filter", n=1, groups=1, k=7, c=2, extent=(5, 6, 7), taps=(3, 1, 5),
        stride=(1, 1, 1), padding=((0, 0), (1, 1), (1, 1)), dilation=(1, 1, 2), dtype="f32",
        layout="channels_first", mode="cross_correlation", alpha=1.0, beta=0.0, seed=0,
        budget=4096, options={},
    )  # fmt: skip
    check(run_case(case))


@pytest.mark.parametrize(
    ("x_shape", "budget"),
    [((1, 1, 1024, 1024), "64MiB"), ((2, 1, 4, 3, 3), "2MiB")],
    ids=["as long as the input", "longer"],
)
def test_steps_as_long_as_the_input_or_longer(x_shape, budget):
    """The gradient is the filter, in a corner. Each position of a step has taps of its own, or
    none."""
    taps = (3,) * (len(x_shape) - 2)
    w = np.arange(3 ** len(taps), dtype=np.float32).reshape(1, 1, *taps)
    dy = np.full((x_shape[0], *[1] * (len(x_shape) - 1)), 2, np.float32)
    dx = np.zeros(x_shape, np.float32)
    dx[(..., *map(slice, taps))] = 2 * w
    with oocdnn.Context(device=DEVICE, budget=budget, engine="direct"):
        found = oocdnn.conv_backward_data(dy, w, x_shape, stride=1024)
    assert np.array_equal(found, dx)
