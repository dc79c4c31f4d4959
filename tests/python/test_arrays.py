"""Whose arrays are taken, in which memory order, and what comes back."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from python.support import assert_equal, channels_last, integers, is_channels_last

import oocdnn
from oocdnn._core.cdefs import DType
from oocdnn.arrays import View

pytestmark = pytest.mark.usefixtures("ctx")


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


class Foreign:
    """An array of another library, as little as NumPy needs to see."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class Packed:
    """An array that speaks DLPack and knows a namespace of its own."""

    def __init__(self, array, device=(1, 0)):
        self.array = array
        self.device = device

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.device

    def __array_namespace__(self):
        return Namespace


class Namespace:
    __name__ = "packed"

    @staticmethod
    def from_dlpack(array):
        return Packed(array)


def test_the_result_follows_the_memory_order_of_x():
    x, w = integers((2, 6, 9, 11)), integers((4, 6, 3, 3))
    assert oocdnn.conv2d(x, w).flags.c_contiguous
    assert is_channels_last(oocdnn.conv2d(channels_last(x), w))
    assert oocdnn.conv2d(x[:, :, ::2, ::2], w).flags.c_contiguous
    assert is_channels_last(oocdnn.conv2d(channels_last(x)[:, :4], w[:, :4]))
    dy = integers((2, 4, 7, 9))
    assert is_channels_last(oocdnn.conv_backward_data(channels_last(dy), w, x.shape))
    assert oocdnn.conv_backward_filter(channels_last(x), dy, w.shape).flags.c_contiguous


@pytest.mark.parametrize(
    "cut",
    [
        np.s_[:, ::2],
        np.s_[:, :, 3:-2, 1::3],
        np.s_[1:, 2:6],
    ],
)
def test_strided_inputs_and_outputs(cut):
    x = integers((3, 8, 20, 22))[cut]
    w = integers((4, x.shape[1], 3, 3))
    store = np.zeros((3, 6, 24, 24), np.float32)
    reference = oracle.forward(x, w)
    out = store[: x.shape[0], 1:5, 2 : 2 + reference.shape[2], 3 : 3 + reference.shape[3]]
    untouched = store.copy()
    assert oocdnn.conv2d(x, w, out=out) is out
    assert_equal(out, reference)
    out[...] = 0
    np.testing.assert_array_equal(store, untouched)


def test_transposed_axes_are_read_in_place():
    x = integers((2, 9, 6, 11)).transpose(0, 2, 3, 1)
    w = integers((3, 3, 6, 4)).transpose(3, 2, 1, 0)
    assert_equal(oocdnn.conv2d(x, w), oracle.forward(x, w))


def test_array_interface():
    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    y = oocdnn.conv2d(Foreign(x), Foreign(w))
    assert type(y) is np.ndarray
    assert_equal(y, oracle.forward(x, w))


def test_dlpack_in_the_librarys_own_array_out():
    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    y = oocdnn.conv2d(Packed(x), w)
    assert isinstance(y, Packed)
    assert_equal(y.array, oracle.forward(x, w))


def test_subclasses_give_plain_arrays():
    class Named(np.ndarray):
        pass

    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    assert type(oocdnn.conv2d(x.view(Named), w)) is np.ndarray


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_torch_in_torch_out(torch, name):
    dtype = getattr(torch, name)
    x, w = (torch.from_numpy(integers(s)).to(dtype) for s in [(2, 6, 9, 11), (4, 6, 3, 3)])
    y = oocdnn.conv2d(x, w, padding=1)
    assert isinstance(y, torch.Tensor)
    assert y.dtype == dtype
    reference = oracle.forward(x.double().numpy(), w.double().numpy(), padding=1)
    assert torch.equal(y, torch.from_numpy(reference).to(dtype))
    out = torch.zeros_like(y)
    assert oocdnn.conv2d(x, w, padding=1, out=out) is out
    assert torch.equal(out, y)


def test_torch_channels_last(torch):
    x = torch.from_numpy(integers((2, 6, 9, 11))).to(memory_format=torch.channels_last)
    w = torch.from_numpy(integers((4, 6, 3, 3)))
    y = oocdnn.conv2d(x, w)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert_equal(y.numpy(), oracle.forward(x.numpy(), w.numpy()))


def test_torch_gradients_are_not_dropped_silently(torch):
    x = torch.zeros(1, 3, 9, 9, requires_grad=True)
    w = torch.zeros(4, 3, 3, 3)
    with pytest.raises(oocdnn.Unsupported, match=r"x requires gradients.*x\.detach\(\)"):
        oocdnn.conv2d(x, w)
    with torch.no_grad():
        assert oocdnn.conv2d(x, w).shape == (1, 4, 7, 7)


def test_a_residual_may_be_the_output():
    x, w = integers((1, 4, 9, 9)), integers((4, 4, 3, 3))
    out = integers((1, 4, 9, 9), 5)
    expected = oracle.finish(oracle.forward(x, w, padding=1), residual=out)
    oocdnn.conv2d(x, w, padding=1, residual=out, out=out)
    assert_equal(out, expected)


@pytest.mark.parametrize("pinned", [True, False])
def test_empty_and_pin(pinned):
    x = oocdnn.empty((1, 3, 9, 9), np.float16, pinned=pinned)
    assert (x.shape, x.dtype) == ((1, 3, 9, 9), np.float16)
    with oocdnn.pin(x) as same:
        assert same is x
    with pytest.raises(oocdnn.InvalidDtype):
        oocdnn.pin([1, 2])


@pytest.mark.parametrize("extents", [(2, 2), (2, 1), (1, 2), (2, 2, 2), (3, 2), (1, 1)])
def test_the_memory_order_of_short_axes_is_seen(extents):
    """An axis of two elements has a stride, one of a single element has none."""
    last = channels_last(integers((2, 2, *extents)))
    assert View("x", last, DType.FLOAT32, last.shape, last.strides, 0).channels_last == (
        max(extents) > 1
    )
    first = np.ascontiguousarray(last)
    assert not View("x", first, DType.FLOAT32, first.shape, first.strides, 0).channels_last
