"""The derivatives of the operators, which are operators themselves, as often as one likes.

A convolution is linear in each operand, so that what belongs to it is a triple: y = conv(x, w),
dx = conv_backward_data(dy, w), dw = conv_backward_filter(x, dy), and each one's derivatives are the
other two.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from oocdnn import _stack
from oocdnn.torch import _contexts
from oocdnn.torch._operators import (
    conv,
    conv_backward_data,
    conv_backward_filter,
    conv_transpose,
)


class _Place:
    """What a gradient of a tensor has to be like."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.device, self.dtype = tensor.shape, tensor.device, tensor.dtype


def _keep(ctx: Any, first: Tensor, second: Tensor, moves: Sequence[Any]) -> None:
    """Saves of the two operands what the derivatives read: each needs the other one."""
    needs = ctx.needs_input_grad
    ctx.save_for_backward(first if needs[1] else None, second if needs[0] else None)
    ctx.places = _Place(first), _Place(second)
    ctx.moves = tuple(moves)
    ctx.context = _stack.entered_context()


def _bias_gradient(dy: Tensor, place: _Place) -> Tensor:
    """Summed where dy lies, which then does not cross the wire for it."""
    return dy.sum((0, *range(2, dy.ndim)), dtype=place.dtype).to(place.device)


def _padded_with_none(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    return (*gradients, *(None,) * (len(ctx.needs_input_grad) - len(gradients)))


def _keep_conv(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, b, *moves, _device = inputs
    _keep(ctx, x, w, moves)
    ctx.bias = None if b is None else _Place(b)


def _differentiate_conv(ctx: Any, dy: Tensor) -> Any:
    (x, w), (to_x, to_w), needs = ctx.saved_tensors, ctx.places, ctx.needs_input_grad
    dx = dw = db = None
    with _contexts.lend(ctx.context):
        if needs[0]:
            dx = conv_backward_data(dy, w, to_x.shape, *ctx.moves, to_x.device)
        if needs[1]:
            dw = conv_backward_filter(x, dy, to_w.shape, *ctx.moves, to_w.device)
    if needs[2]:
        db = _bias_gradient(dy, ctx.bias)
    return _padded_with_none(ctx, dx, dw, db)


def _keep_transposed(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, b, _output_padding, *moves, _device = inputs
    _keep(ctx, x, w, moves)
    ctx.bias = None if b is None else _Place(b)


def _keep_data(ctx: Any, inputs: Any, output: Any) -> None:
    dy, w, _x_shape, *moves, _device = inputs
    _keep(ctx, dy, w, moves)
    ctx.bias = None


def _differentiate_transposed(ctx: Any, dy: Tensor) -> Any:
    """Of conv_backward_data too, which has no bias."""
    (x, w), (to_x, to_w), needs = ctx.saved_tensors, ctx.places, ctx.needs_input_grad
    dx = dw = db = None
    with _contexts.lend(ctx.context):
        if needs[0]:
            dx = conv(dy, w, None, *ctx.moves, to_x.device)
        if needs[1]:
            dw = conv_backward_filter(dy, x, to_w.shape, *ctx.moves, to_w.device)
    if ctx.bias is not None and needs[2]:
        db = _bias_gradient(dy, ctx.bias)
    return _padded_with_none(ctx, dx, dw, db)


def _keep_filter(ctx: Any, inputs: Any, output: Any) -> None:
    x, dy, _w_shape, *moves, _device = inputs
    _keep(ctx, x, dy, moves)


def _differentiate_filter(ctx: Any, g: Tensor) -> Any:
    """`g` is the gradient with respect to dw, and takes the place of w."""
    (x, dy), (to_x, to_dy), needs = ctx.saved_tensors, ctx.places, ctx.needs_input_grad
    for_x = for_dy = None
    with _contexts.lend(ctx.context):
        if needs[0]:
            for_x = conv_backward_data(dy, g, to_x.shape, *ctx.moves, to_x.device)
        if needs[1]:
            for_dy = conv(x, g, None, *ctx.moves, to_dy.device)
    return _padded_with_none(ctx, for_x, for_dy)


conv.register_autograd(_differentiate_conv, setup_context=_keep_conv)
conv_transpose.register_autograd(_differentiate_transposed, setup_context=_keep_transposed)
conv_backward_data.register_autograd(_differentiate_transposed, setup_context=_keep_data)
conv_backward_filter.register_autograd(_differentiate_filter, setup_context=_keep_filter)

__all__ = ["conv", "conv_transpose"]
