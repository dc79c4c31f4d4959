"""The gradients of a convolution with bias, activation and pool.

In one pass over dz where the activation has flat parts or none. Where it takes its derivative from
the values, these are computed anew, y's gradient is made in host memory, or on the GPU where the
arrays are, and goes through the separate functions.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from oocdnn import fused, gradients
from oocdnn._cdefs import Activation, PoolMode
from oocdnn._geometry import Moves, need_shape
from oocdnn.fused import Need, Saved
from oocdnn.nn import _bits, _windows
from oocdnn.nn._modules import module_of
from oocdnn.nn.activation import ELU, Sigmoid, Swish, Tanh
from oocdnn.nn.convolution import CONVOLUTIONS, add_bias_gradient
from oocdnn.nn.layer import Layer
from oocdnn.nn.parameter import Parameter

# The sums that gradients are added to, each with the beta of what it holds: 1, or 0 for nothing.
Sums = Mapping[Need, tuple[Any, float]]


class Filter(NamedTuple):
    """What a convolution does, and where the gradients go."""

    weight: Parameter
    bias: Parameter | None
    moves: Moves


def backward(dz: Any, x: Any, saved: Saved, by: Filter, needs_dx: bool) -> Any:
    """Adds to the gradients of weight and bias, and gives dx, or None where it is not needed."""
    need_shape("dz", dz.shape, saved.z_shape, "x, w and the pool")
    if saved.call.epilogue.activation in fused.SERVED:
        return _fused(dz, x, saved, by, needs_dx)
    return _separate(_gradient_of_y(dz, x, saved, by), x, by, needs_dx)


def _fused(dz: Any, x: Any, saved: Saved, by: Filter, needs_dx: bool) -> Any:
    parameters: dict[Need, Parameter] = {"dw": by.weight}
    if by.bias is not None:
        parameters["db"] = by.bias
    with ExitStack() as stack:
        sums = {need: stack.enter_context(one.summing()) for need, one in parameters.items()}
        return _fused_into(sums, partial(_compute, dz, saved, x, by.weight.data), needs_dx)


def _compute(
    dz: Any, saved: Saved, x: Any, w: Any, needs: tuple[Need, ...], outs: Any, beta: float = 0.0
) -> Any:
    """Those gradients, in that order."""
    return fused.conv_bias_act_pool_backward(dz, saved, x, w, needs=needs, out=outs, beta=beta)


def _fused_into(sums: Sums, compute: Callable[..., Any], needs_dx: bool) -> Any:
    """In one pass for all. Sums of 16 bits are rounded once, by a call for each of them."""
    dx: tuple[Need, ...] = ("dx",) if needs_dx else ()
    added = any(beta for _, beta in sums.values())
    if added and any(out.dtype.itemsize == 2 for out, _ in sums.values()):
        for need, (out, beta) in sums.items():
            compute((need,), {need: out}, beta)
        return compute(dx, {})[0] if needs_dx else None
    outs = {need: out for need, (out, beta) in sums.items() if not beta}
    gradients = compute((*sums, *dx), outs)
    for (out, beta), gradient in zip(sums.values(), gradients, strict=False):
        if beta:
            out += gradient
    return gradients[-1] if needs_dx else None


def _separate(dy: Any, x: Any, by: Filter, needs_dx: bool) -> Any:
    w, moves = by.weight.data, by.moves._asdict()
    add_bias_gradient(by.bias, dy)
    by.weight.accumulate(partial(gradients.conv_backward_filter, x, dy, w.shape, **moves))
    return gradients.conv_backward_data(dy, w, x.shape, **moves) if needs_dx else None


def _gradient_of_y(dz: Any, x: Any, saved: Saved, by: Filter) -> Any:
    """By what the pool has saved, and the derivative at values that are computed anew."""
    convolve, module = CONVOLUTIONS[len(by.weight.data.shape) - 2], module_of("dz", dz)
    bias = None if by.bias is None else by.bias.data
    layer = _activation(saved.call.epilogue.activation, saved.call.epilogue.parameter)
    layer.forward(module.asarray(convolve(x, by.weight.data, bias, **by.moves._asdict())))
    return layer.backward(_through_pool(dz, saved))


def _through_pool(dz: Any, saved: Saved) -> Any:
    """The gradient of the activation's result."""
    pool, module = saved.call.pool, module_of("dz", dz)
    if pool is None:
        return dz
    if pool.mode != PoolMode.MAX:
        return _windows.spread(module, dz, pool, saved.y_shape)
    winners = _bits.winners(module, saved.bits, pool, saved.z_shape)
    return _windows.unpool(module, dz, winners, pool, saved.y_shape)


def _activation(kind: Activation, parameter: float) -> Layer:
    if kind == Activation.ELU:
        return ELU(parameter)
    if kind == Activation.SWISH:
        return Swish(parameter)
    return Sigmoid() if kind == Activation.SIGMOID else Tanh()
