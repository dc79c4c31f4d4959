"""A layer and PyTorch's of the same arguments, filled with the same integers: y, and what comes of
dy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from python.support import integers

FLOAT64 = np.dtype(np.float64)


def fill(layer, seed: int = 0) -> None:
    """Integers for first values."""
    for i, parameter in enumerate(layer.parameters()):
        parameter.data[...] = integers(parameter.data.shape, seed + i, parameter.data.dtype)


def tensors(torch, values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: torch.from_numpy(value.copy()) for name, value in values.items()}


def of_torch(torch, module, x: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """What PyTorch computes: y, dx and the gradients by the parameters' names."""
    read = torch.from_numpy(x.copy()).requires_grad_()
    y = module(read)
    y.backward(torch.from_numpy(integers(y.shape, seed, x.dtype)))
    named = {name: parameter.grad.numpy() for name, parameter in module.named_parameters()}
    return {"y": y.detach().numpy(), "dx": read.grad.numpy(), **named}


def of_layer(layer, x: np.ndarray, seed: int, tolerance: float = 0.0) -> dict[str, np.ndarray]:
    """What the layer computes, twice: gradients are sums, which are zero before. `tolerance`: of
    the largest, for what is no sum of integers."""
    y = layer(x)
    dx = layer.backward(integers(y.shape, seed, x.dtype))
    once = {name: parameter.grad.copy() for name, parameter in layer.named_parameters()}
    layer(x)
    assert layer.backward(integers(y.shape, seed, x.dtype), needs_dx=False) is None
    for name, parameter in layer.named_parameters():
        room = tolerance * max(1.0, np.abs(once[name]).max())
        np.testing.assert_allclose(parameter.grad, 2 * once[name], rtol=1e-14, atol=room)
    layer.zero_grad()
    assert all(parameter.grad is None for parameter in layer.parameters())
    return {"y": y, "dx": dx, **once}


def assert_same(layer, module, torch, x: np.ndarray, *, tolerance: float = 0.0) -> None:
    """Everything equal; `tolerance` is for what is no sum of integers."""
    fill(layer)
    module.load_state_dict(tensors(torch, layer.state_dict()))
    found, wanted = of_layer(layer, x, 7, tolerance), of_torch(torch, module, x, 7)
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert value.dtype == x.dtype, name
        assert value.shape == wanted[name].shape, name
        np.testing.assert_allclose(
            value, wanted[name], rtol=tolerance, atol=tolerance, err_msg=name
        )
