"""Gradients written in place of tensors that are not read any more, which saves the bytes of one
tensor. The arithmetic is the same.

The gradient of an elementwise operation takes the place of the gradient that it is computed from.
Max pooling reads no more of its input than sizes and memory order: its gradient takes the place of
a tensor without values, which stands for the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit.ownership import Ownership
from oocdnn.torch.limit.table import Signature, current, looked_up

IN_PLACE = 2  # parts of such an operation in place; 1 is as PyTorch has it

# The nodes that run each operation for a first derivative.
_NODES = {
    "elu_backward": ("EluBackward0", "EluBackward1"),
    "gelu_backward": ("GeluBackward0",),
    "hardsigmoid_backward": ("HardsigmoidBackward0",),
    "hardtanh_backward": ("HardtanhBackward0", "HardtanhBackward1"),
    "leaky_relu_backward": ("LeakyReluBackward0", "LeakyReluBackward1"),
    "sigmoid_backward": ("SigmoidBackward0",),
    "silu_backward": ("SiluBackward0",),
    "softplus_backward": ("SoftplusBackward0",),
    "tanh_backward": ("TanhBackward0",),
    "threshold_backward": ("ReluBackward0", "ThresholdBackward0", "ThresholdBackward1"),
}
_POOLS = ("MaxPool2DWithIndicesBackward0",)

owned, owned_named = Ownership(), Ownership()  # called without and with named arguments
owned_input = Ownership()

_POOL = "max_pool2d_with_indices_backward"
_POOLING = torch.ops.aten.max_pool2d_with_indices_backward.grad_input


_OPERATIONS = {name: getattr(torch.ops.aten, name).grad_input for name in _NODES}


def _kernel(name: str) -> Callable[..., Tensor]:
    nodes = _NODES[name]

    def kernel(dy: Tensor, *others: Any, **named: Any) -> Tensor:
        alone = owned_named(dy) if named else owned(dy)
        table = current()
        y = next(one for one in others if isinstance(one, Tensor))

        def run(parts: int) -> Tensor:
            # A gradient that nobody else holds, of the step's own backward pass.
            over = parts > 1 and alone and table is not None and table.may_overwrite(nodes)
            over = over and _alike(dy, y)
            dx = dy if over else dy.new_empty(0)
            own = _own(dy.device.type)
            _OPERATIONS[name].redispatch(own, dy, *others, **named, grad_input=dx)
            return dx

        def key() -> tuple[Signature, int]:
            numbers = tuple([one for one in others if not isinstance(one, Tensor)])
            signature = (name, dy.get_device(), dy.dtype, dy.size(), dy.stride(), y.stride())
            return (*signature, numbers, *named.items()), IN_PLACE

        return looked_up(dy, run, key)

    return kernel


def _pool(dy: Tensor, x: Tensor, *others: Any) -> Tensor:
    alone, table = owned_input(x), current()

    def run(parts: int) -> Tensor:
        over = parts > 1 and alone and table is not None and table.may_overwrite(_POOLS)
        dx = x if over and in_one_order(x) else x.new_empty(0)
        _POOLING.redispatch(_own(x.device.type), dy, x, *others, grad_input=dx)
        return dx

    def key() -> tuple[Signature, int]:
        return pool_signature(x.get_device(), x.dtype, x.size(), x.stride()), IN_PLACE

    return looked_up(x, run, key)


def pool_signature(
    place: int, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]
) -> Signature:
    """Signature of the gradient of max pooling; the arguments describe the pool's input."""
    return _POOL, place, dtype, tuple(size), tuple(stride)


def in_one_order(x: Tensor) -> bool:
    """Whether a tensor is dense in one of two memory orders, and not in both."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return bool(x.is_contiguous() != last)


def _alike(dy: Tensor, y: Tensor) -> bool:
    """Whether PyTorch would lay the operation's result out as `dy`."""
    return bool(dy.dtype == y.dtype and dy.size() == y.size() and dy.stride() == y.stride())


@cache
def _own(device: str) -> Any:
    """PyTorch's own kernels for a device."""
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, device.upper()))


KERNELS = {**{name: _kernel(name) for name in _NODES}, _POOL: _pool}
