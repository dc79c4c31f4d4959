"""Pools and saved bits as a program in C asks for them, rightly and wrongly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import oracle
import pytest

from oocdnn._core import native
from oocdnn._core.cdefs import Direction, DType, PoolMode, Status

FFI, NULL = native._ffi(), native._ffi().NULL
OK, INVALID, WRONG_TYPE = Status.OK, Status.INVALID_PROBLEM, Status.INVALID_DTYPE


@pytest.fixture
def lib():
    return native._library()


class Call:
    """A max pool of 2x2 over relu(conv + b), which saves bits; tests spoil it."""

    def __init__(self, lib) -> None:
        self.lib, self.kept = lib, []
        rng = np.random.default_rng(1)
        self.arrays = {
            name: rng.integers(-3, 4, shape).astype(np.float32)
            for name, shape in (("x", (2, 3, 9, 11)), ("w", (4, 3, 3, 3)), ("bias", (4,)))
        }
        self.arrays["z"] = np.full((2, 4, 4, 5), np.nan, np.float32)
        self.arrays["saved"] = np.full(2 * 4 * 4 * 2, 0xAA, np.uint8)
        self.convolution = FFI.new("oocdnn_convolution *")
        self.convolution[0] = lib.oocdnn_default_convolution(Direction.FORWARD, 2)
        c = self.convolution
        c.pad_before[1:3] = c.pad_after[1:3] = [1, 1]
        c.activation, c.saves = 1, 1
        c.pool.mode = PoolMode.MAX
        c.pool.window[1:3] = c.pool.stride[1:3] = [2, 2]
        self.operands = FFI.new("oocdnn_operands *")
        for name, array in self.arrays.items():
            shape, data = FFI.new("int64_t[]", array.shape), FFI.from_buffer(array)
            tensor = FFI.new("oocdnn_tensor *")
            dtype = DType.BYTE if name == "saved" else DType.FLOAT32
            tensor[0] = lib.oocdnn_dense_tensor(dtype, array.ndim, shape, data)
            self.kept += [shape, data, tensor]
            setattr(self.operands, name, tensor)

    def run(self) -> tuple[int, str]:
        """The status, and what is said of it."""
        options, context = FFI.new("oocdnn_options *"), FFI.new("oocdnn_context **")
        options[0] = self.lib.oocdnn_default_options()
        device, profile = FFI.new("char[]", b"cpu"), FFI.new("char[]", b"none")
        options.device, options.profile = device, profile
        assert self.lib.oocdnn_create(options, context) == OK
        status = self.lib.oocdnn_run(context[0], self.convolution, self.operands)
        text = FFI.string(self.lib.oocdnn_last_error()).decode()
        self.lib.oocdnn_destroy(context[0])
        return status, text

    def saved_bytes(self) -> int:
        size = FFI.new("int64_t *")
        status = self.lib.oocdnn_saved_bytes(self.convolution, self.operands, size)
        assert status == OK, FFI.string(self.lib.oocdnn_last_error())
        return size[0]


def test_z_and_its_bits(lib):
    call = Call(lib)
    assert call.saved_bytes() == call.arrays["saved"].size
    assert call.run() == (OK, "")
    y = oracle.forward(call.arrays["x"], call.arrays["w"], padding=1)
    y = oracle.finish(y, bias=call.arrays["bias"], activation="relu")
    pool = oracle.Pool("max", (2, 2), (2, 2), ((0, 0), (0, 0)))
    np.testing.assert_array_equal(call.arrays["z"], oracle.pool(y, pool)[0])
    bits = oracle.saved(y, pool, "relu")
    np.testing.assert_array_equal(call.arrays["saved"], bits.ravel())


def test_bytes_need_no_place_for_them(lib):
    call = Call(lib)
    call.operands.saved, call.convolution.saves = NULL, 0
    assert call.saved_bytes() == 2 * 4 * 4 * 2
    call.convolution.activation = 0
    assert call.saved_bytes() == 2 * 4 * 4 * 2  # 2 bits of 5 columns
    call.convolution.pool.mode = PoolMode.AVERAGE
    assert call.saved_bytes() == 0
    call.convolution.activation = 5
    assert call.saved_bytes() == 2 * 4 * 8 * 10 * 4  # of y, what windows reach
    call.convolution.pool.mode = PoolMode.MAX
    assert call.saved_bytes() == 2 * 4 * 4 * 5 * (4 + 1)


def wider_z(call: Call) -> None:
    call.operands.z.shape[3] = 6


def no_z(call: Call) -> None:
    call.operands.z = NULL


def short_bits(call: Call) -> None:
    call.operands.saved.shape[0] -= 1


def bits_backwards(call: Call) -> None:
    call.operands.saved.stride[0] = -6


def no_bits(call: Call) -> None:
    call.operands.saved = NULL


def float_bits(call: Call) -> None:
    call.operands.saved.dtype = DType.FLOAT32


def bytes_for_x(call: Call) -> None:
    call.operands.x.dtype = DType.BYTE


def backward(call: Call) -> None:
    call.convolution.direction = Direction.BACKWARD_DATA


def no_such_pool(call: Call) -> None:
    call.convolution.pool.mode = 4


def no_stride(call: Call) -> None:
    call.convolution.pool.stride[2] = 0


def wide_padding(call: Call) -> None:
    call.convolution.pool.pad_after[1] = 2


def wide_window(call: Call) -> None:
    call.convolution.pool.window[1] = 99


def old_z(call: Call) -> None:
    call.convolution.beta = 1


def z_on_x(call: Call) -> None:
    call.operands.z.data = call.operands.x.data


def bits_on_z(call: Call) -> None:
    call.operands.saved.data = call.operands.z.data


def gradient(call: Call, direction: Direction, needless: str) -> None:
    """What was an output is read, and the other way around."""
    assert call.run() == (OK, "")
    call.convolution.direction, call.convolution.saves = direction, 0
    call.arrays["z"][:] = np.random.default_rng(2).integers(-3, 4, call.arrays["z"].shape)
    call.operands.bias = call.operands.bias if needless != "bias" else NULL


def dy_of(call: Call) -> np.ndarray:
    pool = oracle.Pool("max", (2, 2), (2, 2), ((0, 0), (0, 0)))
    y = oracle.forward(call.arrays["x"], call.arrays["w"], padding=1)
    y = oracle.finish(y, bias=call.arrays["bias"], activation="relu")
    dy = oracle.pool_backward(call.arrays["z"], oracle.pool(y, pool)[1], y.shape[2:], pool)
    return np.where(y > 0, dy, 0)


def test_the_gradient_of_the_filter(lib):
    call = Call(lib)
    gradient(call, Direction.BACKWARD_FILTER, "bias")
    x, w = call.arrays["x"], call.arrays["w"]
    expected = oracle.backward_filter(x, dy_of(call), w.shape, padding=1)
    assert call.run()[0] == OK
    np.testing.assert_array_equal(w, expected)


def test_the_gradient_of_the_bias_wants_the_sizes_of_y(lib):
    call = Call(lib)
    gradient(call, Direction.BACKWARD_BIAS, "")
    call.convolution.pad_before = call.convolution.pad_after = [0, 0, 0]
    expected = oracle.backward_bias(dy_of(call))
    status, text = call.run()
    assert status == INVALID
    assert "the sizes of y are missing" in text
    shape, tensor = FFI.new("int64_t[]", (2, 4, 9, 11)), FFI.new("oocdnn_tensor *")
    tensor[0] = lib.oocdnn_dense_tensor(DType.FLOAT32, 4, shape, NULL)
    call.operands.y = tensor
    assert call.run()[0] == OK
    np.testing.assert_array_equal(call.arrays["bias"], expected)


def test_gradients_that_cannot_be(lib):
    call = Call(lib)
    gradient(call, Direction.BACKWARD_FILTER, "bias")
    call.convolution.activation = 4
    status, text = call.run()  # with bits where slopes should be
    assert status == INVALID
    assert "saved has 64 bytes, and 800 are needed" in text
    call.convolution.activation, call.convolution.pool.mode = 0, 0
    assert "dz without a pool and an activation is dy" in call.run()[1]
    call.convolution.pool.mode, call.operands.z = 1, NULL
    assert "dz is missing" in call.run()[1]


WRONG: list[tuple[Callable[[Call], None], int, str]] = [
    (wider_z, INVALID, "z has 6 on axis W; 11 of y, the pool's padding 0:0, window 2 and stride 2"),
    (no_z, INVALID, "z is missing"),
    (short_bits, INVALID, "saved has 63 bytes, and 64 are needed"),
    (bits_backwards, INVALID, "64 are needed, side by side"),
    (no_bits, INVALID, "saved is missing"),
    (float_bits, WRONG_TYPE, "saved is f32 but the other operand is bytes"),
    (bytes_for_x, WRONG_TYPE, "x has the unknown element type 4"),
    (backward, INVALID, "`saves` goes with fwd only, not with bwd_data"),
    (no_such_pool, INVALID, "the pool's mode is 4; the values are 0 to 3"),
    (no_stride, INVALID, "the pool's stride on axis W is 0; it must be at least 1"),
    (wide_padding, INVALID, "must be at least 0 and less than the window, 2"),
    (wide_window, INVALID, "z would be empty on axis H: 9 of y + padding 0 + 0"),
    (old_z, INVALID, "beta is 1: old values of z cannot be added before the pool"),
    (z_on_x, INVALID, "z overlaps x"),
    (bits_on_z, INVALID, "overlaps"),
]


@pytest.mark.parametrize(
    ("spoil", "code", "words"), WRONG, ids=lambda v: getattr(v, "__name__", None)
)
def test_what_is_wrong_is_told(lib, spoil, code, words):
    call = Call(lib)
    spoil(call)
    status, text = call.run()
    assert words in text
    assert status == code
    assert np.isnan(call.arrays["z"]).all()
