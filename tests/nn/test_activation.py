"""Activations, Flatten and the loss against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nn.comparing import FLOAT64, assert_same
from python.support import DTYPES, integers

import oocdnn
from oocdnn import nn

LAYERS = {
    "relu": (nn.ReLU, "ReLU()"),
    "clipped_relu": (lambda: nn.ClippedReLU(2.0), "Hardtanh(0.0, 2.0)"),
    "elu": (lambda: nn.ELU(0.5), "ELU(0.5)"),
    "sigmoid": (nn.Sigmoid, "Sigmoid()"),
    "tanh": (nn.Tanh, "Tanh()"),
    "swish": (nn.Swish, "SiLU()"),
    "softplus": (lambda: nn.Softplus(2.0), "Softplus(2.0, threshold=1000)"),
    "identity": (nn.Identity, "Identity()"),
    "flatten": (nn.Flatten, "Flatten()"),
}
EXACT = ("relu", "clipped_relu", "identity", "flatten")
shapes = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("name", LAYERS)
@shapes
@given(shape=st.lists(st.integers(0, 5), min_size=2, max_size=5), factor=st.sampled_from([1, 300]))
def test_forward_and_gradient(torch, name, shape, factor):
    make, theirs = LAYERS[name]
    x = factor * integers(tuple(shape), 5, FLOAT64)
    tolerance = 0.0 if name in EXACT else 1e-14
    with np.errstate(over="raise", invalid="raise"):
        assert_same(make(), eval(f"torch.nn.{theirs}"), torch, x, tolerance=tolerance)


@pytest.mark.parametrize("beta", [-1.5, 0.0, 2.0])
def test_swish_of_any_beta(torch, beta):
    x = torch.linspace(-4, 4, 33, dtype=torch.float64).requires_grad_()
    y = x * torch.sigmoid(beta * x)
    y.sum().backward()
    layer = nn.Swish(beta)
    np.testing.assert_allclose(layer(x.detach().numpy()), y.detach().numpy(), rtol=1e-14)
    np.testing.assert_allclose(layer.backward(np.ones(33)), x.grad.numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_every_type(name, kind):
    layer, x = LAYERS[name][0](), integers((3, 4, 5), 5)
    y = layer(x.astype(DTYPES[kind]))
    dx = layer.backward(np.ones_like(y))
    assert y.dtype == dx.dtype == DTYPES[kind]
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(kind, 1e-6)
    np.testing.assert_allclose(y.astype(np.float32), layer(x), rtol=tolerance, atol=tolerance)
    wanted = layer.backward(np.ones(y.shape, np.float32))
    np.testing.assert_allclose(dx.astype(np.float32), wanted, rtol=tolerance, atol=tolerance)


def test_nan_passes_relu_and_its_gradient(torch):
    x = np.array([[np.nan, -1.0, 2.0]])
    assert_same(nn.ReLU(), torch.nn.ReLU(), torch, x)
    assert_same(nn.ClippedReLU(1.0), torch.nn.Hardtanh(0.0, 1.0), torch, x)


@shapes
@given(
    n=st.integers(1, 5),
    classes=st.integers(1, 6),
    spatial=st.lists(st.integers(1, 3), max_size=2),
    reduction=st.sampled_from(["mean", "sum"]),
    factor=st.sampled_from([1, 1000]),
)
def test_cross_entropy(torch, n, classes, spatial, reduction, factor):
    x = factor * integers((n, classes, *spatial), 5, FLOAT64)
    targets = np.random.default_rng(n).integers(0, classes, (n, *spatial))
    read = torch.from_numpy(x.copy()).requires_grad_()
    wanted = torch.nn.CrossEntropyLoss(reduction=reduction)(read, torch.from_numpy(targets))
    wanted.backward()
    loss = nn.CrossEntropyLoss(reduction)
    np.testing.assert_allclose(loss(x, targets), wanted.item(), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(loss.backward(), read.grad.numpy(), rtol=1e-12, atol=1e-15)
    with pytest.raises(RuntimeError, match="forward"):
        loss.backward()


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8"])
def test_arithmetic_with_fractions_takes_no_integers(dtype):
    """NumPy would round results and gradients to integers, or raise errors of its own."""
    x = np.ones((2, 3), dtype)
    for layer in (nn.Sigmoid(), nn.Tanh(), nn.ReLU()):
        with pytest.raises(oocdnn.InvalidDtype, match=f"x has elements of type {dtype}"):
            layer(x)
        y = layer(x.astype("f4"))
        with pytest.raises(oocdnn.InvalidDtype, match=f"dy has elements of type {dtype}"):
            layer.backward(np.ones(y.shape, dtype))
    with pytest.raises(oocdnn.InvalidDtype, match=f"x has elements of type {dtype}"):
        nn.CrossEntropyLoss()(x, np.array([0, 2]))


def test_what_a_loss_refuses():
    loss, x = nn.CrossEntropyLoss(), np.zeros((2, 3))
    with pytest.raises(oocdnn.InvalidProblem, match="from 0 to 3"):
        loss(x, np.array([0, 3]))
    with pytest.raises(oocdnn.InvalidProblem, match="targets has shape"):
        loss(x, np.array([0]))
    with pytest.raises(oocdnn.InvalidDtype, match="float64"):
        loss(x, np.zeros(2))
    with pytest.raises(oocdnn.InvalidProblem, match="reduction"):
        nn.CrossEntropyLoss("none")
    with pytest.raises(oocdnn.InvalidDtype, match="layers take NumPy and CuPy arrays"):
        loss([[1.0]], np.array([0]))


def test_elu_needs_an_alpha_that_tells_the_derivative():
    with pytest.raises(oocdnn.InvalidProblem, match="alpha is -1"):
        nn.ELU(-1.0)
