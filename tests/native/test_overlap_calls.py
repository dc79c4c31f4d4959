"""Overlap as a program in C meets it: of tensors at addresses, and of tensors in files."""

from __future__ import annotations

import mmap

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn._core import native
from oocdnn._core.cdefs import Direction, DType, Status

FFI = native._ffi()
SHAPE = (2, 3, 5, 4)
W = np.random.default_rng(5).integers(-3, 4, (3, 3, 1, 1)).astype(np.float32)
X = np.random.default_rng(6).integers(-3, 4, SHAPE).astype(np.float32)


@pytest.fixture(scope="module")
def context():
    lib = native._library()
    options, made = FFI.new("oocdnn_options *"), FFI.new("oocdnn_context **")
    options[0] = lib.oocdnn_default_options()
    device, profile = FFI.new("char[]", b"cpu"), FFI.new("char[]", b"none")
    options.device, options.profile = device, profile
    assert lib.oocdnn_create(options, made) == Status.OK
    yield made[0]
    lib.oocdnn_destroy(made[0])


def dense(array: np.ndarray):
    """The tensor of an array, and what has to live as long."""
    lib, tensor = native._library(), FFI.new("oocdnn_tensor *")
    shape = FFI.new("int64_t[]", array.shape)
    data = FFI.cast("void *", array.__array_interface__["data"][0])
    tensor[0] = lib.oocdnn_dense_tensor(DType.FLOAT32, array.ndim, shape, data)
    for axis, stride in enumerate(array.strides):
        tensor.stride[axis] = stride // array.itemsize
    return tensor, (shape, array)


def run(context, x, y) -> tuple[int, str]:
    """y = conv(x, W), 1x1; the status and its text."""
    lib = native._library()
    convolution, operands = FFI.new("oocdnn_convolution *"), FFI.new("oocdnn_operands *")
    convolution[0] = lib.oocdnn_default_convolution(Direction.FORWARD, 2)
    weights = dense(W)
    operands.x, operands.w, operands.y = x, weights[0], y
    status = lib.oocdnn_run(context, convolution, operands)
    return status, FFI.string(lib.oocdnn_last_error()).decode()


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(4)), st.integers(1, 2), st.integers(0, 40), st.booleans())
def test_any_two_views_of_one_buffer(context, order, every, begin, mirrored):
    """Are computed rightly, or refused where an element is in both."""
    wide = [n * every for n in SHAPE]
    wide[1] += 3
    room = np.zeros(int(np.prod(wide)) + 64, np.float32)
    other = tuple(reversed(order)) if mirrored else order

    def look(at: int, axes) -> np.ndarray:
        whole = room[at : at + int(np.prod(wide))].reshape([wide[axis] for axis in axes])
        whole = whole.transpose([axes.index(axis) for axis in range(4)])
        return whole[tuple(slice(0, n * every, every) for n in SHAPE)]

    x, y = look(0, list(order)), look(begin, list(other))
    y[...] = np.nan
    x[...] = X
    seen = np.zeros_like(room, dtype=int)
    for view in (x, y):
        index = (view.__array_interface__["data"][0] - room.__array_interface__["data"][0]) // 4
        steps = np.indices(SHAPE).reshape(4, -1).T @ (np.array(view.strides) // 4)
        seen[index + steps] += 1
    (x_tensor, kept), (y_tensor, also) = dense(x), dense(y)
    status, text = run(context, x_tensor, y_tensor)
    if seen.max() > 1:
        assert status == Status.INVALID_PROBLEM
        assert "y overlaps x" in text
    else:
        assert (status, text) == (Status.OK, "")
        np.testing.assert_array_equal(y, oracle.forward(X, W))
        np.testing.assert_array_equal(x, X)
    assert kept
    assert also


@pytest.mark.parametrize("far", [0, X.nbytes - 4, X.nbytes])
@pytest.mark.parametrize("reads", ["file", "mapping"])
@pytest.mark.parametrize("writes", ["file", "mapping"])
def test_files_and_mappings_of_them(context, tmp_path, reads, writes, far):
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(3 * mmap.PAGESIZE))
    with path.open("r+b") as file:
        tensors, kept = [], []
        for kind, at in ((reads, 0), (writes, far)):
            mapping = mmap.mmap(file.fileno(), 0)
            array = np.frombuffer(mapping, np.float32, X.size, at).reshape(SHAPE)
            tensor, more = dense(array)
            if kind == "file":
                tensor.data, tensor.fd, tensor.offset = FFI.NULL, file.fileno(), at
            tensors.append(tensor)
            kept.append((array, more))
        kept[0][0][...] = X
        status, text = run(context, *tensors)
        if far < X.nbytes:
            assert (status, "y overlaps x" in text) == (Status.INVALID_PROBLEM, True)
        else:
            assert (status, text) == (Status.OK, "")
            np.testing.assert_array_equal(kept[1][0], oracle.forward(X, W))


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1, 2**63 - X.nbytes, 1 << 40])
@pytest.mark.parametrize("written", [False, True])
def test_offsets_beyond_a_file(context, tmp_path, offset, written):
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(X.nbytes))
    with path.open("r+b") as file:
        (inside, kept), (tensor, also) = dense(X.copy()), dense(X.copy())
        tensor.data, tensor.fd, tensor.offset = FFI.NULL, file.fileno(), offset
        x, y = (inside, tensor) if written else (tensor, inside)
        status, text = run(context, x, y)
    assert status == Status.INVALID_PROBLEM
    assert text
    assert kept
    assert also
