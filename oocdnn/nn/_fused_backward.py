"""The gradients of a convolution with bias, activation and pool, in one pass over dz."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from oocdnn import fused
from oocdnn._calls.call_geometry import need_shape
from oocdnn.arrays import view
from oocdnn.fused import Need, Saved
from oocdnn.nn.parameter import Parameter

# The sums that gradients are added to, each with the beta of what it holds: 1, or 0 for nothing.
Sums = Mapping[Need, tuple[Any, float]]


class Filter(NamedTuple):
    """Of a convolution; where their gradients go."""

    weight: Parameter
    bias: Parameter | None


def backward(dz: Any, x: Any, saved: Saved, by: Filter, needs_dx: bool) -> Any:
    """Adds to the gradients of weight and bias, and gives dx, or None where it is not needed."""
    need_shape("dz", view("dz", dz).shape, saved.z_shape, "x, w and the pool")
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
