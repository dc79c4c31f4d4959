"""What results promise: invariance, determinism, NaN and infinity, beta = 0, warm calls."""

import numpy as np
import oracle
import pytest
from engine.cases import (
    DEVICE,
    HypothesisDraw,
    RandomDraw,
    call,
    make_inputs,
    random_case,
    run_case,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import oocdnn


def with_values(case, arrays, seed):
    """The case's arrays with random reals, so that the order of additions shows in the bits."""
    rng = np.random.default_rng(seed)
    for array in arrays.values():
        array[...] = rng.standard_normal(array.shape).astype(array.dtype)
    return arrays


def bits(array):
    return np.ascontiguousarray(array).tobytes()


def result_within(case, arrays, budget, **options):
    for _ in range(2):
        with oocdnn.Context(device=DEVICE, budget=budget, profile="none", **options) as ctx:
            try:
                return call(ctx, case, arrays), ctx.stats
            except oocdnn.OutOfMemory as error:
                budget = error.least
    raise AssertionError("the least budget does not work")


@st.composite
def cases(draw):
    return random_case(HypothesisDraw(draw))


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 2**20))
def test_reproducible_bits_do_not_depend_on_the_budget(case, seed):
    arrays = with_values(case, make_inputs(case), seed)
    whole, _ = result_within(case, arrays, 1 << 28, reproducible=True)
    tiled, _ = result_within(case, arrays, case.budget // 4, reproducible=True)
    assert bits(whole) == bits(tiled)


@pytest.mark.parametrize("seed", range(8))
def test_same_bits_from_run_to_run(seed):
    case = random_case(RandomDraw(np.random.default_rng(seed)), small=False)
    arrays = with_values(case, make_inputs(case), seed)
    first, _ = result_within(case, arrays, case.budget)
    for _ in range(3):
        again, _ = result_within(case, arrays, case.budget)
        assert bits(first) == bits(again)


def spoiled(case, arrays, seed, value):
    """Puts one NaN or infinity into x or dy; returns the reference in float64."""
    rng = np.random.default_rng(seed)
    inputs = {"forward": "x", "backward_data": "y", "backward_bias": "y"}
    name = inputs.get(case.direction) or rng.choice(["x", "y"])
    array = arrays[name]
    array[tuple(rng.integers(0, extent) for extent in array.shape)] = value
    x, w, y = (arrays[n].astype(np.float64) for n in "xwy")
    window = case.window()
    if case.direction == "forward":
        return oracle.forward(x, w, **window)
    if case.direction == "backward_data":
        return oracle.backward_data(y, w, case.x_shape, **window)
    if case.direction == "backward_bias":
        return oracle.backward_bias(y)
    # In a filter gradient padding is data: a NaN in dy meets the zeros around x.
    padded = np.pad(x, [(0, 0), (0, 0), *case.padding])
    window["padding"] = 0
    return oracle.backward_filter(padded, y, case.w_shape, **window)


@pytest.mark.filterwarnings("ignore:invalid value")
@settings(max_examples=80, deadline=None)
@given(cases(), st.integers(0, 2**20), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_nan_and_infinity_stay_local(case, seed, value):
    case = type(case)(
        **{**case.__dict__, "alpha": 1.0, "beta": 0.0, "dtype": "f32", "mode": "cross_correlation"}
    )
    arrays = make_inputs(case)
    arrays["w"][arrays["w"] == 0] = 1  # zero times infinity is a matter of its own
    expected = spoiled(case, arrays, seed, value)
    result, _ = result_within(case, arrays, case.budget // 4, engine="direct")
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))


@pytest.mark.parametrize("seed", range(6))
def test_beta_zero_never_reads_the_output(seed):
    case = random_case(RandomDraw(np.random.default_rng(seed)), rank=2)
    case = type(case)(**{**case.__dict__, "direction": "forward", "beta": 0.0, "dtype": "f32"})
    arrays = make_inputs(case)
    out = np.full(case.y_shape, np.nan, np.float32)
    with oocdnn.Context(device=DEVICE, budget=256 << 10) as ctx:
        ctx.conv2d(
            arrays["x"], arrays["w"], out=out, alpha=case.alpha, mode=case.mode, **case.window()
        )
    assert not np.isnan(out).any()


def test_warm_calls_prepare_and_allocate_nothing():
    case = random_case(RandomDraw(np.random.default_rng(3)), rank=2, small=False)
    arrays = make_inputs(case)
    with oocdnn.Context(device=DEVICE, budget=128 << 10) as ctx:
        call(ctx, case, arrays)
        for _ in range(20):
            call(ctx, case, arrays)
            assert ctx.stats.device_allocations == 0
            assert ctx.stats.prepared == 0


@pytest.mark.parametrize("seed", range(20))
def test_random_delays_change_nothing(seed):
    """Streams under random delays, with poisoned slots and the hazard checker."""
    case = random_case(RandomDraw(np.random.default_rng(100 + seed)))
    outcome = run_case(case, wrap="check", link_gb_per_s=0.5)
    assert outcome.mismatches() == 0
    assert outcome.reports == []
