"""The layers of the benchmarks are what they claim to be."""

import numpy as np
import oracle
import pytest
from bench_cases import SMALL

from oocdnn.bench.layers import DIRECTIONS, LARGEST, LAYERS, Layer, integers, operands

FLOAT32_INTEGERS = 2**24  # every integer up to here is a float32
BEYOND_CACHES = 20_000_000


def test_names_are_unique() -> None:
    assert len({case.name for case in LAYERS}) == len(LAYERS) == 12


@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.name)
def test_sums_are_exact_in_every_order(case: Layer) -> None:
    for direction in DIRECTIONS:
        assert case.longest_sum(direction) * LARGEST**2 <= FLOAT32_INTEGERS


@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.name)
def test_layers_are_larger_than_caches(case: Layer) -> None:
    assert case.data_bytes > BEYOND_CACHES


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_output_shape_is_that_of_the_reference(case: Layer) -> None:
    x, w = operands(case, "fwd")
    y = oracle.forward(
        x,
        w,
        stride=case.stride,
        padding=case.padding,
        dilation=case.dilation,
        groups=case.groups,
    )
    assert y.shape == case.shape("y")


def test_operations_and_bytes_of_a_known_layer() -> None:
    vgg = LAYERS[0]
    assert vgg.flops == 2 * 8 * 224 * 224 * 64 * 64 * 9
    assert vgg.data_bytes == 4 * (2 * 8 * 64 * 224 * 224 + 64 * 64 * 9)
    assert vgg.longest_sum("bwd_filter") == 8 * 224 * 224


def test_problem_strings() -> None:
    assert LAYERS[0].problem("fwd") == "conv2d:fwd x8x64x224x224 w64x64x3x3 pad1"
    assert SMALL[3].problem("bwd_data") == "conv2d:bwd_data x2x3x20x20 w16x3x7x7 pad3 str2"
    assert SMALL[4].problem("bwd_filter") == (
        "conv2d:bwd_filter x2x32x9x9 w64x8x3x3 pad2 dil2 grp4"
    )


def test_data_are_small_integers_and_repeatable() -> None:
    values = integers((50, 40), 3)
    assert values.dtype == np.float32
    assert set(np.unique(values)) == set(range(-LARGEST, LARGEST + 1))
    assert np.array_equal(values, integers((50, 40), 3))
    assert not np.array_equal(values, integers((50, 40), 4))
