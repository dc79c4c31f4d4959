"""The gradients of a convolution with bias, activation and pool, by the separate functions.

Stands in for a fused backward pass: y's gradient is made in host memory, or on the GPU where the
arrays are, out of what the forward pass saved, and goes through the gradient functions. Where an
activation takes its derivative from the values, those are computed anew.
"""

from functools import partial
from typing import Any, NamedTuple

from oocdnn import gradients
from oocdnn._cdefs import Activation, PoolMode
from oocdnn._geometry import Moves, need_shape
from oocdnn._window import forward_extents
from oocdnn.fused import Saved
from oocdnn.nn import _bits, _windows
from oocdnn.nn._modules import module_of
from oocdnn.nn.activation import ELU, Identity, Sigmoid, Swish, Tanh
from oocdnn.nn.convolution import CONVOLUTIONS, add_bias_gradient
from oocdnn.nn.layer import Layer
from oocdnn.nn.parameter import Parameter


class Filter(NamedTuple):
    """What a convolution does, and where the gradients go."""

    weight: Parameter
    bias: Parameter | None
    moves: Moves


def backward(dz: Any, x: Any, saved: Saved, by: Filter, needs_dx: bool) -> Any:
    """Adds to the gradients of weight and bias, and gives dx, or None where it is not needed."""
    need_shape("dz", dz.shape, saved.z_shape, "x, w and the pool")
    dy = _through_activation(_through_pool(dz, saved), x, saved, by)
    w, moves = by.weight.data, by.moves._asdict()
    add_bias_gradient(by.bias, dy)
    by.weight.accumulate(partial(gradients.conv_backward_filter, x, dy, w.shape, **moves))
    return gradients.conv_backward_data(dy, w, x.shape, **moves) if needs_dx else None


def _shape_of_y(saved: Saved) -> tuple[int, ...]:
    extents = forward_extents(saved.call.window, saved.x_shape[2:], saved.w_shape[2:])
    return (saved.x_shape[0], saved.w_shape[0], *extents)


def _through_pool(dz: Any, saved: Saved) -> Any:
    """The gradient of the activation's result; of a max pool only where that is not flat."""
    pool, module = saved.call.pool, module_of("dz", dz)
    if pool is None:
        return dz
    if pool.mode != PoolMode.MAX:
        return _windows.spread(module, dz, pool, _shape_of_y(saved))
    winners = _bits.winners(module, saved.bits, saved.call, saved.z_shape)
    return _windows.unpool(module, dz, winners, pool, _shape_of_y(saved))


def _through_activation(da: Any, x: Any, saved: Saved, by: Filter) -> Any:
    """The gradient of what the activation was applied to."""
    call, module = saved.call, module_of("dz", da)
    if call.epilogue.activation == Activation.IDENTITY:
        return da
    if _bits.clips(call):
        if call.pool is not None and call.pool.mode == PoolMode.MAX:
            return da
        alive = _bits.alive(module, saved.bits, call, da.shape, saved.z_shape)
        return module.where(alive != 0, da, da.dtype.type(0))
    convolve = CONVOLUTIONS[len(by.weight.data.shape) - 2]
    bias = None if by.bias is None else by.bias.data
    layer = _smooth(call.epilogue.activation, call.epilogue.parameter)
    layer.forward(module.asarray(convolve(x, by.weight.data, bias, **by.moves._asdict())))
    return layer.backward(da)


def _smooth(activation: Activation, parameter: float) -> Layer:
    if activation == Activation.ELU:
        return ELU(parameter)
    if activation == Activation.SWISH:
        return Swish(parameter)
    return {Activation.SIGMOID: Sigmoid, Activation.TANH: Tanh}.get(activation, Identity)()
