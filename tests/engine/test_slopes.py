"""Slopes of smooth activations: what the fused pass saves of them, and the gradients behind them.
Exact where the slopes are 0, 1 or a half; elsewhere to the stated roundings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import oracle
import pytest
from engine import test_fused, test_fused_backward
from engine.cases import DTYPES
from engine.test_fused import (
    AVERAGED,
    CURVED,
    OVERLAPPING,
    STEPS,
    Case,
    arrays_of,
    context,
    function_of,
    run,
    small,
    sums_of,
)
from engine.test_fused import cases as forward_cases
from engine.test_fused_backward import NEEDS, POOLS, Gradients, gradients_of, saved_of
from engine.test_fused_backward import cases as backward_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

UNHURRIED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def eps_of(dtype: str) -> float:
    return float(ml_dtypes.finfo(DTYPES[dtype]).eps)


@UNHURRIED
@given(forward_cases(), st.sampled_from(list(STEPS)))
def test_random_chains_that_save_slopes(case, activation):
    test_fused.check(replace(case, activation=activation), True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", CURVED)
@pytest.mark.parametrize("pool", [None, OVERLAPPING, AVERAGED], ids=["none", "over", "avg"])
def test_slopes_are_those_of_the_sums(pool, activation, dtype):
    """To a few roundings in the type of sums and one in the array's; where swish turns around its
    slope is a difference of ones. Winners are those of the reference but where results of theirs
    round to the same."""
    case = small(pool, activation=activation, budget=32 << 10, dtype=dtype, alpha=1 / 32)
    arrays = arrays_of(case)
    ran = run(case, arrays, True)
    assert ran.reports == []
    slopes, codes = oracle.slopes(sums_of(case, arrays), pool, *function_of(case))
    rows = ran.saved.bits.reshape(*slopes.shape[:-1], -1)
    got, places = oracle.unsloped(rows, oracle.code_bytes(pool), DTYPES[dtype])
    alike = np.ones(got.shape, bool) if codes is None else places == codes
    assert alike.mean() > 0.99
    wide = eps_of("f64" if dtype == "f64" else "f32")
    least = float(ml_dtypes.finfo(DTYPES[dtype]).smallest_subnormal)
    turns = 4 * wide if activation == "swish" else 0.0
    allowed = (eps_of(dtype) / 2 + 8 * wide) * np.abs(slopes) + turns + least
    assert np.all((np.abs(got - slopes) <= allowed)[alike])


@UNHURRIED
@given(backward_cases(), st.sampled_from(list(STEPS)))
def test_random_chains_behind_slopes(case, activation):
    test_fused_backward.check(replace(case, activation=activation))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", CURVED)
@pytest.mark.parametrize("pool", POOLS)
def test_curved_activations(pool, activation, dtype):
    """What the forward pass saved is what dy is made of, rounded once, and the gradients sums of
    that, with the roundings of as many terms in the type of sums and one in the array's."""
    case = small(POOLS[pool], activation=activation, dtype=dtype, n=2)
    made = gradients_of(case)
    arrays = made.arrays
    saved = saved_of(made)
    with context(budget=64 << 10, wrap="check") as ctx:
        got = ctx.conv_bias_act_pool_backward(made.dz, saved, arrays["x"], arrays["w"])
        assert ctx.check_reports() == []
    dy = dy_of(made, saved)
    wide = eps_of("f64" if dtype == "f64" else "f32")
    for need, value in zip(NEEDS, got, strict=True):
        exact, sizes = gradient(need, case, arrays, dy), sizes_of(need, case, arrays, dy)
        terms = max(dy.size // dy.shape[1], 9 * dy.shape[1])
        allowed = (eps_of(dtype) + terms * wide) * sizes
        assert np.all(np.abs(value.astype(np.float64) - exact) <= allowed)


@pytest.mark.parametrize("behind", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("forward", ["f32", "f16"])
def test_slopes_of_another_type_are_refused(forward, behind):
    """Their bytes were read as numbers of dz's type. Bits, which have none, serve any."""
    if forward == behind:
        return
    for activation, served in (("tanh", False), ("relu", True)):
        made = gradients_of(small(None, activation=activation, dtype=forward))
        saved = saved_of(made)
        dz, x, w = (
            one.astype(DTYPES[behind]) for one in (made.dz, *(made.arrays[n] for n in "xw"))
        )
        with context(budget=64 << 10) as ctx:
            if served:
                ctx.conv_bias_act_pool_backward(dz, saved, x, w)
                continue
            with pytest.raises(oocdnn.InvalidDtype, match="the slopes that were saved are float"):
                ctx.conv_bias_act_pool_backward(dz, saved, x, w)


def dy_of(made: Gradients, saved: Any) -> np.ndarray:
    """From dz and what is saved."""
    pool, extents = made.case.pool, saved.y_shape[2:]
    rows = saved.z_shape if pool is None or pool.mode == "max" else (
        *saved.y_shape[:2], *pool.reached(extents)
    )  # fmt: skip
    bits = saved.bits.reshape(*rows[:-1], -1)
    slopes, codes = oracle.unsloped(bits, oracle.code_bytes(pool), made.dz.dtype)
    dz = made.dz.astype(np.float64)
    if pool is None:
        return dz * slopes
    if pool.mode == "max":
        return oracle.pool_backward(dz * slopes, codes, extents, pool)
    whole = np.zeros(saved.y_shape)
    whole[tuple(slice(n) for n in slopes.shape)] = slopes
    return oracle.pool_backward(dz, np.zeros(dz.shape, int), extents, pool) * whole


def gradient(need: str, case: Case, arrays: dict[str, np.ndarray], dy: np.ndarray) -> np.ndarray:
    x, w = arrays["x"], arrays["w"]
    if need == "db":
        return oracle.backward_bias(dy)
    if need == "dx":
        return oracle.backward_data(dy, w, x.shape, **case.window)
    return oracle.backward_filter(x, dy, w.shape, **case.window)


def sizes_of(need: str, case: Case, arrays: dict[str, np.ndarray], dy: np.ndarray) -> np.ndarray:
    """Sums of the terms' magnitudes."""
    sizes = {name: np.abs(one.astype(np.float64)) for name, one in arrays.items()}
    return gradient(need, case, sizes, np.abs(dy))
