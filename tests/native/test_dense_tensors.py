"""Tensors that the C interface makes of a shape alone."""

import pytest

from oocdnn._core import native

FFI = native._ffi()


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2, 3, 4, 5), [60, 20, 5, 1]),
        ((2, 0, 4), [4, 4, 1]),  # an extent of 0 counts as 1
        ((7,), [1]),
        ((), []),
    ],
)
def test_strides_are_dense(shape, strides):
    lib = native._library()
    sizes = FFI.new("int64_t[5]", list(shape))
    tensor = lib.oocdnn_dense_tensor(lib.OOCDNN_FLOAT32, len(shape), sizes, FFI.NULL)
    assert list(tensor.shape)[: len(shape)] == list(shape)
    assert list(tensor.stride)[: len(shape)] == strides
    assert tensor.fd == -1
