"""Layers on CuPy arrays: what they compute, and the training of a net, are NumPy's on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from nn.comparing import FLOAT64, fill
from nn.training import losses, net
from python.support import channels_last, integers

import oocdnn
from oocdnn import nn

pytestmark = pytest.mark.gpu
SHAPE = (3, 4, 9, 10)
LAYERS = {
    "convolution": lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2, dtype=FLOAT64),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, dtype=FLOAT64),
    "fused, max": lambda: nn.ConvBiasActPool(
        4, 5, 3, activation="relu", pool=oocdnn.Pool("max", 3, 2, 1), dtype=FLOAT64
    ),
    "fused, avg": lambda: nn.ConvBiasActPool(
        4, 5, 3, activation=("clipped_relu", 6.0), pool=oocdnn.Pool("avg", 3, 2, 1), dtype=FLOAT64
    ),
    "fused, swish": lambda: nn.ConvBiasActPool(4, 5, 3, activation="swish", dtype=FLOAT64),
    "rows": lambda: nn.Chain(nn.Flatten(), nn.Linear(360, 7, dtype=FLOAT64)),
    "max": lambda: nn.MaxPool2d(3, 2, 1, ceil=True),
    "avg": lambda: nn.AvgPool2d((2, 3), 2, (1, 0), count_padding=False),
    "relu": nn.ReLU,
    "clipped_relu": lambda: nn.ClippedReLU(2.0),
    "elu": nn.ELU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "swish": nn.Swish,
    "softplus": nn.Softplus,
    "identity": nn.Identity,
}


@pytest.fixture
def cupy():
    module = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        oocdnn.Context("cuda", "1MiB").close()
        module.zeros(1)
    except (oocdnn.Unsupported, RuntimeError) as error:
        pytest.skip(str(error))
    return module


def images(dtype, count=512):
    """A square of noise for each of ten classes, under more noise."""
    rng = np.random.default_rng(0)
    patterns, classes = rng.standard_normal((10, 1, 8, 8)), rng.integers(0, 10, count)
    noise = rng.standard_normal((count, 1, 8, 8))
    return (patterns[classes] + 0.5 * noise).astype(dtype), classes


def lay_out(cupy, array, order):
    """On the GPU, in that memory order where there is one."""
    if array.ndim < 3 or order is np.ascontiguousarray:
        return cupy.asarray(array)
    return cupy.moveaxis(cupy.asarray(np.moveaxis(array, 1, -1).copy()), -1, 1)


@pytest.mark.parametrize("order", [np.ascontiguousarray, channels_last])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_numpys(cupy, name, order):
    layer, x = LAYERS[name](), integers(SHAPE, 5, FLOAT64)
    fill(layer)
    with oocdnn.Context("cpu"):
        y = layer(x)
        dy = integers(y.shape, 6, FLOAT64)
        dx = layer.backward(dy)
    wanted = [y, dx, *(parameter.grad.copy() for parameter in layer.parameters())]
    layer.zero_grad()
    layer.to(cupy)
    with oocdnn.Context("cuda", "64MiB"):
        there = layer(lay_out(cupy, x, order))
        back = layer.backward(lay_out(cupy, dy, order))
        found = [there, back, *(parameter.grad for parameter in layer.parameters())]
    for array, value in zip(found, wanted, strict=True):
        assert isinstance(array, cupy.ndarray)
        np.testing.assert_allclose(array.get(), value, rtol=1e-12, atol=1e-12)


def test_the_loss_is_numpys(cupy):
    x, classes = integers((5, 4), 5, FLOAT64), np.array([0, 3, 2, 1, 1])
    here, there = nn.CrossEntropyLoss(), nn.CrossEntropyLoss()
    loss = there(cupy.asarray(x), cupy.asarray(classes))
    np.testing.assert_allclose(loss.get(), here(x, classes), rtol=1e-13)
    np.testing.assert_allclose(there.backward().get(), here.backward(), rtol=1e-12)
    with pytest.raises(oocdnn.InvalidDtype, match="targets are not of the module of x"):
        there(cupy.asarray(x), classes)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("budget", ["256KiB", "64MiB"])
@pytest.mark.parametrize(
    ("dtype", "lr", "tolerance"), [(np.float64, 0.05, 1e-9), (np.float32, 0.02, 1e-4)]
)
def test_training_goes_as_on_the_cpu(cupy, dtype, lr, tolerance, budget):
    x, classes = images(dtype)
    with oocdnn.Context("cpu"):
        wanted = losses(net(dtype), x, classes, lr)
    with oocdnn.Context("cuda", budget):
        chain = net(dtype).to(cupy)
        found = losses(chain, cupy.asarray(x), cupy.asarray(classes), lr)
    assert all(isinstance(value, cupy.ndarray) for value in chain.state_dict().values())
    np.testing.assert_allclose(found, wanted, rtol=tolerance)
    assert found[-1] < found[0]


def test_states_go_from_one_side_to_the_other(cupy, tmp_path):
    here, there = net(seed=0), net(seed=1).to(cupy)
    nn.save(tmp_path / "net.npz", here.state_dict())
    there.load_state_dict(nn.load(tmp_path / "net.npz"))
    again = net(seed=2)
    again.load_state_dict(there.state_dict())
    for name, value in here.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], value)
