"""The legacy convolutions where there is no GPU, against the reference: integer filling, threshold
0."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracle
import pytest
from dropin.calls import Calls
from python.support import DTYPES, assert_equal, channels_last, integers

# Name, x, w, keywords of the window.
CASES = [
    ("plain", (2, 3, 9, 8), (4, 3, 3, 3), {}),
    ("padded", (1, 4, 7, 9), (2, 4, 3, 3), {"padding": 1}),
    ("strided", (2, 2, 11, 10), (3, 2, 3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    ("dilated", (1, 2, 12, 12), (2, 2, 3, 3), {"dilation": 2, "padding": 2}),
    ("grouped", (2, 6, 6, 6), (4, 3, 3, 3), {"groups": 2, "padding": 1}),
    ("depthwise", (1, 5, 8, 8), (5, 1, 3, 3), {"groups": 5, "padding": 1}),
    ("mirrored", (1, 3, 8, 8), (2, 3, 3, 3), {"flip": True}),
    ("pointwise", (2, 8, 5, 5), (4, 8, 1, 1), {}),
    ("1d", (2, 3, 15), (4, 3, 5), {"padding": 2}),
    ("3d", (1, 2, 5, 6, 7), (3, 2, 2, 3, 3), {"padding": (0, 1, 1), "stride": (1, 2, 1)}),
]
IDS = [case[0] for case in CASES]


class Problem:
    """One convolution's arrays and descriptors."""

    def __init__(self, calls, x_shape, w_shape, window, dtype=np.float32, layout=np.asarray):
        self.calls, self.lib, self.window = calls, calls.lib, window
        self.x, self.w = (
            layout(integers(shape, seed, dtype)) for seed, shape in enumerate((x_shape, w_shape))
        )
        y_shape = oracle.forward(self.x, self.w, **window).shape
        self.y = layout(integers(y_shape, 2, dtype))
        self.xd, self.yd = calls.tensor(self.x), calls.tensor(self.y)
        self.wd = calls.filter(self.w)
        self.cd = calls.convolution(len(x_shape) - 2, dtype=dtype, **window)
        self.algorithm, self.workspace = 1, (calls.data(None), 0)

    def factors(self, alpha, beta):
        return self.calls.factor(alpha, self.x), self.calls.factor(beta, self.x)

    def forward(self, alpha=1.0, beta=0.0):
        a, b = self.factors(alpha, beta)
        data, algorithm = self.calls.data, self.algorithm
        return self.lib.cudnnConvolutionForward(
            self.calls.handle, a, self.xd, data(self.x), self.wd, data(self.w), self.cd, algorithm,
            *self.workspace, b, self.yd, data(self.y),
        )  # fmt: skip

    def backward_data(self, alpha=1.0, beta=0.0):
        a, b = self.factors(alpha, beta)
        data, algorithm = self.calls.data, self.algorithm
        return self.lib.cudnnConvolutionBackwardData(
            self.calls.handle, a, self.wd, data(self.w), self.yd, data(self.y), self.cd, algorithm,
            *self.workspace, b, self.xd, data(self.x),
        )  # fmt: skip

    def backward_filter(self, alpha=1.0, beta=0.0):
        a, b = self.factors(alpha, beta)
        data, algorithm = self.calls.data, self.algorithm
        return self.lib.cudnnConvolutionBackwardFilter(
            self.calls.handle, a, self.xd, data(self.x), self.yd, data(self.y), self.cd, algorithm,
            *self.workspace, b, self.wd, data(self.w),
        )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_forward(calls, case):
    problem = Problem(calls, *case[1:])
    calls.lib.check(problem.forward())
    assert_equal(problem.y, oracle.forward(problem.x, problem.w, **problem.window))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_backward_data(calls, case):
    problem = Problem(calls, *case[1:])
    calls.lib.check(problem.backward_data())
    expected = oracle.backward_data(problem.y, problem.w, case[1], **problem.window)
    assert_equal(problem.x, expected)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_backward_filter(calls, case):
    problem = Problem(calls, *case[1:])
    calls.lib.check(problem.backward_filter())
    expected = oracle.backward_filter(problem.x, problem.y, case[2], **problem.window)
    assert_equal(problem.w, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [np.asarray, channels_last], ids=["nchw", "nhwc"])
def test_types_layouts_and_factors(calls, dtype, layout):
    """Every function adds to what is there where beta says so."""
    window = {"padding": 1, "stride": 2}
    for name, target in (("forward", "y"), ("backward_data", "x"), ("backward_filter", "w")):
        problem = Problem(calls, (2, 4, 7, 7), (6, 4, 3, 3), window, DTYPES[dtype], layout)
        arrays = {axis: getattr(problem, axis).copy() for axis in "xwy"}
        calls.lib.check(getattr(problem, name)(alpha=2.0, beta=-1.0))
        x, w, y = (arrays[axis] for axis in "xwy")
        total = {
            "y": lambda x=x, w=w: oracle.forward(x, w, **window),
            "x": lambda x=x, w=w, y=y: oracle.backward_data(y, w, x.shape, **window),
            "w": lambda x=x, w=w, y=y: oracle.backward_filter(x, y, w.shape, **window),
        }[target]()
        assert_equal(getattr(problem, target), 2.0 * total - arrays[target].astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
def test_backward_bias(calls, dtype):
    dy = integers((3, 5, 4, 6), 1, DTYPES[dtype])
    db = integers((5,), 2, DTYPES[dtype])
    expected = 3.0 * oracle.backward_bias(dy) + 2.0 * db.astype(np.float64)
    lib, data = calls.lib, calls.data
    lib.check(
        lib.cudnnConvolutionBackwardBias(
            calls.handle, calls.factor(3.0, dy), calls.tensor(dy), data(dy),
            calls.factor(2.0, dy), calls.vector(db, 4), data(db),
        )
    )  # fmt: skip
    assert_equal(db, expected)


def fused(problem, b, z, alpha2, activation, z_data=None):
    calls, data = problem.calls, problem.calls.data
    return calls.lib.cudnnConvolutionBiasActivationForward(
        calls.handle, calls.factor(2.0, problem.x), problem.xd, data(problem.x), problem.wd,
        data(problem.w), problem.cd, 1, data(None), 0, calls.factor(alpha2, problem.x),
        calls.tensor(z), data(z) if z_data is None else z_data, calls.vector(b, z.ndim), data(b),
        activation, problem.yd, data(problem.y),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "name", "coefficient"),
    [("RELU", "relu", 0.0), ("IDENTITY", "identity", 0.0), ("CLIPPED_RELU", "clip", 5.0)],
)
def test_bias_and_activation(calls, mode, name, coefficient):
    problem = Problem(calls, (2, 4, 8, 6), (5, 4, 3, 3), {"padding": 1})
    b, z = integers((5,), 5), integers(problem.y.shape, 6)
    calls.lib.check(fused(problem, b, z, 3.0, calls.activation(mode, coefficient)))
    total = oracle.forward(problem.x, problem.w, padding=1)
    expected = oracle.finish(
        total, alpha=2.0, bias=b, residual=z, residual_alpha=3.0, activation=name,
        parameter=coefficient,
    )  # fmt: skip
    assert_equal(problem.y, expected)


def test_z_is_not_read_where_its_factor_is_0(calls):
    """PyTorch passes y for z then, which holds whatever was there, NaNs too."""
    problem = Problem(calls, (1, 3, 6, 6), (2, 3, 3, 3), {})
    problem.y[...] = np.nan
    b = integers((2,), 5)
    calls.lib.check(fused(problem, b, problem.y, 0.0, calls.activation("RELU")))
    total = oracle.forward(problem.x, problem.w)
    assert_equal(problem.y, oracle.finish(total, alpha=2.0, bias=b, activation="relu"))


def test_z_may_be_the_output(calls):
    problem = Problem(calls, (1, 3, 6, 6), (2, 3, 3, 3), {})
    b, z = integers((2,), 5), problem.y.copy()
    calls.lib.check(fused(problem, b, problem.y, 1.0, calls.activation("RELU")))
    total = oracle.forward(problem.x, problem.w)
    expected = oracle.finish(total, alpha=2.0, bias=b, residual=z, activation="relu")
    assert_equal(problem.y, expected)


@pytest.mark.parametrize("direction", ["Forward", "BackwardData", "BackwardFilter"])
def test_queries_offer_one_algorithm_that_needs_no_workspace(calls, direction):
    lib, ffi = calls.lib, calls.lib.ffi
    problem = Problem(calls, (2, 4, 8, 6), (5, 4, 3, 3), {"padding": 1})
    kind = {"Forward": "Fwd", "BackwardData": "BwdData", "BackwardFilter": "BwdFilter"}[direction]
    order = {
        "Forward": (problem.xd, problem.wd, problem.cd, problem.yd),
        "BackwardData": (problem.wd, problem.yd, problem.cd, problem.xd),
        "BackwardFilter": (problem.xd, problem.yd, problem.cd, problem.wd),
    }[direction]
    counted, found = ffi.new("int *"), ffi.new("int *")
    results = ffi.new(f"cudnnConvolution{kind}AlgoPerf_t[10]")
    lib.check(getattr(lib, f"cudnnGetConvolution{direction}AlgorithmMaxCount")(
        calls.handle, counted))  # fmt: skip
    assert counted[0] >= 1
    for query in (f"cudnnGetConvolution{direction}Algorithm_v7",
                  f"cudnnFindConvolution{direction}Algorithm"):  # fmt: skip
        lib.check(getattr(lib, query)(calls.handle, *order, counted[0], found, results))
        assert (found[0], results[0].status, results[0].memory) == (1, 0, 0)
    size = ffi.new("size_t *", 7)
    lib.check(
        getattr(lib, f"cudnnGetConvolution{direction}WorkspaceSize")(
            calls.handle, *order, results[0].algo, size
        )
    )
    assert size[0] == 0


def test_sums_in_16_bits_are_kept_in_float(calls):
    """300 times 2 and 1 have no exact sum in half once it passes 2048, if kept in half."""
    x, w = np.ones((1, 300, 4, 4), np.float16), np.full((1, 300, 3, 3), 2, np.float16)
    x[0, 0, 0, 0] = 2
    problem = Problem(calls, x.shape, w.shape, {}, np.float16)
    problem.x[...], problem.w[...] = x, w
    calls.lib.check(problem.forward())
    assert_equal(problem.y, oracle.forward(x, w))


def test_threads_with_handles_of_their_own(lib):
    """Calls take turns; each thread gets its own results and its own text of failure."""

    def work(seed):
        place = lib.ffi.new("cudnnHandle_t *")
        lib.check(lib.cudnnCreate(place))
        calls = Calls(lib, place[0])
        for _ in range(5):
            problem = Problem(calls, (1, 3 + seed, 8, 8), (2, 3 + seed, 3, 3), {})
            lib.check(problem.forward())
            assert_equal(problem.y, oracle.forward(problem.x, problem.w))
            problem.xd = calls.tensor(np.zeros((1, 1, 2 + seed, 9), np.float32))
            assert problem.forward() == lib.CUDNN_STATUS_BAD_PARAM
            text = lib.ffi.new("char[300]")
            lib.cudnnGetLastErrorString(text, 300)
            assert f"per group: {3 + seed} is not 1".encode() in lib.ffi.string(text)
        calls.close()
        lib.check(lib.cudnnDestroy(place[0]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
