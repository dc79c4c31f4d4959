"""Data and comparisons that the tests of the Python interface share.

Arrays hold small integers, so every sum is exact in every type and results are compared for
equality with the float64 reference, rounded once.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
SMALL = "256KiB"  # a budget that makes tiles of what the tests compute


def integers(shape, seed=0, dtype=np.float32, largest=3):
    """Integers from -largest to largest."""
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(-largest, largest + 1, shape).astype(dtype)


def channels_last(array):
    """The same elements with the channels innermost in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def is_channels_last(array) -> bool:
    return np.moveaxis(array, 1, -1).flags.c_contiguous


def assert_equal(result, reference):
    """Equal to the reference after one rounding to the result's type."""
    assert result.shape == reference.shape
    expected = np.asarray(reference).astype(result.dtype)
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


def assert_close(result, reference, tolerance=1e-5):
    np.testing.assert_allclose(
        np.asarray(result).astype(np.float64), reference, rtol=tolerance, atol=tolerance
    )
