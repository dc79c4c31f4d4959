"""The reference itself, against loops that are too plain to be wrong."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest
from geometry import core
from geometry.cases import problems
from geometry.core import Direction, W, X, Y
from geometry.simulation import convolve, random_tensors
from hypothesis import given, settings


def meetings(problem):
    """(x index, w index, y index) of every product of the convolution, one by one."""
    s = problem.shape
    spans = [s.n, s.g, s.k, s.c, *s.out, *s.filter]
    for n, g, k, c, *rest in itertools.product(*(range(span) for span in spans)):
        out, tap = rest[:3], rest[3:]
        rows = [out[a] * s.stride[a] + tap[a] * s.dilation[a] - s.pad_before[a] for a in range(3)]
        if all(0 <= row < s.input[a] for a, row in enumerate(rows)):
            used = [s.filter[a] - 1 - t for a, t in enumerate(tap)] if problem.flip else tap
            yield (n, g, c, *rows), (g, k, c, *used), (n, g, k, *out)


@settings(max_examples=60, deadline=None)
@given(problems((Direction.FWD,), epilogues=False))
def test_every_direction_is_the_sum_of_its_products(problem):
    x, w, y = (np.zeros(core.dims_of(problem, i)) for i in (X, W, Y))
    tensors = random_tensors(problem, 3) | {Y: np.arange(y.size, dtype=float).reshape(y.shape)}
    for i, j, k in itertools.islice(meetings(problem), 200_000):
        y[k] += tensors[X][i] * tensors[W][j]
        x[i] += tensors[Y][k] * tensors[W][j]
        w[j] += tensors[X][i] * tensors[Y][k]
    expected = {Direction.FWD: y, Direction.BWD_DATA: x, Direction.BWD_FILTER: w}
    for direction, sums in expected.items():
        problem.direction = direction
        np.testing.assert_array_equal(convolve(problem, problem.shape, tensors), sums)


def test_bias_is_summed_over_batch_and_positions():
    dy = np.arange(24.0).reshape(2, 3, 2, 2)
    np.testing.assert_array_equal(oracle.backward_bias(dy), [60, 92, 124])


def test_finish_goes_in_order():
    total, old = np.full((1, 2, 3), 2.0), np.full((1, 2, 3), 1.0)
    v = oracle.finish(
        total, alpha=3, scale=[1, -1], bias=[10, 0], residual=old, residual_alpha=4, beta=-2,
        old=old, activation="clip", parameter=17,
    )  # fmt: skip
    np.testing.assert_array_equal(v[0], [[17] * 3, [0] * 3])  # 6 + 10 + 4 - 2 = 18; -6 + 4 - 2 < 0


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [("relu", 0, 0.0), ("elu", 2, 2 * np.expm1(-1)), ("sigmoid", 0, 1 / (1 + np.e)),
     ("tanh", 0, np.tanh(-1)), ("swish", 1, -1 / (1 + np.e)), ("identity", 0, -1.0)],
)  # fmt: skip
def test_activations_at_minus_one(name, parameter, expected):
    np.testing.assert_allclose(oracle.activate(-1.0, name, parameter), expected, rtol=1e-15)


def test_padding_is_no_data():
    """A NaN in the filter spoils only outputs whose tap lies inside x."""
    w = np.array([[[np.nan, 1.0, 1.0]]])
    y = oracle.forward(np.ones((1, 1, 4)), w, padding=1)
    np.testing.assert_array_equal(np.isnan(y[0, 0]), [False, True, True, True])
