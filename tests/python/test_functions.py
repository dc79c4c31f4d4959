"""Every function, in every type, layout and number of axes, against the float64 reference."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from python.support import DTYPES, assert_close, assert_equal, channels_last, integers

import oocdnn

SPATIAL = {1: (37,), 2: (13, 14), 3: (6, 7, 8)}
TAPS = {1: (5,), 2: (3, 2), 3: (2, 3, 1)}
LAYOUTS = {"rows": np.ascontiguousarray, "channels_last": channels_last}

pytestmark = pytest.mark.usefixtures("ctx")


@pytest.fixture(params=DTYPES)
def dtype(request):
    return DTYPES[request.param]


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolution(rank, dtype, layout):
    x = layout(integers((2, 6, *SPATIAL[rank]), 1, dtype))
    w = layout(integers((8, 3, *TAPS[rank]), 2, dtype))
    b = integers((8,), 3, dtype)
    moves = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
    y = getattr(oocdnn, f"conv{rank}d")(x, w, b, **moves)
    assert y.dtype == dtype
    assert_equal(y, oracle.finish(oracle.forward(x, w, **moves), bias=b))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("output_padding", [0, 1])
def test_transposed_convolution(rank, dtype, layout, output_padding):
    x = layout(integers((2, 6, *SPATIAL[rank]), 1, dtype))
    w = layout(integers((6, 2, *TAPS[rank]), 2, dtype))
    b = integers((4,), 3, dtype)
    moves = {"stride": 2, "padding": 0, "dilation": 2, "groups": 2}
    function = getattr(oocdnn, f"conv_transpose{rank}d")
    y = function(x, w, b, output_padding=output_padding, **moves)
    sizes = [
        (n - 1) * 2 + (t - 1) * 2 + 1 + output_padding
        for n, t in zip(SPATIAL[rank], TAPS[rank], strict=True)
    ]
    assert y.shape == (2, 4, *sizes)
    assert_equal(y, oracle.finish(oracle.backward_data(x, w, y.shape, **moves), bias=b))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients(rank, dtype, layout):
    x = layout(integers((2, 6, *SPATIAL[rank]), 1, dtype))
    w = layout(integers((8, 3, *TAPS[rank]), 2, dtype))
    moves = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
    shape = oracle.forward(x, w, **moves).shape
    dy = layout(integers(shape, 4, dtype, largest=1))
    dx = oocdnn.conv_backward_data(dy, w, x.shape, **moves)
    assert_equal(dx, oracle.backward_data(dy, w, x.shape, **moves))
    dw = oocdnn.conv_backward_filter(x, dy, w.shape, **moves)
    assert_equal(dw, oracle.backward_filter(x, dy, w.shape, **moves))
    db = oocdnn.conv_backward_bias(dy)
    assert_equal(db, oracle.backward_bias(dy))
    assert {dx.dtype, dw.dtype, db.dtype} == {dtype}


@pytest.mark.parametrize(
    ("padding", "pairs"),
    [
        (0, [(0, 0), (0, 0)]),
        ("valid", [(0, 0), (0, 0)]),
        ("same", [(1, 1), (1, 2)]),
        (2, [(2, 2), (2, 2)]),
        ((0, 3), [(0, 0), (3, 3)]),
        (np.array([1, 2]), [(1, 1), (2, 2)]),
        (((0, 2), (3, 1)), [(0, 2), (3, 1)]),
        ([[0, 2], [3, 1]], [(0, 2), (3, 1)]),
    ],
)
def test_padding_is_written_in_many_ways(padding, pairs):
    x, w = integers((1, 3, 9, 11)), integers((4, 3, 3, 4))
    y = oocdnn.conv2d(x, w, padding=padding)
    assert_equal(y, oracle.forward(x, w, padding=pairs))
    if isinstance(padding, str) and padding == "same":
        assert y.shape[2:] == x.shape[2:]


def test_same_padding_of_a_transposed_convolution_keeps_the_size():
    x, w = integers((1, 3, 9, 11)), integers((3, 4, 3, 4))
    assert oocdnn.conv_transpose2d(x, w, padding="same").shape == (1, 4, 9, 11)


@pytest.mark.parametrize("direction", ["forward", "data", "filter"])
def test_mirrored_filter(direction):
    x, w = integers((2, 3, 9, 11)), integers((4, 3, 3, 4))
    moves = {"stride": (1, 2), "padding": (1, 0)}
    y = oracle.forward(x, w, flip=True, **moves)
    dy = integers(y.shape, 5)
    moves_here = {**moves, "mode": "convolution"}
    if direction == "forward":
        assert_equal(oocdnn.conv2d(x, w, **moves_here), y)
    elif direction == "data":
        dx = oocdnn.conv_backward_data(dy, w, x.shape, **moves_here)
        assert_equal(dx, oracle.backward_data(dy, w, x.shape, flip=True, **moves))
    else:
        dw = oocdnn.conv_backward_filter(x, dy, w.shape, **moves_here)
        assert_equal(dw, oracle.backward_filter(x, dy, w.shape, flip=True, **moves))


@pytest.mark.parametrize(
    ("activation", "name", "parameter"),
    [
        (None, "identity", 0.0),
        ("identity", "identity", 0.0),
        ("relu", "relu", 0.0),
        (("clipped_relu", 6.0), "clip", 6.0),
        ("elu", "elu", 1.0),
        (("elu", 0.3), "elu", 0.3),
        ("sigmoid", "sigmoid", 0.0),
        ("tanh", "tanh", 0.0),
        ("swish", "swish", 1.0),
        (("swish", 1.7), "swish", 1.7),
        (("softplus", 1.7), "softplus", 1.7),
    ],
)
def test_activations(activation, name, parameter):
    x, w = integers((1, 3, 9, 11)), integers((4, 3, 3, 3)) / np.float32(8)
    y = oocdnn.conv2d(x, w, padding=1, activation=activation)
    reference = oracle.finish(oracle.forward(x, w, padding=1), activation=name, parameter=parameter)
    assert_close(y, reference)


@pytest.mark.parametrize("transposed", [False, True])
def test_everything_at_once(transposed):
    x, w = integers((2, 4, 9, 11)), integers((4, 4, 3, 3))
    shape = (2, 4, 11, 13) if transposed else (2, 4, 9, 11)
    more = {name: integers((4,), i) for i, name in enumerate(("bias", "scale"))}
    residual, out = integers(shape, 7), integers(shape, 8)
    old = out.copy()
    function = oocdnn.conv_transpose2d if transposed else oocdnn.conv2d
    result = function(
        x,
        w,
        more["bias"],
        padding=0 if transposed else 1,
        scale=more["scale"],
        residual=residual,
        residual_alpha=3,
        alpha=2,
        beta=-1,
        activation="relu",
        out=out,
    )
    assert result is out
    if transposed:
        total = oracle.backward_data(x, w, shape)
    else:
        total = oracle.forward(x, w, padding=1)
    numbers = {"alpha": 2, "beta": -1, "residual_alpha": 3}
    reference = oracle.finish(
        total, old=old, residual=residual, activation="relu", **numbers, **more
    )
    assert_equal(out, reference)


@pytest.mark.parametrize("name", ["data", "filter", "bias"])
def test_gradients_add_to_what_is_there(name):
    x, w, dy = integers((2, 3, 9, 11)), integers((4, 3, 3, 3)), integers((2, 4, 9, 11), 5)
    calls = {
        "data": (oocdnn.conv_backward_data, (dy, w, x.shape), {"padding": 1}, x.shape),
        "filter": (oocdnn.conv_backward_filter, (x, dy, w.shape), {"padding": 1}, w.shape),
        "bias": (oocdnn.conv_backward_bias, (dy,), {}, (4,)),
    }
    function, arguments, keywords, shape = calls[name]
    out = integers(shape, 9)
    expected = 2.0 * function(*arguments, **keywords) + 1.0 * out
    function(*arguments, **keywords, alpha=2, beta=1, out=out)
    assert_equal(out, expected)


def test_beta_zero_never_reads_the_old_values():
    x, w = integers((1, 3, 9, 11)), integers((4, 3, 3, 3))
    out = np.full((1, 4, 7, 9), np.nan, np.float32)
    oocdnn.conv2d(x, w, out=out)
    assert_equal(out, oracle.forward(x, w))


def test_bias_and_scale_may_be_in_the_type_of_the_sums():
    x, w = integers((1, 3, 9, 11), dtype=np.float16), integers((4, 3, 3, 3), dtype=np.float16)
    b, scale = integers((4,)), integers((4,), 2)
    y = oocdnn.conv2d(x, w, b, scale=scale)
    assert y.dtype == np.float16
    assert_equal(y, oracle.finish(oracle.forward(x, w), bias=b, scale=scale))


def test_an_empty_batch_gives_empty_results_and_zero_gradients():
    x, w = np.empty((0, 3, 9, 9), np.float32), integers((4, 3, 3, 3))
    dy = np.empty((0, 4, 7, 7), np.float32)
    assert oocdnn.conv2d(x, w).shape == (0, 4, 7, 7)
    assert oocdnn.conv_transpose2d(dy, w).shape == (0, 3, 9, 9)
    assert oocdnn.conv_backward_data(dy, w, x.shape).shape == x.shape
    assert not oocdnn.conv_backward_filter(x, dy, w.shape).any()
    assert not oocdnn.conv_backward_bias(dy).any()
    out = integers(w.shape, 3)
    expected = 0.5 * out
    oocdnn.conv_backward_filter(x, dy, w.shape, beta=0.5, out=out)
    assert_equal(out, expected)


def test_depthwise():
    x, w = integers((1, 16, 9, 11)), integers((16, 1, 3, 3))
    assert_equal(
        oocdnn.conv2d(x, w, groups=16, padding=1), oracle.forward(x, w, groups=16, padding=1)
    )


def test_the_same_bits_for_every_budget_when_reproducible():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 8, 64, 64), np.float32)
    w = rng.standard_normal((8, 8, 3, 3), np.float32)
    results = []
    for budget in ("256KiB", "1MiB", "1GiB"):
        with oocdnn.Context("cpu", budget, reproducible=True) as context:
            results.append(context.conv2d(x, w, padding=1).tobytes())
    assert len(set(results)) == 1


def test_docstrings_and_names():
    for name in oocdnn.__all__:
        if name.startswith("conv"):
            function = getattr(oocdnn, name)
            assert function.__name__ == name
            assert "Returns" in function.__doc__
