"""Convolutions in parts along the batch, forward and backward.

The operands, results and workspace of one convolution together may pass the limit. In parts the
workspace is that of one part. Results and the input's gradient have the arithmetic of the whole;
the filter's gradient is a sum over the parts, in float32 where it is narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit.ownership import Ownership
from oocdnn.torch.limit.table import Result, Signature, current

MOST = 16  # parts of a convolution

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of input, filter and bias

_FORWARD = torch.ops.aten.convolution.default
_BACKWARD = torch.ops.aten.convolution_backward.default
# PyTorch's own kernels of both, which serve every device.
_OWN = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
_NARROW = (torch.float16, torch.bfloat16)

owned = Ownership()


def _convolution(x: Tensor, w: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    def run(parts: int) -> Tensor:
        return forward(parts, x, w, bias, *options)

    return _looked_up("forward", run, x, w, options)


def _convolution_backward(
    dy: Tensor, x: Tensor, w: Tensor, bias: Sequence[int] | None, *options: Any
) -> Gradients:
    alone = owned(dy)

    def run(parts: int) -> Gradients:
        table = current()
        over = alone and table is not None and table.may_overwrite()
        return backward(parts, dy, x, w, bias, *options, over=over)

    return _looked_up("backward", run, x, w, options)


KERNELS: dict[str, Callable[..., Any]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}


def _looked_up(
    direction: str, run: Callable[[int], Result], x: Tensor, w: Tensor, options: Sequence[Any]
) -> Result:
    table = current()
    with torch.cuda.device_of(x):  # as PyTorch's kernel for CUDA does
        if table is None:
            return run(1)
        with torch._C.DisableTorchFunction():  # the program's modes see nothing of this
            most = min(MOST, x.size(0)) if x.dim() else 1
            return table.run(_signature(direction, x, w, options), most, run)


def _signature(direction: str, x: Tensor, w: Tensor, options: Sequence[Any]) -> Signature:
    numbers = tuple([tuple(one) if isinstance(one, list) else one for one in options])
    place = x.get_device()
    return direction, place, x.dtype, x.size(), x.stride(), w.size(), w.stride(), numbers


def forward(parts: int, x: Tensor, w: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    """`aten.convolution` with its arguments, in so many parts at most."""
    if parts == 1 or x.size(0) < 2:
        whole: Tensor = _FORWARD.redispatch(_OWN, x, w, bias, *options)
        return whole
    y: Tensor | None = None
    for rows in _rows(x.size(0), parts):
        y = _written(y, x.size(0), rows, _FORWARD.redispatch(_OWN, x[rows], w, bias, *options))
    assert y is not None
    return y


def backward(
    parts: int,
    dy: Tensor,
    x: Tensor,
    w: Tensor,
    bias: Sequence[int] | None,
    *options: Any,
    over: bool = False,
) -> Gradients:
    """`aten.convolution_backward` with its arguments, in so many parts at most. `over`: nobody else
    holds `dy`, and in parts the input's gradient takes its place where both are laid out alike."""
    if parts == 1 or x.size(0) < 2:
        gradients: Gradients = _BACKWARD.redispatch(_OWN, dy, x, w, bias, *options)
        return gradients
    dx: Tensor | None = None
    sums: list[Tensor | None] = [None, None]
    for rows in _rows(x.size(0), parts):
        one, *others = _BACKWARD.redispatch(_OWN, dy[rows], x[rows], w, bias, *options)
        if one is not None:
            if dx is None and over and _takes_place(one, dy):
                dx = dy
            dx = _written(dx, x.size(0), rows, one)
        del one
        sums = [_added(total, more) for total, more in zip(sums, others, strict=True)]
    dw, db = (
        None if total is None else total.to(kind)
        for total, kind in zip(sums, (w.dtype, dy.dtype), strict=True)
    )
    return dx, dw, db


def _rows(batch: int, parts: int) -> Iterator[slice]:
    step = -(-batch // parts)
    return (slice(begin, min(begin + step, batch)) for begin in range(0, batch, step))


def _takes_place(part: Tensor, whole: Tensor) -> bool:
    """Whether results of which this is a part are laid out as `whole`."""
    alike = part.dtype == whole.dtype and part.size()[1:] == whole.size()[1:]
    return bool(alike and part.stride() == whole.stride())


def _written(whole: Tensor | None, batch: int, rows: slice, part: Tensor) -> Tensor:
    """The whole with a part's rows; the first part gives its layout."""
    if whole is None:
        size = (batch, *part.size()[1:])
        dense = part.stride(0) * part.size(0) == part.numel()  # one sample after the other
        whole = part.new_empty_strided(size, part.stride()) if dense else part.new_empty(size)
    whole[rows].copy_(part)
    return whole


def _added(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    if more is None:
        return None
    if total is None:
        return more.float() if more.dtype in _NARROW else more
    return total.add_(more)
