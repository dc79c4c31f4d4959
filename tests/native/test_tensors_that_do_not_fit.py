"""Tensors of a C program that a call must not touch: dz of other extents than y, and addresses
between elements."""

from __future__ import annotations

import numpy as np
import pytest

from oocdnn._core import native
from oocdnn._core.cdefs import Direction, DType, Status

FFI, LIB = native._ffi(), native._library()
ONES = {
    "x": np.ones((1, 1, 4, 4), np.float32),
    "w": np.ones((1, 1, 3, 3), np.float32),
    "y": np.ones((1, 1, 2, 2), np.float32),
    "db": np.ones(1, np.float32),
}


@pytest.fixture
def context():
    made, options = FFI.new("oocdnn_context **"), FFI.new("oocdnn_options *")
    options[0] = LIB.oocdnn_default_options()
    device, profile = FFI.new("char[]", b"cpu"), FFI.new("char[]", b"none")
    options.device, options.profile = device, profile
    assert LIB.oocdnn_create(options, made) == Status.OK
    yield made[0]
    LIB.oocdnn_destroy(made[0])


def run(context, direction, arrays, shift=""):
    """The status and the text of a call, whose tensor `shift` begins one byte late."""
    convolution, operands = FFI.new("oocdnn_convolution *"), FFI.new("oocdnn_operands *")
    convolution[0] = LIB.oocdnn_default_convolution(direction, 2)
    kept = []
    for name, array in arrays.items():
        memory = np.zeros(array.nbytes + 1, np.uint8)
        start = memory[1:] if name == shift else memory
        start[: array.nbytes] = array.reshape(-1).view(np.uint8)
        tensor, shape = FFI.new("oocdnn_tensor *"), FFI.new("int64_t[]", array.shape)
        data = FFI.cast("void *", start.ctypes.data)
        tensor[0] = LIB.oocdnn_dense_tensor(DType.FLOAT32, array.ndim, shape, data)
        kept += [memory, tensor, shape]
        setattr(operands, name, tensor)
    status = LIB.oocdnn_run(context, convolution, operands)
    return status, FFI.string(LIB.oocdnn_last_error()).decode()


@pytest.mark.parametrize("direction", [Direction.BACKWARD_FILTER, Direction.BACKWARD_DATA])
@pytest.mark.parametrize(("shape", "axis"), [((1, 1, 1, 2), "H"), ((1, 1, 2, 3), "W")])
def test_dz_without_a_pool_has_the_extents_of_y(context, direction, shape, axis):
    arrays = {name: ONES[name] for name in ("x", "w", "db")}
    status, text = run(context, direction, arrays | {"z": ONES["y"]})
    assert status == Status.OK, text
    status, text = run(context, direction, arrays | {"z": np.ones(shape, np.float32)})
    assert status == Status.INVALID_PROBLEM
    assert f"on axis {axis}; the convolution makes it 2" in text


@pytest.mark.parametrize("name", ["x", "w", "y"])
def test_tensors_begin_at_a_multiple_of_an_element(context, name):
    arrays = {operand: ONES[operand] for operand in ("x", "w", "y")}
    assert run(context, Direction.FORWARD, arrays)[0] == Status.OK
    status, text = run(context, Direction.FORWARD, arrays, shift=name)
    assert status == Status.INVALID_PROBLEM
    assert text.startswith(f"{name} begins at address 0x")
    assert "no multiple of its elements' 4 bytes" in text
