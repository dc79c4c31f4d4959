"""Sums of the bias's gradient: their bits are those of one addition after the other."""

from __future__ import annotations

import numpy as np
from checks import Rng, op_text, run_twice, shapes_of, sized_op
from core import BACKWARD_BIAS, F32, F64, NAMES, Rig, Y, _three, load, store


def chain_values(rng: Rng, shape: tuple[int, ...], dtype: int) -> np.ndarray:
    """Numbers of many sizes: chains of them round now and then, always or never."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-10, 3)
    kind = rng.integers(0, 5)
    if kind == 0:  # sizes far apart
        values *= 2.0 ** rng.integers(-12, 13, shape)
    elif kind == 1:  # a sum that grows
        values = np.abs(values) + rng.integers(0, 2)
    elif kind == 2:  # mostly zeros
        values[rng.random(shape) < 0.9] = 0
    elif kind == 3:  # many last digits that are exactly halves
        values = rng.integers(1, 2**11, shape) * 2.0 ** rng.integers(-9, 1, shape)
        values.flat[0] = 2.0**15
    if rng.random() < 0.1:
        values.flat[rng.integers(0, values.size)] = rng.choice((np.inf, -np.inf, np.nan))
    return load(store(values, dtype), dtype)


def chain_check(rig: Rig, rng: Rng) -> str:
    """Long sums of the bias's gradient have the bits of one addition after the other."""
    op = sized_op(BACKWARD_BIAS, int(rng.integers(1, 6)), 1, int(rng.integers(1, 4)), 1, 1)
    op.dtype, op.accumulates = int(rng.integers(0, 4)), 1
    op.out_dtype = F64 if op.dtype == F64 else F32
    op.workspace_limit = int(rng.random() < 0.3)  # 1: no byte of it
    op.out = op.inp = _three(1, int(rng.integers(1, 130)), int(rng.integers(1, 130)))
    if rng.random() < 0.3:
        op.n, op.out = int(rng.integers(200, 2000)), _three(1, 1, int(rng.integers(1, 20)))
        op.inp = op.out
    values = {Y: chain_values(rng, shapes_of(op)[Y], op.dtype)}
    once, twice, _ = run_twice(rig, op, values, "direct")
    with np.errstate(invalid="ignore"):
        order = np.moveaxis(values[Y], 0, 2).reshape(op.k, -1)
        wanted = np.cumsum(np.concatenate((order, order), axis=1), axis=1)
    half = order.shape[1]
    for seen, at in ((once, half - 1), (twice, 2 * half - 1)):
        assert np.array_equal(seen.reshape(-1), wanted[:, at], equal_nan=True), op_text(op)
    return NAMES[op.dtype]
