"""The backward pass of a convolution in parts along the batch.

Its operands, gradients and workspace together may pass the limit. In parts the workspace is that of
one part. The input's gradient is the same as of the whole; the filter's is a sum over the parts, in
float32 where it is narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

NODE = "ConvolutionBackward0"
_BACKWARD = torch.ops.aten.convolution_backward.default


class Parted(Tensor):
    """A convolution's saved input as autograd gets it: only `convolution_backward` sees the parts.

    Every other operation gets the plain tensor.
    """

    whole: Tensor
    parts: int

    @staticmethod
    def __new__(cls, whole: Tensor, parts: int) -> Parted:
        made: Parted = torch.Tensor._make_wrapper_subclass(
            cls,
            whole.size(),
            strides=whole.stride(),
            dtype=whole.dtype,
            layout=whole.layout,
            device=whole.device,
        )
        made.whole, made.parts = whole, parts
        return made

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, given: Sequence[Any] = (), named: Any = None
    ) -> Any:
        if operation is torch.ops.aten.detach.default:
            return Parted(given[0].whole, given[0].parts)
        if operation is _BACKWARD and isinstance(given[1], Parted):
            plain = [_plain(one) for one in given]
            return backward(given[1].parts, *plain)
        plain, kept = torch.utils._pytree.tree_map(_plain, (tuple(given), named or {}))
        return operation(*plain, **kept)

    __torch_function__ = torch._C._disabled_torch_function_impl


def _plain(one: Any) -> Any:
    return one.whole if isinstance(one, Parted) else one


def backward(
    parts: int,
    dy: Tensor,
    x: Tensor,
    w: Tensor,
    bias: Sequence[int] | None,
    *options: Any,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """`aten.convolution_backward` with its arguments, in so many parts at most."""
    mask = options[-1]
    batch, dx = x.size(0), None
    sums: list[Tensor | None] = [None, None]
    step = -(-batch // parts)
    for begin in range(0, batch, step):
        rows = slice(begin, min(begin + step, batch))
        one, *others = _BACKWARD(dy[rows], x[rows], w, bias, *options)
        if mask[0]:
            dx = torch.empty_like(x) if dx is None else dx
            dx[rows].copy_(one)
        del one
        sums = [_added(total, more) for total, more in zip(sums, others, strict=True)]
    dw, db = (
        None if total is None else total.to(kind)
        for total, kind in zip(sums, (w.dtype, dy.dtype), strict=True)
    )
    return dx, dw, db


_NARROW = (torch.float16, torch.bfloat16)


def _added(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    if more is None:
        return None
    if total is None:
        return more.float() if more.dtype in _NARROW else more
    return total.add_(more)
