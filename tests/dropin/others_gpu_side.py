"""Tensors of 2^31 elements and the functions that are not ours, before a GPU and a cuDNN that marks
what it is asked to compute; set up by test_intercepted.py."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from gpu.driver import DeviceArray, InContext
from python.support import assert_equal, integers

import oocdnn
from oocdnn import cudnn

MARK = 7.0  # what the library in cuDNN's place writes
ROWS, COLUMNS, STEP = 65536, 32768, 1024  # 2^31 elements, most of them the same ones


@pytest.fixture(scope="module", autouse=True)
def lib():
    with InContext():
        yield cudnn


def last_text() -> str:
    text = cudnn.ffi.new("char[500]")
    cudnn.cudnnGetLastErrorString(text, 500)
    return cudnn.ffi.string(text).decode()


def pointer(array):
    if isinstance(array, DeviceArray):
        return cudnn.ffi.cast("void *", array.pointer.value)
    return cudnn.ffi.cast("void *", array.__array_interface__["data"][0])


class Large:
    """A convolution of a tensor of 2^31 elements, whose rows begin one element apart."""

    def __init__(self, calls):
        self.calls = calls
        self.x = integers((ROWS + COLUMNS - 1,))
        self.w = np.full((1, 1, 1, 1), 3, np.float32)
        self.y = np.zeros((1, 1, ROWS // STEP, COLUMNS // STEP), np.float32)
        self.xd, self.wd = calls.create("Tensor"), calls.filter(self.w)
        self.yd = calls.tensor(self.y)
        self.cd = calls.convolution(2, stride=STEP)
        self.set()
        at = np.arange(0, ROWS, STEP)[:, None] + np.arange(0, COLUMNS, STEP)
        self.expected = 3 * self.x[at][None, None]

    def set(self) -> None:
        shape, strides = [1, 1, ROWS, COLUMNS], [1, 1, 1, 1]
        float32 = cudnn.CUDNN_DATA_FLOAT
        cudnn.check(cudnn.cudnnSetTensorNdDescriptor(self.xd, float32, 4, shape, strides))

    def order(self):
        return self.xd, self.wd, self.cd, self.yd

    def forward(self, x, w, y, workspace=cudnn.ffi.NULL, size: int = 0) -> int:
        one, zero = (self.calls.factor(value, self.x) for value in (1.0, 0.0))
        return cudnn.cudnnConvolutionForward(
            self.calls.handle, one, self.xd, pointer(x), self.wd, pointer(w), self.cd, 0,
            workspace, size, zero, self.yd, pointer(y),
        )  # fmt: skip


def test_a_large_tensor_is_read_back_as_it_was_set(calls):
    problem = Large(calls)
    ffi = cudnn.ffi
    dtype, rank = ffi.new("cudnnDataType_t *"), ffi.new("int *")
    dims, strides, size = ffi.new("int[4]"), ffi.new("int[4]"), ffi.new("size_t *")
    cudnn.check(cudnn.cudnnGetTensorNdDescriptor(problem.xd, 4, dtype, rank, dims, strides))
    assert (rank[0], list(dims), list(strides)) == (4, [1, 1, ROWS, COLUMNS], [1] * 4)
    cudnn.check(cudnn.cudnnGetTensorSizeInBytes(problem.xd, size))
    assert size[0] == 4 * (ROWS + COLUMNS - 1)
    cudnn.check(
        cudnn.cudnnGetConvolutionNdForwardOutputDim(problem.cd, problem.xd, problem.wd, 4, dims)
    )
    assert list(dims) == list(problem.y.shape)
    places = [ffi.new("int *") for _ in range(4)]
    cudnn.check(
        cudnn.cudnnGetConvolution2dForwardOutputDim(problem.cd, problem.xd, problem.wd, *places)
    )
    assert [place[0] for place in places] == list(problem.y.shape)


def test_a_descriptor_that_becomes_small_is_the_real_librarys_again(calls):
    problem, size = Large(calls), cudnn.ffi.new("size_t *")
    nchw, float32 = cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT
    cudnn.check(cudnn.cudnnSetTensor4dDescriptor(problem.xd, nchw, float32, 1, 2, 3, 4))
    cudnn.check(cudnn.cudnnGetTensorSizeInBytes(problem.xd, size))
    assert size[0] == 4 * 24
    dims = cudnn.ffi.new("int[4]")
    cudnn.check(
        cudnn.cudnnGetConvolutionNdForwardOutputDim(problem.cd, problem.xd, problem.wd, 4, dims)
    )
    assert list(dims) == [-1] * 4
    cudnn.check(cudnn.cudnnSetTensor4dDescriptor(problem.xd, nchw, float32, 3, 1024, 1024, 1024))
    cudnn.check(cudnn.cudnnGetTensorSizeInBytes(problem.xd, size))
    assert size[0] == 4 * 3 * 2**30


@pytest.mark.parametrize("bad", ["rank", "type"])
def test_what_is_refused_for_another_reason_stays_refused(calls, bad):
    descriptor = calls.create("Tensor")
    dims = [2**16, 2**16, 1, 1] + [1] * (5 if bad == "rank" else 0)
    dtype = cudnn.CUDNN_DATA_INT8 if bad == "type" else cudnn.CUDNN_DATA_FLOAT
    status = cudnn.cudnnSetTensorNdDescriptor(descriptor, dtype, len(dims), dims, dims)
    assert status == cudnn.CUDNN_STATUS_NOT_SUPPORTED
    assert last_text() == "the real one's"


def test_algorithms_and_workspace_of_a_large_problem_are_ours(calls):
    problem = Large(calls)
    results, count = cudnn.ffi.new("cudnnConvolutionFwdAlgoPerf_t[4]"), cudnn.ffi.new("int *")
    size = cudnn.ffi.new("size_t *")
    cudnn.check(
        cudnn.cudnnGetConvolutionForwardAlgorithm_v7(
            calls.handle, *problem.order(), 4, count, results
        )
    )
    cudnn.check(
        cudnn.cudnnGetConvolutionForwardWorkspaceSize(calls.handle, *problem.order(), 1, size)
    )
    assert count[0] == 1
    assert 0 < results[0].memory == size[0] < 2**31
    problem.yd = calls.tensor(np.zeros((1, 1, 7, 7), np.float32))
    status = cudnn.cudnnGetConvolutionForwardWorkspaceSize(calls.handle, *problem.order(), 1, size)
    assert status == cudnn.CUDNN_STATUS_BAD_PARAM
    assert "y has 7 on axis H" in last_text()


def test_a_large_convolution_is_taken(calls):
    problem = Large(calls)
    there = [DeviceArray(array) for array in (problem.x, problem.w, problem.y)]
    cudnn.check(problem.forward(*there))
    assert_equal(there[2].get(), problem.expected)
    lines = Path(os.environ["OOCDNN_LOG_FILE"]).read_text(encoding="utf-8").splitlines()
    assert lines[-1].endswith("why=2^31")


def test_other_functions_refuse_a_large_tensor(calls):
    """The real library's descriptor still says what it was set to before."""
    problem = Large(calls)
    there = DeviceArray(problem.y)
    one = calls.factor(1.0, problem.y)
    status = cudnn.cudnnScaleTensor(calls.handle, problem.xd, pointer(there), one)
    assert status == cudnn.CUDNN_STATUS_NOT_SUPPORTED
    assert "2^31" in last_text()
    assert_equal(there.get(), problem.y)


def add_tensor(calls, a, b) -> int:
    shape = np.zeros((1, 2, 3, 4), np.float32)
    one = calls.factor(1.0, shape)
    descriptor = calls.tensor(shape)
    return cudnn.cudnnAddTensor(
        calls.handle, one, descriptor, pointer(a), one, descriptor, pointer(b)
    )


def im2col(calls, a, b) -> int:
    shape = np.zeros((1, 2, 3, 4), np.float32)
    return cudnn.cudnnIm2Col(
        calls.handle, calls.tensor(shape), pointer(a), calls.filter(shape),
        calls.convolution(2), pointer(b),
    )  # fmt: skip


@pytest.mark.parametrize("function", [add_tensor, im2col])
def test_other_functions_go_to_the_real_library_where_it_reaches(calls, function):
    pinned = oocdnn.empty((24,), np.float32)
    there, here = DeviceArray(np.zeros(24, np.float32)), np.zeros(24, np.float32)
    pinned[...] = 0
    cudnn.check(function(calls, there, pinned))
    assert pinned[0] == MARK
    cudnn.check(function(calls, pinned, there))
    assert there.get()[0] == MARK
    for operands in ((here, there), (there, here)):
        assert function(calls, *operands) == cudnn.CUDNN_STATUS_NOT_SUPPORTED
        assert "pageable host memory" in last_text()
    assert here[0] == 0
