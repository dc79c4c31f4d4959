"""Conversions of 16-bit numbers, against NumPy's float16 and ml_dtypes' bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
from geometry import core
from geometry.core import DType
from hypothesis import given, settings
from hypothesis import strategies as st

ml_dtypes = pytest.importorskip("ml_dtypes")

REFERENCE = {DType.F16: np.dtype(np.float16), DType.BF16: np.dtype(ml_dtypes.bfloat16)}
every_dtype = pytest.mark.parametrize("dtype", list(REFERENCE))
ALL = np.arange(2**16, dtype=np.uint16)


def widen(dtype, bits) -> np.ndarray:
    bits = np.ascontiguousarray(bits, dtype=np.uint16)
    values = np.empty(bits.shape, dtype=np.float32)
    core.library().oocdnn_testing_widen(
        int(dtype), *(core.ctypes.c_void_p(a.ctypes.data) for a in (bits, values)),
        core.c_int64(bits.size),
    )  # fmt: skip
    return values


def narrow(dtype, values) -> np.ndarray:
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = np.empty(values.shape, dtype=np.uint16)
    core.library().oocdnn_testing_narrow(
        int(dtype), *(core.ctypes.c_void_p(a.ctypes.data) for a in (values, bits)),
        core.c_int64(bits.size),
    )  # fmt: skip
    return bits


def assert_narrows_like_reference(dtype, values) -> None:
    values = np.asarray(values, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(REFERENCE[dtype])
    ours, nan = narrow(dtype, values), np.isnan(values)
    np.testing.assert_array_equal(ours[~nan], expected.view(np.uint16)[~nan])
    assert np.isnan(ours.view(REFERENCE[dtype])[nan].astype(np.float32)).all()


@every_dtype
def test_every_value_widens(dtype):
    expected = ALL.view(REFERENCE[dtype]).astype(np.float32)
    ours, nan = widen(dtype, ALL), np.isnan(expected)
    np.testing.assert_array_equal(ours[~nan].view(np.uint32), expected[~nan].view(np.uint32))
    assert np.isnan(ours[nan]).all()


@every_dtype
def test_every_value_survives_the_way_there_and_back(dtype):
    values = widen(dtype, ALL)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(narrow(dtype, values)[numbers], ALL[numbers])


@every_dtype
def test_ties_go_to_even_and_their_neighbours_to_the_nearest(dtype):
    """The midpoints of all neighbouring values, subnormal ones and the last before infinity too."""
    finite = widen(dtype, ALL[: 2**15])
    finite = finite[np.isfinite(finite)].astype(np.float64)
    step = finite[-1] - finite[-2]
    middle = (finite + np.append(finite[1:], finite[-1] + step)) / 2
    ties = middle.astype(np.float32)
    np.testing.assert_array_equal(ties, middle)
    for values in (ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf))):
        assert_narrows_like_reference(dtype, values)
        assert_narrows_like_reference(dtype, -values)


@every_dtype
def test_random_bit_patterns(dtype):
    bits = np.random.default_rng(7).integers(0, 2**32, 2_000_000, dtype=np.uint32)
    assert_narrows_like_reference(dtype, bits.view(np.float32))


@every_dtype
def test_special_values(dtype):
    tiny = np.float32(2.0**-149)
    assert_narrows_like_reference(
        dtype, [0.0, -0.0, np.inf, -np.inf, tiny, -tiny, 3.4e38, -3.4e38, 65504, 65519.996, 65520]
    )
    nans = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7F80FFFF], dtype=np.uint32)
    assert_narrows_like_reference(dtype, nans.view(np.float32))


@every_dtype
@settings(max_examples=300, deadline=None)
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_any_float(dtype, values):
    assert_narrows_like_reference(dtype, values)
