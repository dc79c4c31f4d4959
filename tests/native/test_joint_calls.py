"""Gradients of one pass as a program in C asks for them, rightly and wrongly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import oracle
import pytest
from native.test_fused_calls import FFI, INVALID, NULL, OK, WRONG_TYPE, Call, dy_of, gradient, lib

from oocdnn._core.cdefs import Direction, DType, Status

__all__ = ["lib"]

UNSUPPORTED = Status.UNSUPPORTED


class Joint(Call):
    """dx, dw and db behind relu and a max pool; tests spoil it."""

    def __init__(self, lib, samples: int = 2) -> None:
        super().__init__(lib)
        gradient(self, Direction.BACKWARD_DATA, "bias")
        self.operands.input, self.input = self.operands.x, self.arrays["x"]
        if samples < 2:
            for name in ("input", "z"):
                getattr(self.operands, name).shape[0] = samples
        self.results = {
            "x": self.add("x", (samples, 3, 9, 11)),
            "dw": self.add("dw", (4, 3, 3, 3)),
            "db": self.add("db", (4,)),
        }

    def add(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        array = np.full(shape, np.nan, np.float32)
        sizes, data = FFI.new("int64_t[]", shape), FFI.from_buffer(array)
        tensor = FFI.new("oocdnn_tensor *")
        tensor[0] = self.lib.oocdnn_dense_tensor(DType.FLOAT32, array.ndim, sizes, data)
        self.kept += [array, data, tensor]
        setattr(self.operands, name, tensor)
        return array


@pytest.mark.parametrize("mirrored", [False, True])
def test_three_gradients_of_one_call(lib, mirrored):
    call = Joint(lib)
    call.convolution.mode = mirrored
    w, dy = call.arrays["w"], dy_of_forward(call)
    taps = (slice(None), slice(None), *([slice(None, None, -1 if mirrored else 1)] * 2))
    assert call.run() == (OK, "")
    dx = oracle.backward_data(dy, w[taps], call.input.shape, padding=1)
    dw = oracle.backward_filter(call.input, dy, w.shape, padding=1)
    np.testing.assert_array_equal(call.results["x"], dx)
    np.testing.assert_array_equal(call.results["dw"], dw[taps])
    np.testing.assert_array_equal(call.results["db"], oracle.backward_bias(dy))


def dy_of_forward(call: Joint) -> np.ndarray:
    """The forward pass was no mirrored one."""
    call.arrays["x"] = call.input
    return dy_of(call)


def test_no_samples_make_gradients_of_zero(lib):
    call = Joint(lib, samples=0)
    assert call.run() == (OK, "")
    assert not call.results["dw"].any()
    assert not call.results["db"].any()


def no_dz(call: Joint) -> None:
    call.operands.z = NULL


def no_input(call: Joint) -> None:
    call.operands.input = NULL


def wide_dw(call: Joint) -> None:
    call.operands.dw.shape[1] = 4


def tall_dw(call: Joint) -> None:
    call.operands.dw.shape[2] = 2


def flat_dw(call: Joint) -> None:
    call.operands.dw.rank = 1


def short_db(call: Joint) -> None:
    call.operands.db.shape[0] = 3


def short_input(call: Joint) -> None:
    call.operands.input.shape[2] = 8


def half_dw(call: Joint) -> None:
    call.operands.dw.dtype = DType.FLOAT16


def db_on_dw(call: Joint) -> None:
    call.operands.db.data = call.operands.dw.data


def dw_on_w(call: Joint) -> None:
    call.operands.dw.data = call.operands.w.data


def dx_on_input(call: Joint) -> None:
    call.operands.x.data = call.operands.input.data


def old_values(call: Joint) -> None:
    call.convolution.beta = 1


def factor(call: Joint) -> None:
    call.convolution.alpha = 2


def wide_padding(call: Joint) -> None:
    call.convolution.pad_before = call.convolution.pad_after = [0, 3, 1]
    call.operands.dw = NULL
    call.operands.x.shape[2] = 5


def forward(call: Joint) -> None:
    call.convolution.direction = Direction.FORWARD
    call.convolution.activation = 0


WRONG: list[tuple[Callable[[Joint], None], int, str]] = [
    (no_dz, INVALID, "dz is missing"),
    (no_input, INVALID, "x is missing"),
    (wide_dw, INVALID, "dw does not have the shape"),
    (tall_dw, INVALID, "dw does not have the shape"),
    (flat_dw, INVALID, "dw has 1 axes"),
    (short_db, INVALID, "db does not have the shape"),
    (short_input, INVALID, "x does not have the shape"),
    (half_dw, WRONG_TYPE, "dw is f16"),
    (db_on_dw, INVALID, "dw overlaps db"),
    (dw_on_w, INVALID, "dw overlaps w"),
    (dx_on_input, INVALID, "dx overlaps x"),
    (old_values, UNSUPPORTED, "beta 1"),
    (factor, UNSUPPORTED, "alpha 2"),
    (wide_padding, UNSUPPORTED, "padding 3 is not below the filter's reach 3"),
    (forward, INVALID, "with that or bwd_filter, not with fwd"),
]


@pytest.mark.parametrize(
    ("spoil", "code", "words"), WRONG, ids=lambda v: getattr(v, "__name__", None)
)
def test_what_is_wrong_is_told(lib, spoil, code, words):
    call = Joint(lib)
    spoil(call)
    status, text = call.run()
    assert words in text
    assert status == code
    assert all(np.isnan(result).all() for result in call.results.values())


def test_gradients_of_others_per_channel_may_be_wide(lib):
    """db in the type of sums, where all else has 16 bits."""
    call = Joint(lib)
    call.convolution.pool.mode, call.convolution.activation = 0, 0
    short = {}
    for name, shape in (
        ("input", (2, 3, 9, 11)), ("w", (4, 3, 3, 3)), ("z", (2, 4, 9, 11)),
        ("x", (2, 3, 9, 11)), ("dw", (4, 3, 3, 3)),
    ):  # fmt: skip
        short[name] = np.random.default_rng(3).integers(-2, 3, shape).astype(np.float16)
        call.add(name, shape)
        tensor = getattr(call.operands, name)
        tensor.dtype, tensor.data = DType.FLOAT16, FFI.from_buffer(short[name])
    call.operands.saved = NULL
    assert call.run() == (OK, "")
    dz = short["z"].astype(np.float64)
    np.testing.assert_array_equal(call.results["db"], oracle.backward_bias(dz))
    dw = oracle.backward_filter(short["input"].astype(np.float64), dz, (4, 3, 3, 3), padding=1)
    np.testing.assert_array_equal(short["dw"], dw.astype(np.float16))
