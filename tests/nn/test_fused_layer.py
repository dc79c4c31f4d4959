"""Convolution, bias, activation and pool as one layer: PyTorch's operations one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nn.comparing import FLOAT64, fill, of_layer, of_torch, tensors
from python.support import integers

import oocdnn
from oocdnn import nn

ACTIVATIONS = {
    None: "Identity()",
    "relu": "ReLU()",
    ("clipped_relu", 6.0): "Hardtanh(0.0, 6.0)",
    ("elu", 0.5): "ELU(0.5)",
    "sigmoid": "Sigmoid()",
    "tanh": "Tanh()",
    "swish": "SiLU()",
    "softplus": "Softplus(1.0, 1000.0)",
}
EXACT = (None, "relu", ("clipped_relu", 6.0))


@st.composite
def pools(draw, rank: int):
    """A pool of ours and PyTorch's arguments for it; None for none."""
    mode = draw(st.sampled_from(["none", "max", "max", "avg"]))
    if mode == "none":
        return None, None
    window = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    stride = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    padding = tuple(draw(st.integers(0, w // 2)) for w in window)
    ceil, counted = draw(st.booleans()), draw(st.booleans()) if mode == "avg" else True
    pool = oocdnn.Pool(mode, window, stride, padding, ceil, counted)
    more = (counted,) if mode == "avg" else (1, False)
    arguments = (window, stride, padding, *more, ceil) if mode == "max" else None
    return pool, arguments or (window, stride, padding, ceil, counted)


def of_pool(torch, pool, arguments, rank):
    if pool is None:
        return torch.nn.Identity()
    name = f"{'Max' if pool.mode == 'max' else 'Avg'}Pool{rank}d"
    return getattr(torch.nn, name)(*arguments)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.data(),
    rank=st.integers(1, 3),
    activation=st.sampled_from(list(ACTIVATIONS)),
    groups=st.integers(1, 2),
    bias=st.booleans(),
    stride=st.integers(1, 2),
)
def test_the_fused_layer_is_its_parts(torch, data, rank, activation, groups, bias, stride):
    pool, arguments = data.draw(pools(rank))
    extents = tuple(data.draw(st.integers(9, 13)) for _ in range(rank))
    x = integers((2, 2 * groups, *extents), 5, FLOAT64, largest=1)
    sizes, keywords = (2 * groups, 3 * groups, 3, stride, 1), {"groups": groups, "bias": bias}
    layer = nn.ConvBiasActPool(
        *sizes, **keywords, activation=activation, pool=pool, rank=rank, dtype=FLOAT64
    )
    convolution = getattr(torch.nn, f"Conv{rank}d")(*sizes, **keywords).double()
    fill(layer)
    convolution.load_state_dict(tensors(torch, layer.state_dict()))
    parts = torch.nn.Sequential(
        convolution,
        eval(f"torch.nn.{ACTIVATIONS[activation]}"),
        of_pool(torch, pool, arguments, rank),
    )
    exact = activation in EXACT and not (pool and pool.mode == "avg")
    tolerance = 0.0 if exact else 1e-12
    found = of_layer(layer, x, 7, tolerance)
    wanted = {name.removeprefix("0."): v for name, v in of_torch(torch, parts, x, 7).items()}
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        scale = max(1.0, np.abs(wanted[name]).max())
        np.testing.assert_allclose(
            value, wanted[name], rtol=tolerance, atol=tolerance * scale, err_msg=name
        )


def test_only_bits_are_kept():
    layer = nn.ConvBiasActPool(3, 8, 3, padding=1, activation="relu", pool=2)
    x = integers((2, 3, 16, 16))
    z = layer(x)
    kept, saved = layer._kept
    assert kept is x
    assert saved.nbytes * 8 == 3 * z.size
    layer.eval()(x)
    assert layer._kept is None


def test_wrong_arguments_are_told_of_at_once():
    with pytest.raises(oocdnn.InvalidProblem, match="in_channels is 3, which groups=2"):
        nn.ConvBiasActPool(3, 4, 3, groups=2)
    with pytest.raises(oocdnn.InvalidProblem, match="the pool's window"):
        nn.ConvBiasActPool(3, 4, 3, pool=(2, 2), rank=3)
    with pytest.raises(oocdnn.InvalidProblem, match="kernel_size"):
        nn.ConvBiasActPool(3, 4, (3, 3), rank=1)
    with pytest.raises(oocdnn.InvalidProblem, match="rank is 4"):
        nn.ConvBiasActPool(3, 4, 3, rank=4)
    layer = nn.ConvBiasActPool(1, 1, 1, pool=2)
    layer(np.zeros((1, 1, 4, 4), np.float32))
    with pytest.raises(oocdnn.InvalidProblem, match="dz has shape"):
        layer.backward(np.zeros((1, 1, 4, 4), np.float32))


@pytest.mark.parametrize("activation", ["relu", ("elu", 0.0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_all_gradients_take_one_pass(dtype, activation):
    """Added to others too; sums of 16 bits would be rounded twice, and take a call for each."""
    x = integers((8, 4, 16, 24), 5, np.dtype(dtype), largest=1)
    layer = nn.ConvBiasActPool(4, 8, 3, padding=1, activation=activation, pool=2, dtype=dtype)
    fill(layer)
    with oocdnn.Context("cpu", "256KiB", profile="none") as ctx:
        for times in (1, 2):
            z = layer(x)
            saved, dz = layer._kept[1], integers(z.shape, 3, np.dtype(dtype), largest=1)
            dx = layer.backward(dz)
            sums = layer.weight.grad, layer.bias.grad
            if times == 1:
                once = [one.copy() for one in sums]
            for one, first in zip(sums, once, strict=True):
                np.testing.assert_array_equal(one, times * first)
            if times == 2 and dtype == np.float16:
                assert ctx.stats.bytes_d2h == dx.nbytes
                continue
            assert ctx.stats.bytes_h2d == sum(
                one.nbytes for one in (x, dz, saved, layer.weight.data)
            )
            assert ctx.stats.bytes_d2h == sum(one.nbytes for one in (dx, *sums))
