"""The convolutions as operators of torch, `torch.ops.oocdnn.*`, without their derivatives.

Each is a function of oocdnn with plain arguments. `device` says where the result goes, wherever the
operands are; padding is `before` and `after` each axis.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import _set_fwd_grad_enabled

import oocdnn
from oocdnn._calls import call_geometry
from oocdnn.torch import _batching, _contexts
from oocdnn.torch._tensors import empty_in_order, empty_result, walkable

Ints = Sequence[int]

_FORWARD = {1: oocdnn.conv1d, 2: oocdnn.conv2d, 3: oocdnn.conv3d}
_TRANSPOSED = {
    1: oocdnn.conv_transpose1d,
    2: oocdnn.conv_transpose2d,
    3: oocdnn.conv_transpose3d,
}
_MOVES = "int[] stride, int[] before, int[] after, int[] dilation, int groups"


def _run(
    function: Any,
    operands: Sequence[Any],
    shape: Ints,
    device: torch.device,
    keywords: dict[str, Any],
    keep_order: bool = True,
) -> Tensor:
    """Calls a function of oocdnn whose result has `shape` and follows the first operand. The levels
    above have recorded the derivatives."""
    leader = operands[0]
    with _contexts.of_call(), _set_fwd_grad_enabled(False):
        out = None
        if device != leader.device:
            out = empty_result(leader, shape, device, keep_order)
        result: Tensor = function(*operands, out=out, **keywords)
    return result


def _seen(*tensors: Tensor | None) -> list[Any]:
    return [None if one is None else walkable(one.detach()) for one in tensors]


def _keywords(stride: Ints, before: Ints, after: Ints, dilation: Ints, groups: int) -> Any:
    """How the filter moves, as the functions of oocdnn are told."""
    padding = tuple(zip(before, after, strict=True))
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def _transposed_keywords(output_padding: Ints, moves: Sequence[Any]) -> Any:
    return {"output_padding": output_padding, **_keywords(*moves)}


def _shape(sizes: Any, x: Tensor, w: Tensor, keywords: dict[str, Any]) -> Any:
    """Of the result, by one of the functions of `call_geometry`."""
    return sizes(x.ndim - 2, tuple(x.shape), tuple(w.shape), *keywords.values()).shape


def _conv(x: Tensor, w: Tensor, b: Tensor | None, *arguments: Any) -> Tensor:
    *moves, device = arguments
    keywords = _keywords(*moves)
    shape = _shape(call_geometry.forward, x, w, keywords)
    return _run(_FORWARD[x.ndim - 2], _seen(x, w, b), shape, device, keywords)


def _conv_fake(x: Tensor, w: Tensor, b: Tensor | None, *arguments: Any) -> Tensor:
    *moves, device = arguments
    shape = _shape(call_geometry.of_symbols(call_geometry.forward), x, w, _keywords(*moves))
    return empty_in_order(walkable(x), shape, device)


def _conv_transpose(x: Tensor, w: Tensor, b: Tensor | None, extra: Ints, *arguments: Any) -> Tensor:
    *moves, device = arguments
    keywords = _transposed_keywords(extra, moves)
    shape = _shape(call_geometry.transposed, x, w, keywords)
    return _run(_TRANSPOSED[x.ndim - 2], _seen(x, w, b), shape, device, keywords)


def _conv_transpose_fake(
    x: Tensor, w: Tensor, b: Tensor | None, extra: Ints, *arguments: Any
) -> Tensor:
    *moves, device = arguments
    sizes = call_geometry.of_symbols(call_geometry.transposed)
    shape = _shape(sizes, x, w, _transposed_keywords(extra, moves))
    return empty_in_order(walkable(x), shape, device)


def _conv_backward_data(dy: Any, w: Any, x_shape: Ints, *arguments: Any) -> Tensor:
    *moves, device = arguments
    keywords = {"x_shape": tuple(x_shape), **_keywords(*moves)}
    return _run(oocdnn.conv_backward_data, _seen(dy, w), x_shape, device, keywords)


def _conv_backward_data_fake(dy: Any, w: Any, x_shape: Ints, *arguments: Any) -> Tensor:
    return empty_in_order(walkable(dy), x_shape, arguments[-1])


def _conv_backward_filter(x: Any, dy: Any, w_shape: Ints, *arguments: Any) -> Tensor:
    *moves, device = arguments
    keywords = {"w_shape": tuple(w_shape), **_keywords(*moves)}
    function, operands = oocdnn.conv_backward_filter, _seen(x, dy)
    return _run(function, operands, w_shape, device, keywords, keep_order=False)


def _conv_backward_filter_fake(x: Any, dy: Any, w_shape: Ints, *arguments: Any) -> Tensor:
    return x.new_empty(w_shape, device=arguments[-1])


def _operator(name: str, operands: str, function: Any, fake: Any) -> Any:
    schema = f"({operands}, {_MOVES}, Device device) -> Tensor"
    made = torch.library.custom_op(f"oocdnn::{name}", function, mutates_args=(), schema=schema)
    made.register_fake(fake)
    return made


conv = _operator("conv", "Tensor x, Tensor w, Tensor? b", _conv, _conv_fake)
conv_transpose = _operator(
    "conv_transpose",
    "Tensor x, Tensor w, Tensor? b, int[] output_padding",
    _conv_transpose,
    _conv_transpose_fake,
)
conv_backward_data = _operator(
    "conv_backward_data",
    "Tensor dy, Tensor w, SymInt[] x_shape",
    _conv_backward_data,
    _conv_backward_data_fake,
)
conv_backward_filter = _operator(
    "conv_backward_filter",
    "Tensor x, Tensor dy, SymInt[] w_shape",
    _conv_backward_filter,
    _conv_backward_filter_fake,
)

_batching.register(conv, samples=True)
_batching.register(conv_transpose, samples=True)
_batching.register(conv_backward_data, samples=True, scale=_batching.first_shape)
_batching.register(conv_backward_filter, samples=False)
