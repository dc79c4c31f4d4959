"""Gradients of convolution, bias, activation and pool, of which dy is made on the device from dz
and what the forward pass saved: exact against the reference operations one after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import oracle
import pytest
from engine.cases import DTYPES, HypothesisDraw, RandomDraw, lay_out
from engine.test_fused import (
    APART,
    AVERAGED,
    ENGINES,
    OVERLAPPING,
    Case,
    arrays_of,
    composed,
    context,
    function_of,
    is_smooth,
    keywords_of,
    parameter_of,
    random_case,
    small,
    sums_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

NEEDS = ("dx", "dw", "db")


@dataclass
class Gradients:
    """What a case's gradients should be, from these arrays."""

    case: Case
    arrays: dict[str, np.ndarray]
    dz: np.ndarray
    expected: dict[str, np.ndarray] = field(default_factory=dict)


def unpooled(dz: np.ndarray, y: np.ndarray, pool: oracle.Pool) -> np.ndarray:
    extents = y.shape[y.ndim - len(pool.window) :]
    return oracle.pool_backward(dz, oracle.pool(y, pool)[1], extents, pool)


def unit_of(case: Case) -> int:
    """Of dz: a share of an average is a whole number."""
    averaged = case.pool is not None and case.pool.mode != "max"
    return math.prod(math.lcm(*range(1, w + 1)) for w in case.pool.window) if averaged else 1


def gradients_of(case: Case) -> Gradients:
    arrays = arrays_of(case)
    rng = np.random.default_rng(case.seed + 1)
    z = composed(case, arrays)[0]
    numbers = rng.integers(-2, 3, z.shape) * unit_of(case)
    dz = lay_out(numbers.astype(DTYPES[case.dtype]), case.layout)
    made = Gradients(case, arrays, dz)
    sums = sums_of(case, arrays)
    y = oracle.activate(sums, *function_of(case))
    dy = dz.astype(np.float64) if case.pool is None else unpooled(dz, y, case.pool)
    if is_smooth(case):
        dy = dy * oracle.slope(sums, *function_of(case))
    else:
        dy = np.where(oracle.alive(y, case.activation, parameter_of(case)), dy, 0.0)
    x, w = arrays["x"], arrays["w"]
    made.expected["dx"] = case.alpha * oracle.backward_data(dy, w, x.shape, **case.window)
    made.expected["dw"] = case.alpha * oracle.backward_filter(x, dy, w.shape, **case.window)
    made.expected["db"] = oracle.backward_bias(dy)
    return made


def saved_of(made: Gradients) -> Any:
    with context() as ctx:
        return ctx.conv_bias_act_pool(
            **made.arrays, **keywords_of(made.case), save_for_backward=True
        )[1]


def run(made: Gradients, need: str, saved: Any, budget: int, **options) -> tuple[Any, Any]:
    """One gradient within the budget, or within the least that the library says works; and the
    statistics of the call."""
    for attempt in range(2):
        with context(budget=budget, **{"wrap": "check", **options}) as ctx:
            try:
                (got,) = ctx.conv_bias_act_pool_backward(
                    made.dz, saved, made.arrays["x"], made.arrays["w"], needs=(need,)
                )
            except oocdnn.OutOfMemory as error:
                if attempt or not error.least > budget:
                    raise
                budget = error.least
                continue
            assert ctx.check_reports() == []
            assert ctx.stats.peak_device_bytes <= budget
            return got, ctx.stats
    raise AssertionError("unreachable")


def need_equal(made: Gradients, need: str, got: np.ndarray) -> None:
    expected = made.expected[need].astype(DTYPES[made.case.dtype])
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))


def check(case: Case, needs: tuple[str, ...] = NEEDS, **options) -> None:
    made = gradients_of(case)
    saved = saved_of(made)
    for need in needs:
        got, stats = run(made, need, saved, case.budget, **options)
        need_equal(made, need, got)
        assert stats.bytes_d2h == got.nbytes


def backward_case(draw, **fixed) -> Case:
    """Without what has no gradient here. Tiles of 16 bits would round what windows that overlap
    add up to."""
    case = random_case(draw, scale=False, **fixed)
    averaged = case.pool is not None and case.pool.mode != "max"
    return replace(case, dtype="f32") if averaged and case.dtype in ("f16", "bf16") else case


@st.composite
def cases(draw) -> Case:
    return backward_case(HypothesisDraw(draw))


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_random_chains(case):
    check(case)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(8))
def test_every_engine(engine, seed):
    case = backward_case(RandomDraw(np.random.default_rng(seed)))
    if engine == "onednn" and case.dtype == "f64":
        case = replace(case, dtype="f32")
    # oneDNN has no gradient of the bias alone.
    check(case, NEEDS[:2] if engine == "onednn" else NEEDS, engine=engine)


AVERAGED_APART = oracle.Pool("avg", (2, 2), (2, 2), ((0, 0), (0, 0)))
POOLS = {"over": OVERLAPPING, "apart": APART, "avg": AVERAGED, "none": None}
DIRECTIONS = {"dx": "bwd_data", "dw": "bwd_filter", "db": "bwd_bias"}


def problem_of(case: Case, need: str) -> str:
    pool, layout = "", {"channels_first": "", "channels_last": " nhwc"}[case.layout]
    if case.pool is not None:
        word = {"max": "maxpool", "avg": "avgpool"}[case.pool.mode]
        pool = (
            f" +{word}{case.pool.window[0]} poolstr{case.pool.stride[0]} "
            f"poolpad{case.pool.padding[0][0]}"
        )
    behind = " +sloped" if is_smooth(case) else " +clipped" if case.activation == "relu" else ""
    rest = f"{layout}{pool}{behind}"
    channels = case.groups * case.k
    if need == "db":  # whose channels are all of one kind
        return f"conv2d:bwd_bias y{case.n}x{channels}x15x50{rest}"
    x = "x".join(map(str, (case.n, case.groups * case.c, *case.extent)))
    head = f"conv2d:{DIRECTIONS[need]} x{x} w{channels}x{case.c}x3x3"
    return f"{head} pad1 grp{case.groups}{rest}"


@cache
def made_once(
    pool: str, layout: str, one_group: bool, activation: str
) -> tuple[Case, Gradients, Any]:
    case = small(POOLS[pool], layout=layout, activation=activation)
    if one_group:
        case = replace(case, groups=1, k=8)
    made = gradients_of(case)
    return case, made, saved_of(made)


@pytest.mark.parametrize("activation", ["relu", "elu0"])
@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("plan", ["n1", "g1", "k3", "c1", "h1", "h4", "w8", "w16", "n1 h2 w32"])
def test_every_split(plan, need, pool, layout, activation):
    if need == "db" and plan[0] in "gc":
        pytest.skip("a bias has neither groups nor channels of x")
    case, made, saved = made_once(pool, layout, plan[0] == "k", activation)
    with context(wrap="check", engine="direct") as ctx:
        ctx.use_plan(problem_of(case, need), f"{plan} slots 2")
        (got,) = ctx.conv_bias_act_pool_backward(
            made.dz, saved, made.arrays["x"], made.arrays["w"], needs=(need,)
        )
        axis = {"g": "groups"}.get(plan[0], plan[0])
        assert ctx.stats.split[axis] > 1
        assert ctx.check_reports() == []
        need_equal(made, need, got)
        assert ctx.stats.bytes_d2h == got.nbytes


@pytest.mark.parametrize("pool", ["over", "apart", "avg"])
def test_each_byte_crosses_once(pool):
    """Rows that the windows of two tiles share are handed on inside the device, and dy, which is
    larger than dz, crosses no wire."""
    made = gradients_of(small(POOLS[pool], n=1, budget=48 << 10))
    saved = saved_of(made)
    reads = {"dx": made.arrays["w"].nbytes, "dw": made.arrays["x"].nbytes, "db": 0}
    for need in NEEDS:
        with context(wrap="check", engine="direct") as ctx:
            ctx.use_plan(problem_of(made.case, need), "h4 slots 2")
            (got,) = ctx.conv_bias_act_pool_backward(
                made.dz, saved, made.arrays["x"], made.arrays["w"], needs=(need,)
            )
            assert ctx.stats.split["h"] > 2
            assert ctx.stats.bytes_d2h == got.nbytes
            assert ctx.stats.bytes_h2d <= reads[need] + made.dz.nbytes + saved.nbytes
            need_equal(made, need, got)


@pytest.mark.parametrize("budget", [1 << 20, 12 << 10])
def test_the_first_of_equals_gets_it_all_and_so_does_a_nan(budget):
    case = small(OVERLAPPING, n=1, groups=1, k=2, c=1, taps=(1, 1), padding=((0, 0),) * 2)
    case = replace(case, bias=False, budget=budget, activation="identity")
    made = gradients_of(case)
    made.arrays["x"] = np.clip(made.arrays["x"], 1, 2)
    made.arrays["x"][0, 0, 4, 4] = made.arrays["x"][0, 0, 4, 5] = np.nan
    made.arrays["w"][:] = 1
    y = oracle.forward(made.arrays["x"], made.arrays["w"], **case.window)
    dy = unpooled(made.dz, y, case.pool)
    got, _ = run(made, "dx", saved_of(made), budget)
    np.testing.assert_array_equal(got, dy.sum(axis=1, keepdims=True))


def test_results_are_added_to_what_out_holds():
    made = gradients_of(small(OVERLAPPING))
    rng = np.random.default_rng(9)
    out = {
        need: rng.integers(-3, 4, made.expected[need].shape).astype(np.float32) for need in NEEDS
    }
    wanted = {need: made.expected[need] + out[need] for need in NEEDS}
    with context(budget=48 << 10, wrap="check") as ctx:
        saved = saved_of(made)
        got = ctx.conv_bias_act_pool_backward(
            made.dz, saved, made.arrays["x"], made.arrays["w"], out=out, beta=1
        )
        assert ctx.check_reports() == []
    for need, result in zip(NEEDS, got, strict=True):
        assert result is out[need]
        np.testing.assert_array_equal(result, wanted[need])


def test_only_what_is_needed_is_asked_for():
    made = gradients_of(small(APART))
    with context() as ctx:
        saved = saved_of(made)
        dw, db = ctx.conv_bias_act_pool_backward(
            made.dz, saved, x=made.arrays["x"], needs=("dw", "db")
        )
        (dx,) = ctx.conv_bias_act_pool_backward(made.dz, saved, w=made.arrays["w"], needs=("dx",))
    for need, got in (("dx", dx), ("dw", dw), ("db", db)):
        need_equal(made, need, got)


def test_what_has_no_gradient_says_so():
    case = small(APART, scale=True)
    arrays = arrays_of(case)
    with context() as ctx:
        z, saved = ctx.conv_bias_act_pool(**arrays, **keywords_of(case), save_for_backward=True)
        with pytest.raises(oocdnn.Unsupported, match="gradient"):
            ctx.conv_bias_act_pool_backward(z, saved, arrays["x"], arrays["w"])


def test_no_samples_make_gradients_of_zero():
    made = Gradients(small(APART, n=0), arrays_of(small(APART, n=0)), np.zeros(0))
    with context() as ctx:
        z, saved = ctx.conv_bias_act_pool(
            **made.arrays, **keywords_of(made.case), save_for_backward=True
        )
        dx, dw, db = ctx.conv_bias_act_pool_backward(z, saved, made.arrays["x"], made.arrays["w"])
    assert dx.shape == made.arrays["x"].shape
    assert not dw.any()
    assert not db.any()


@pytest.mark.parametrize("seed", range(6))
def test_random_delays_change_nothing(seed):
    case = backward_case(RandomDraw(np.random.default_rng(200 + seed)), budget=8 << 10)
    check(case, link_gb_per_s=0.5)


def test_warm_calls_prepare_and_allocate_nothing():
    made = gradients_of(small(OVERLAPPING))
    saved = saved_of(made)
    with context(budget=48 << 10) as ctx:
        for call in range(4):
            ctx.conv_bias_act_pool_backward(
                made.dz, saved, made.arrays["x"], made.arrays["w"], needs=("dw",)
            )
            assert call == 0 or ctx.stats.device_allocations == ctx.stats.prepared == 0


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("pool", POOLS)
def test_predicted_bytes_are_those_that_cross(pool, need, activation):
    made = gradients_of(small(POOLS[pool], activation=activation))
    saved = saved_of(made)
    with context(budget=48 << 10) as ctx:
        plan = ctx.plan(problem_of(made.case, need))
        ctx.conv_bias_act_pool_backward(
            made.dz, saved, made.arrays["x"], made.arrays["w"], needs=(need,)
        )
        assert plan.bytes_h2d == ctx.stats.bytes_h2d
        assert plan.bytes_d2h == ctx.stats.bytes_d2h
