"""The legacy interface before a GPU and a cuDNN that marks what it is asked to compute; set up by
test_intercepted.py."""

from __future__ import annotations

import ctypes
from ctypes import CDLL, c_int

import numpy as np
import oracle
import pytest
from dropin.test_convolutions import Problem, fused
from gpu.driver import DeviceArray, InContext
from python.support import DTYPES, assert_equal, integers

import oocdnn
from oocdnn import cudnn

MARK = 7.0  # what the library in cuDNN's place writes
REAL_WORKSPACE = 2**50  # and what it wants
NAMES = ("forward", "backward_data", "backward_filter")
TARGETS = dict(zip(NAMES, "yxw", strict=True))


@pytest.fixture(scope="module", autouse=True)
def lib():
    with InContext():
        yield cudnn


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_host_operands_are_taken(calls, name, groups, dtype):
    window = {"groups": groups, "padding": 1}
    problem = Problem(calls, (2, 4, 7, 6), (6, 4 // groups, 3, 3), window, DTYPES[dtype])
    x, w, y = (getattr(problem, axis).copy() for axis in "xwy")
    calls.lib.check(getattr(problem, name)(alpha=2.0, beta=1.0))
    total, old = {
        "forward": lambda: (oracle.forward(x, w, **problem.window), y),
        "backward_data": lambda: (oracle.backward_data(y, w, x.shape, **problem.window), x),
        "backward_filter": lambda: (oracle.backward_filter(x, y, w.shape, **problem.window), w),
    }[name]()
    assert_equal(getattr(problem, TARGETS[name]), 2.0 * total + old)


class OnDevice(Problem):
    """The same arrays in the device's memory."""

    def __init__(self, calls, *rest):
        super().__init__(calls, *rest)
        self.there = {axis: DeviceArray(getattr(self, axis)) for axis in "xwy"}
        self.places = {id(getattr(self, axis)): self.there[axis] for axis in "xwy"}
        self.calls = Places(calls, self.places)


class Places:
    """Calls whose pointers are those of the device's arrays."""

    def __init__(self, calls, places):
        self._calls, self._places = calls, places

    def __getattr__(self, name):
        return getattr(self._calls, name)

    def data(self, array):
        if array is None:
            return cudnn.ffi.NULL
        return cudnn.ffi.cast("void *", self._places[id(array)].pointer.value)


@pytest.mark.parametrize("name", NAMES)
def test_device_operands_go_to_the_real_library(calls, name):
    problem = OnDevice(calls, (2, 4, 7, 6), (6, 4, 3, 3), {})
    calls.lib.check(getattr(problem, name)())
    result = problem.there[TARGETS[name]].get()
    assert result.flat[0] == MARK
    assert_equal(result.ravel()[1:], getattr(problem, TARGETS[name]).ravel()[1:])


class Pinned(Problem):
    """The same arrays where a GPU reads them across the wire."""

    def __init__(self, calls, *rest):
        super().__init__(calls, *rest)
        for axis in "xwy":
            values = getattr(self, axis)
            pinned = oocdnn.empty(values.shape, values.dtype)
            pinned[...] = values
            setattr(self, axis, pinned)


@pytest.mark.parametrize("kind", [Pinned, Problem])
@pytest.mark.parametrize("which", ["mixed types", "int8", "vectors of channels"])
def test_the_real_library_may_do_what_we_cannot_where_it_reaches(calls, kind, which):
    problem = kind(calls, (2, 4, 7, 6), (6, 4, 3, 3), {})
    if which == "mixed types":
        problem.yd = calls.tensor(problem.y.astype(np.float16))
    elif which == "int8":
        int8, shape = cudnn.CUDNN_DATA_INT8, list(problem.x.shape)
        strides = [stride // 4 for stride in problem.x.strides]
        cudnn.check(cudnn.cudnnSetTensorNdDescriptor(problem.xd, int8, 4, shape, strides))
    else:
        shape, layout = list(problem.w.shape), cudnn.CUDNN_TENSOR_NCHW_VECT_C
        float32 = cudnn.CUDNN_DATA_FLOAT
        cudnn.check(cudnn.cudnnSetFilterNdDescriptor(problem.wd, float32, layout, 4, shape))
    before = problem.y.flat[0]
    status = problem.forward()
    if kind is Pinned:
        cudnn.check(status)
        assert problem.y.flat[0] == MARK
    else:
        mixed = which == "mixed types"
        assert status == (
            cudnn.CUDNN_STATUS_BAD_PARAM if mixed else cudnn.CUDNN_STATUS_NOT_SUPPORTED
        )
        assert problem.y.flat[0] == before


@pytest.mark.parametrize("name", NAMES)
def test_pinned_operands_are_taken_but_under_capture(calls, name):
    capturing = c_int.in_dll(CDLL("libcuda.so.1"), "ooc_fake_capturing")
    problem = Pinned(calls, (2, 4, 7, 6), (6, 4, 3, 3), {})
    target = getattr(problem, TARGETS[name])
    capturing.value = 1
    try:
        cudnn.check(getattr(problem, name)())
    finally:
        capturing.value = 0
    assert target.flat[0] == MARK
    cudnn.check(getattr(problem, name)())
    arrays = problem.x, problem.w, problem.y
    expected = {
        "forward": lambda x, w, y: oracle.forward(x, w),
        "backward_data": lambda x, w, y: oracle.backward_data(y, w, x.shape),
        "backward_filter": lambda x, w, y: oracle.backward_filter(x, y, w.shape),
    }[name](*arrays)
    assert_equal(target, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_and_activation_on_the_host_are_taken(calls, dtype):
    problem = Problem(calls, (2, 4, 8, 6), (5, 4, 3, 3), {"padding": 1}, DTYPES[dtype])
    b, z = (integers(s, i, DTYPES[dtype]) for s, i in (((5,), 5), (problem.y.shape, 6)))
    calls.lib.check(fused(problem, b, z, 3.0, calls.activation("RELU")))
    total = oracle.forward(problem.x, problem.w, padding=1)
    expected = oracle.finish(
        total, alpha=2.0, bias=b, residual=z, residual_alpha=3.0, activation="relu"
    )
    assert_equal(problem.y, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_the_bias_on_the_host_is_taken(calls, dtype):
    dy, db = (integers(s, i, DTYPES[dtype]) for s, i in (((3, 5, 4, 6), 1), ((5,), 2)))
    expected = 3.0 * oracle.backward_bias(dy) - 2.0 * db.astype(np.float64)
    lib, data = calls.lib, calls.data
    lib.check(
        lib.cudnnConvolutionBackwardBias(
            calls.handle, calls.factor(3.0, dy), calls.tensor(dy), data(dy),
            calls.factor(-2.0, dy), calls.vector(db, 4), data(db),
        )
    )  # fmt: skip
    assert_equal(db, expected)


ORDERS = {
    "forward": ("Forward", lambda p: (p.xd, p.wd, p.cd, p.yd)),
    "backward_data": ("BackwardData", lambda p: (p.wd, p.yd, p.cd, p.xd)),
    "backward_filter": ("BackwardFilter", lambda p: (p.xd, p.yd, p.cd, p.wd)),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_workspace_that_is_too_large_is_taken(calls, name):
    """The client gets the size of ours, and the call is ours: with device operands."""
    problem = OnDevice(calls, (2, 3, 9, 5), (4, 3, 3, 3), {"padding": 1})
    x, w, y = (getattr(problem, axis).copy() for axis in "xwy")
    direction, order = ORDERS[name]
    size = cudnn.ffi.new("size_t *")
    query = getattr(cudnn, f"cudnnGetConvolution{direction}WorkspaceSize")
    cudnn.check(query(calls.handle, *order(problem), 1, size))
    assert 0 < size[0] < 2**24
    cudnn.check(getattr(problem, name)())
    expected = {
        "forward": lambda: oracle.forward(x, w, padding=1),
        "backward_data": lambda: oracle.backward_data(y, w, x.shape, padding=1),
        "backward_filter": lambda: oracle.backward_filter(x, y, w.shape, padding=1),
    }[name]()
    assert_equal(problem.there[TARGETS[name]].get(), expected)


def workspace_of(problem, name: str) -> int:
    """The bytes that a client is told, with the math type that is set."""
    direction, order = ORDERS[name]
    size = cudnn.ffi.new("size_t *")
    query = getattr(cudnn, f"cudnnGetConvolution{direction}WorkspaceSize")
    cudnn.check(query(problem.calls.handle, *order(problem), problem.algorithm, size))
    return size[0]


def peak_bytes() -> int:
    """The most device memory that was held since the last call."""
    peak = ctypes.c_size_t()
    assert ctypes.CDLL("libcuda.so.1").fake_peak_bytes(ctypes.byref(peak)) == 0
    return peak.value


def run_within(problem, name: str, told: int) -> None:
    """Runs with exactly that workspace. Bytes behind it stay as they are, it is used, and no other
    device memory is taken. (What is added to needs more.)"""
    guard, byte = 4096, 0xA5
    workspace = DeviceArray(np.full(told + guard, byte, np.uint8))
    problem.workspace = cudnn.ffi.cast("void *", workspace.pointer.value), told
    peak_bytes()
    held = peak_bytes()
    cudnn.check(getattr(problem, name)(alpha=2.0))
    assert peak_bytes() == held
    seen = workspace.get()
    assert (seen[:told] != byte).any()
    assert (seen[told:] == byte).all()


def expected_of(problem, name: str) -> np.ndarray:
    """The result for alpha 2."""
    x, w, y, window = problem.x, problem.w, problem.y, problem.window
    total = {
        "forward": lambda: oracle.forward(x, w, **window),
        "backward_data": lambda: oracle.backward_data(y, w, x.shape, **window),
        "backward_filter": lambda: oracle.backward_filter(x, y, w.shape, **window),
    }[name]()
    return 2.0 * total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("x", [(2, 3, 11, 6), (1, 3, 2, 3)])  # the second is one tile in any plan
def test_the_workspace_that_is_told_is_all_that_is_needed(calls, name, dtype, x):
    problem = OnDevice(calls, x, (4, 3, 3, 3), {"padding": 1}, DTYPES[dtype])
    run_within(problem, name, workspace_of(problem, name))
    assert_equal(problem.there[TARGETS[name]].get(), expected_of(problem, name))


@pytest.mark.parametrize(("kept", "listed"), [("DEFAULT", "FMA"), ("FMA", "DEFAULT")])
@pytest.mark.parametrize("least", ["kept", "listed"])
def test_a_listed_workspace_is_enough_for_either_math_type(calls, monkeypatch, kept, listed, least):
    """The one that was told first, when the budget was smaller, needs less."""
    height = 70 + 2 * (kept == "FMA") + (least == "kept")
    problem = OnDevice(calls, (2, 3, height, 32), (4, 3, 3, 3), {"padding": 1})
    results, count = cudnn.ffi.new("cudnnConvolutionFwdAlgoPerf_t[1]"), cudnn.ffi.new("int *")
    order = problem.xd, problem.wd, problem.cd, problem.yd

    def told(math: str) -> int:
        number = getattr(cudnn, f"CUDNN_{math}_MATH")
        cudnn.check(cudnn.cudnnSetConvolutionMathType(problem.cd, number))
        return workspace_of(problem, "forward")

    problem.algorithm = cudnn.CUDNN_CONVOLUTION_FWD_ALGO_FFT
    monkeypatch.setenv("OOCDNN_BUDGET", "16KiB")
    little = told(kept if least == "kept" else listed)
    monkeypatch.delenv("OOCDNN_BUDGET")
    if least == "listed":
        told(kept)
    cudnn.check(cudnn.cudnnSetConvolutionMathType(problem.cd, getattr(cudnn, f"CUDNN_{kept}_MATH")))
    cudnn.check(
        cudnn.cudnnGetConvolutionForwardAlgorithm_v7(calls.handle, *order, 1, count, results)
    )
    assert results[0].algo == problem.algorithm
    assert results[0].mathType == getattr(cudnn, f"CUDNN_{listed}_MATH")
    sizes = [told(math) for math in (kept, listed)]
    assert little == min(sizes) < max(sizes) == results[0].memory
    for math in (kept, listed):
        told(math)
        problem.there["y"].fill(problem.y)
        run_within(problem, "forward", results[0].memory)
        assert_equal(problem.there["y"].get(), expected_of(problem, "forward"))


def free_bytes() -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value


def test_a_budget_may_be_a_part_of_the_free_memory(calls, monkeypatch):
    def told(height: int) -> int:
        """A height for each call: what was told once for a problem stays told."""
        problem = OnDevice(calls, (2, 3, height, 32), (4, 3, 3, 3), {"padding": 1})
        size = cudnn.ffi.new("size_t *")
        descriptors = problem.xd, problem.wd, problem.cd, problem.yd
        cudnn.check(
            cudnn.cudnnGetConvolutionForwardWorkspaceSize(calls.handle, *descriptors, 1, size)
        )
        return size[0]

    most = told(64)
    part = f"{most / 2 / free_bytes() * 100:.12f}%"
    for height, text in ((65, str(most // 2)), (66, part)):
        monkeypatch.setenv("OOCDNN_BUDGET", text)
        told_here = told(height)
        assert told_here <= most // 2 or told_here == REAL_WORKSPACE, text
    for height, text in ((67, "50%"), (68, "auto")):
        monkeypatch.setenv("OOCDNN_BUDGET", text)
        assert most < told(height) < 2 * most, text


def test_a_workspace_is_taken_for_its_math_type_alone(calls):
    """The tiles of another may need more than the client was told."""
    problem = OnDevice(calls, (2, 3, 9, 6), (4, 3, 3, 3), {"padding": 1})
    size = cudnn.ffi.new("size_t *")
    order = problem.xd, problem.wd, problem.cd, problem.yd
    cudnn.check(cudnn.cudnnSetConvolutionMathType(problem.cd, cudnn.CUDNN_FMA_MATH))
    cudnn.check(cudnn.cudnnGetConvolutionForwardWorkspaceSize(calls.handle, *order, 1, size))
    expected = oracle.forward(problem.x, problem.w, padding=1).flat[0]
    for math, first in ((cudnn.CUDNN_DEFAULT_MATH, MARK), (cudnn.CUDNN_FMA_MATH, expected)):
        cudnn.check(cudnn.cudnnSetConvolutionMathType(problem.cd, math))
        cudnn.check(problem.forward())
        assert problem.there["y"].get().flat[0] == first


@pytest.mark.parametrize("kind", [OnDevice, Problem])
def test_algorithms_are_tried_only_where_a_gpu_reads(calls, kind):
    problem = kind(calls, (2, 3, 10, 6), (4, 3, 3, 3), {"padding": 1})
    results, count = cudnn.ffi.new("cudnnConvolutionFwdAlgoPerf_t[4]"), cudnn.ffi.new("int *")
    data = problem.calls.data
    before = problem.y.flat[0]
    cudnn.check(
        cudnn.cudnnFindConvolutionForwardAlgorithmEx(
            calls.handle, problem.xd, data(problem.x), problem.wd, data(problem.w), problem.cd,
            problem.yd, data(problem.y), 4, count, results, cudnn.ffi.NULL, 0,
        )
    )  # fmt: skip
    assert count[0] == 2
    assert 0 < results[0].memory < 2**24
    tried = problem.there["y"].get() if kind is OnDevice else problem.y
    assert tried.flat[0] == (MARK if kind is OnDevice else before)


def test_listed_algorithms_have_our_workspace_where_theirs_is_too_large(calls):
    """PyTorch takes the workspace from the list, and sets the math type of the list before it
    computes."""
    problem = OnDevice(calls, (2, 3, 10, 5), (4, 3, 3, 3), {"padding": 1})
    results, count = cudnn.ffi.new("cudnnConvolutionFwdAlgoPerf_t[4]"), cudnn.ffi.new("int *")
    descriptors = problem.xd, problem.wd, problem.cd, problem.yd
    cudnn.check(
        cudnn.cudnnGetConvolutionForwardAlgorithm_v7(calls.handle, *descriptors, 4, count, results)
    )
    assert count[0] == 2
    assert 0 < results[0].memory < 2**24
    assert results[1].memory == 0
    cudnn.check(cudnn.cudnnSetConvolutionMathType(problem.cd, results[0].mathType))
    one, zero = problem.factors(1.0, 0.0)
    data = problem.calls.data
    for algorithm, expected in (
        (results[1].algo, MARK),
        (results[0].algo, oracle.forward(problem.x, problem.w, padding=1).flat[0]),
    ):
        cudnn.check(
            cudnn.cudnnConvolutionForward(
                calls.handle, one, problem.xd, data(problem.x), problem.wd, data(problem.w),
                problem.cd, algorithm, data(None), 0, zero, problem.yd, data(problem.y),
            )
        )  # fmt: skip
        assert problem.there["y"].get().flat[0] == expected


def test_a_failure_of_ours_has_our_text(calls):
    problem = Problem(calls, (1, 3, 6, 6), (2, 3, 3, 3), {})
    problem.yd = calls.tensor(np.zeros((1, 2, 5, 4), np.float32))
    assert problem.forward() == cudnn.CUDNN_STATUS_BAD_PARAM
    text = cudnn.ffi.new("char[300]")
    cudnn.cudnnGetLastErrorString(text, 300)
    said = cudnn.ffi.string(text)
    assert b"y has 5 on axis H; input 6" in said

    def text() -> bytes:
        place = cudnn.ffi.new("char[300]")
        cudnn.cudnnGetLastErrorString(place, 300)
        return cudnn.ffi.string(place)

    assert text() != b"the real one's"
    size = cudnn.ffi.new("size_t *")
    order = problem.xd, problem.wd, problem.cd, problem.yd
    cudnn.check(cudnn.cudnnGetConvolutionForwardWorkspaceSize(calls.handle, *order, 1, size))
    assert text() == b"the real one's"
