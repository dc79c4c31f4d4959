"""The derivatives of the operators, which are operators themselves, of any order and in both modes.

A convolution is linear in each operand, so that what belongs to it is a triple: y = conv(x, w),
dx = conv_backward_data(dy, w), dw = conv_backward_filter(x, dy), and each one's derivatives are the
other two. Its tangent is the sum of two of its own kind, conv(tx, w) + conv(x, tw), and that of the
bias.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from oocdnn._calls import stack
from oocdnn.torch import _contexts
from oocdnn.torch._autograd import Derivatives, in_forward_mode, register
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


def _keep(ctx: Any, inputs: Sequence[Any], moves: Sequence[Any], output: Tensor) -> None:
    """Saves of the two operands what the derivatives read: each needs the other one. A tangent is
    computed before the call returns and reads both."""
    first, second, *others = inputs
    needs = ctx.needs_input_grad
    ctx.save_for_backward(first if needs[1] else None, second if needs[0] else None)
    ctx.places = _Place(first), _Place(second)
    ctx.bias = None
    ctx.moves = tuple(moves)
    ctx.context = stack.entered_context()
    if in_forward_mode():
        ctx.save_for_forward(first, second)
        ctx.others, ctx.result = tuple(others), _Place(output)


def _keep_with_bias(ctx: Any, inputs: Sequence[Any], moves: Sequence[Any], output: Tensor) -> None:
    x, w, b, *others = inputs
    _keep(ctx, (x, w, *others), moves, output)
    ctx.bias = None if b is None else _Place(b)


def _bias_gradient(dy: Tensor, place: _Place) -> Tensor:
    """Summed where dy lies, which then does not cross the wire for it."""
    return dy.sum((0, *range(2, dy.ndim)), dtype=place.dtype).to(place.device)


def _padded_with_none(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    return (*gradients, *(None,) * (len(ctx.needs_input_grad) - len(gradients)))


def _keep_conv(ctx: Any, inputs: Any, output: Any) -> None:
    _keep_with_bias(ctx, inputs, inputs[3:-1], output)


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
    _keep_with_bias(ctx, inputs, inputs[4:-1], output)


def _keep_gradient(ctx: Any, inputs: Any, output: Any) -> None:
    """For conv_backward_data and conv_backward_filter."""
    _keep(ctx, inputs, inputs[3:-1], output)


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


def _tangent(operator: Any) -> Any:
    """The tangent of an operator of two operands."""

    def tangent(ctx: Any, of_first: Tensor | None, of_second: Tensor | None, *_: Any) -> Any:
        first, second = ctx.saved_tensors
        return _sum(
            None if of_first is None else operator(of_first, second, *ctx.others),
            None if of_second is None else operator(first, of_second, *ctx.others),
        )

    return tangent


def _tangent_with_bias(operator: Any) -> Any:
    """The tangent of an operator of two operands and a bias."""
    of_operands = _tangent(lambda first, second, *others: operator(first, second, None, *others))

    def tangent(ctx: Any, of_x: Any, of_w: Any, of_b: Tensor | None, *_: Any) -> Any:
        found = of_operands(ctx, of_x, of_w)
        if of_b is None:
            return found
        result = ctx.result
        row = of_b.to(result.device, result.dtype).reshape(-1, *(1,) * (len(result.shape) - 2))
        return row.expand(result.shape).clone() if found is None else found + row

    return tangent


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


for _operator, _keeps, _differentiate, _tangents in (
    (conv, _keep_conv, _differentiate_conv, _tangent_with_bias),
    (conv_transpose, _keep_transposed, _differentiate_transposed, _tangent_with_bias),
    (conv_backward_data, _keep_gradient, _differentiate_transposed, _tangent),
    (conv_backward_filter, _keep_gradient, _differentiate_filter, _tangent),
):
    register(_operator, Derivatives(_keeps, _differentiate, _tangents(_operator)))

__all__ = ["conv", "conv_transpose"]
