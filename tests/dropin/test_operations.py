"""The other operations that the CPU serves, against NumPy."""

import numpy as np
import oracle
import pytest
from python.support import DTYPES, assert_close, assert_equal, channels_last, integers


def add_tensor(calls, a, c, alpha=1.0, beta=1.0):
    calls.lib.check(
        calls.lib.cudnnAddTensor(
            calls.handle, calls.factor(alpha, c), calls.tensor(a), calls.data(a),
            calls.factor(beta, c), calls.tensor(c), calls.data(c),
        )
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 4, 1, 1), (2, 4, 5, 3), (1, 1, 5, 3), (1, 1, 1, 1)])
def test_add_tensor(calls, dtype, shape):
    a = integers(shape, 1, DTYPES[dtype])
    c = channels_last(integers((2, 4, 5, 3), 2, DTYPES[dtype]))
    expected = 2.0 * a.astype(np.float64) - 3.0 * c.astype(np.float64)
    add_tensor(calls, a, c, 2.0, -3.0)
    assert_equal(c, expected)


def test_what_beta_0_overwrites_is_not_read(calls):
    a, c = integers((2, 3, 2, 2)), np.full((2, 3, 2, 2), np.nan, np.float32)
    add_tensor(calls, a, c, 1.0, 0.0)
    assert_equal(c, a)


OPS = {
    "ADD": np.add,
    "MUL": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "SQRT": lambda a, b: np.sqrt(a),
    "NOT": lambda a, b: 1 - a,
}


@pytest.mark.parametrize("op", OPS)
def test_op_tensor(calls, op):
    lib = calls.lib
    a = np.abs(integers((2, 3, 4, 5), 1))
    b, c = integers((1, 3, 1, 1), 2), integers((2, 3, 4, 5), 3)
    expected = OPS[op](4.0 * a.astype(np.float64), 2.0 * b) + 3.0 * c
    descriptor = calls.create("OpTensor")
    lib.check(
        lib.cudnnSetOpTensorDescriptor(
            descriptor, getattr(lib, f"CUDNN_OP_TENSOR_{op}"), lib.CUDNN_DATA_FLOAT,
            lib.CUDNN_PROPAGATE_NAN,
        )
    )  # fmt: skip
    lib.check(
        lib.cudnnOpTensor(
            calls.handle, descriptor, calls.factor(4.0, a), calls.tensor(a), calls.data(a),
            calls.factor(2.0, a), calls.tensor(b), calls.data(b), calls.factor(3.0, a),
            calls.tensor(c), calls.data(c),
        )
    )  # fmt: skip
    assert_equal(c, expected)


def test_set_scale_and_transform(calls):
    lib = calls.lib
    y = integers((2, 3, 4, 5))
    x = channels_last(y.copy())
    yd = calls.tensor(y)
    value = lib.ffi.new("float *", 7.0)
    lib.check(lib.cudnnSetTensor(calls.handle, yd, calls.data(y), value))
    assert (y == 7).all()
    lib.check(lib.cudnnScaleTensor(calls.handle, yd, calls.data(y), calls.factor(-2.0, y)))
    assert (y == -14).all()
    lib.check(
        lib.cudnnTransformTensor(
            calls.handle, calls.factor(1.0, x), calls.tensor(x), calls.data(x),
            calls.factor(0.5, x), yd, calls.data(y),
        )
    )  # fmt: skip
    assert_equal(y, x - 7.0)


ACTIVATIONS = {
    "RELU": ("relu", 0.0),
    "CLIPPED_RELU": ("clip", 2.0),
    "ELU": ("elu", 0.5),
    "SIGMOID": ("sigmoid", 0.0),
    "TANH": ("tanh", 0.0),
    "IDENTITY": ("identity", 0.0),
    "SWISH": ("swish", 1.0),
}


@pytest.mark.parametrize("mode", ACTIVATIONS)
def test_activation_forward_and_backward(calls, mode):
    lib, (name, coefficient) = calls.lib, ACTIVATIONS[mode]
    x, y, dy = (integers((2, 3, 4, 5), seed) for seed in range(3))
    x += 0.25  # away from kinks
    old, dx = y.copy(), np.full_like(x, np.nan)
    ad, xd = calls.activation(mode, coefficient), calls.tensor(x)
    data, factor = calls.data, calls.factor
    lib.check(
        lib.cudnnActivationForward(
            calls.handle, ad, factor(2.0, x), xd, data(x), factor(1.0, x), xd, data(y)
        )
    )
    assert_close(y, 2.0 * oracle.activate(x, name, coefficient) + old)
    y = oracle.activate(x, name, coefficient).astype(np.float32)
    lib.check(
        lib.cudnnActivationBackward(
            calls.handle, ad, factor(1.0, x), xd, data(y), xd, data(dy), xd, data(x),
            factor(0.0, x), xd, data(dx),
        )
    )  # fmt: skip
    step = 1e-4
    wide = x.astype(np.float64)
    ends = [oracle.activate(wide + h, name, coefficient) for h in (step, -step)]
    assert_close(dx, dy * (ends[0] - ends[1]) / (2 * step), 1e-4)


def test_a_nan_passes_relu_only_where_it_is_to_propagate(calls):
    lib = calls.lib
    x, y = np.array([[np.nan, -1.0, 2.0]], np.float32), np.zeros((1, 3), np.float32)
    for propagate, first in ((True, np.nan), (False, 0.0)):
        lib.check(
            lib.cudnnActivationForward(
                calls.handle, calls.activation("RELU", 0.0, propagate), calls.factor(1.0, x),
                calls.tensor(x), calls.data(x), calls.factor(0.0, x), calls.tensor(y),
                calls.data(y),
            )
        )  # fmt: skip
        np.testing.assert_array_equal(y, [[first, 0.0, 2.0]])


def windows(x, window, padding, stride, fill):
    """Every window of x, its elements in the last axis; padding holds `fill`."""
    pads = [(0, 0), (0, 0), *((p, p) for p in padding)]
    padded = np.pad(x.astype(np.float64), pads, constant_values=fill)
    spatial = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(padded, tuple(window), spatial)
    steps = (slice(None), slice(None), *(slice(None, None, s) for s in stride))
    return view[steps].reshape(*view[steps].shape[: x.ndim], -1)


def pooled(x, mode, window, padding, stride):
    if mode.startswith("MAX"):
        return windows(x, window, padding, stride, -np.inf).max(-1)
    sums = windows(x, window, padding, stride, 0).sum(-1)
    if mode == "AVERAGE_COUNT_INCLUDE_PADDING":
        return sums / np.prod(window)
    return sums / windows(np.ones_like(x), window, padding, stride, 0).sum(-1)


POOLS = [
    ((2, 3, 8, 6), (2, 2), (0, 0), (2, 2)),
    ((1, 2, 7, 9), (3, 2), (1, 1), (2, 1)),
    ((1, 2, 5, 6, 4), (2, 3, 2), (1, 0, 1), (2, 2, 1)),
    ((1, 2, 9, 9), (2, 2), (0, 0), (3, 3)),
]
MODES = (
    "MAX",
    "MAX_DETERMINISTIC",
    "AVERAGE_COUNT_INCLUDE_PADDING",
    "AVERAGE_COUNT_EXCLUDE_PADDING",
)


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("mode", MODES)
def test_pooling_forward_and_backward(calls, mode, case):
    """Also windows that overlap, strides past the window, padding: what ooc_cuDNN refused."""
    lib, (shape, window, padding, stride) = calls.lib, case
    rng = np.random.default_rng(3)
    x = rng.permutation(np.arange(np.prod(shape))).reshape(shape).astype(np.float32)
    expected = pooled(x, mode, window, padding, stride)
    out = lib.ffi.new("int[8]")
    pd, xd = calls.pooling(mode, window, padding, stride), calls.tensor(x)
    lib.check(lib.cudnnGetPoolingNdForwardOutputDim(pd, xd, x.ndim, out))
    assert tuple(out)[: x.ndim] == expected.shape
    y, dy, dx = (np.zeros(s, np.float32) for s in (expected.shape, expected.shape, shape))
    yd, data, factor = calls.tensor(y), calls.data, calls.factor
    lib.check(
        lib.cudnnPoolingForward(
            calls.handle, pd, factor(1.0, x), xd, data(x), factor(0.0, x), yd, data(y)
        )
    )
    assert_close(y, expected)
    dy[...] = integers(dy.shape, 5)
    lib.check(
        lib.cudnnPoolingBackward(
            calls.handle, pd, factor(1.0, x), yd, data(y), yd, data(dy), xd, data(x),
            factor(0.0, x), xd, data(dx),
        )
    )  # fmt: skip
    assert_close(dx, pool_gradient(x, dy, mode, case), 1e-4)


@pytest.mark.parametrize(
    ("propagate", "expected", "winners"),
    [(True, [np.nan, np.nan, 2], [0, 3, 4]), (False, [1, 3, 2], [1, 2, 4])],
)
def test_a_nan_is_the_largest_only_where_it_is_to_propagate(calls, propagate, expected, winners):
    lib, data, factor = calls.lib, calls.data, calls.factor
    x = np.array([[[[np.nan, 1, 3, np.nan, 2, 1]]]], np.float32)
    y, dx = np.zeros((1, 1, 1, 3), np.float32), np.zeros_like(x)
    dy = np.array([[[[5, 6, 7]]]], np.float32)
    pd = calls.pooling("MAX", (1, 2), (0, 0), (1, 2), propagate)
    xd, yd = calls.tensor(x), calls.tensor(y)
    lib.check(
        lib.cudnnPoolingForward(
            calls.handle, pd, factor(1.0, x), xd, data(x), factor(0.0, x), yd, data(y)
        )
    )
    np.testing.assert_array_equal(y.ravel(), expected)
    lib.check(
        lib.cudnnPoolingBackward(
            calls.handle, pd, factor(1.0, x), yd, data(y), yd, data(dy), xd, data(x),
            factor(0.0, x), xd, data(dx),
        )
    )  # fmt: skip
    wanted = np.zeros(6, np.float32)
    wanted[winners] = dy.ravel()
    np.testing.assert_array_equal(dx.ravel(), wanted)


def pool_gradient(x, dy, mode, case):
    """By the definition: what a small change of each input changes; elements are apart by 1."""
    _, window, padding, stride = case
    gradient, step = np.zeros(x.shape), 0.25
    for index in np.ndindex(*x.shape):
        moved = x.astype(np.float64)
        moved[index] += step
        change = pooled(moved, mode, window, padding, stride) - pooled(
            x, mode, window, padding, stride
        )
        gradient[index] = (change * dy).sum() / step
    return gradient


@pytest.mark.parametrize("mode", ["INSTANCE", "CHANNEL"])
@pytest.mark.parametrize("algorithm", ["FAST", "ACCURATE", "LOG"])
def test_softmax_forward_and_backward(calls, mode, algorithm):
    lib = calls.lib
    x, dy = integers((2, 4, 3, 2), 1), integers((2, 4, 3, 2), 2)
    y, dx = np.zeros_like(x), np.zeros_like(x)
    axes = (1,) if mode == "CHANNEL" else (1, 2, 3)
    powers = np.exp(x.astype(np.float64) - x.max())
    soft = powers / powers.sum(axes, keepdims=True)
    log = algorithm == "LOG"
    expected = np.log(soft) if log else soft
    xd, data, factor = calls.tensor(x), calls.data, calls.factor
    how = (
        getattr(lib, f"CUDNN_SOFTMAX_{algorithm}"),
        getattr(lib, f"CUDNN_SOFTMAX_MODE_{mode}"),
    )
    lib.check(
        lib.cudnnSoftmaxForward(
            calls.handle, *how, factor(1.0, x), xd, data(x), factor(0.0, x), xd, data(y)
        )
    )
    assert_close(y, expected)
    lib.check(
        lib.cudnnSoftmaxBackward(
            calls.handle, *how, factor(1.0, x), xd, data(y), xd, data(dy), factor(0.0, x), xd,
            data(dx),
        )
    )  # fmt: skip
    if log:
        assert_close(dx, dy - soft * dy.sum(axes, keepdims=True), 1e-4)
    else:
        assert_close(dx, soft * (dy - (dy * soft).sum(axes, keepdims=True)), 1e-4)


def element_type(lib, tensor) -> int:
    dtype, rank = lib.ffi.new("cudnnDataType_t *"), lib.ffi.new("int *")
    dims, strides = lib.ffi.new("int[8]"), lib.ffi.new("int[8]")
    lib.check(lib.cudnnGetTensorNdDescriptor(tensor, 8, dtype, rank, dims, strides))
    return dtype[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["SPATIAL", "PER_ACTIVATION", "SPATIAL_PERSISTENT"])
def test_batch_normalization_inference(calls, mode, dtype):
    """The parameters of 16-bit tensors are float."""
    lib = calls.lib
    x = integers((2, 3, 4, 5), 1, DTYPES[dtype])
    y = np.zeros_like(x)
    derived = calls.create("Tensor")
    lib.check(
        lib.cudnnDeriveBNTensorDescriptor(
            derived, calls.tensor(x), getattr(lib, f"CUDNN_BATCHNORM_{mode}")
        )
    )
    shape = (1, 3, 4, 5) if mode == "PER_ACTIVATION" else (1, 3, 1, 1)
    kind = np.float64 if dtype == "float64" else np.float32
    assert element_type(lib, derived) == calls.type_of(np.empty(0, kind))
    scale, bias, mean = (integers(shape, seed, kind) for seed in (2, 3, 4))
    variance = np.abs(integers(shape, 5, kind)) + 1
    lib.check(
        lib.cudnnBatchNormalizationForwardInference(
            calls.handle, getattr(lib, f"CUDNN_BATCHNORM_{mode}"), calls.factor(1.0, x),
            calls.factor(0.0, x), calls.tensor(x), calls.data(x), calls.tensor(y), calls.data(y),
            derived, *(calls.data(p) for p in (scale, bias, mean, variance)), 0.5,
        )
    )  # fmt: skip
    expected = bias + scale * (x.astype(np.float64) - mean) / np.sqrt(variance + 0.5)
    assert_close(y, expected, {"float16": 1e-3, "bfloat16": 1e-2}.get(dtype, 1e-5))
