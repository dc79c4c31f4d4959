"""Convolutions in parts along the batch, forward and backward.

The operands, results and workspace of one convolution together may pass the limit. In parts the
workspace is that of one part. Results and the input's gradient have the arithmetic of the whole;
the filter's gradient is a sum over the parts, in float32 where it is narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit.ownership import Ownership
from oocdnn.torch.limit.table import Signature, current, looked_up

MOST = 64  # parts of a convolution

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of input, filter and bias

_FORWARD = torch.ops.aten.convolution.default
_BACKWARD = torch.ops.aten.convolution_backward.default
# PyTorch's own kernels of both, which serve every device.
_OWN = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
_NARROW = (torch.float16, torch.bfloat16)

owned = Ownership()

_NODES = ("ConvolutionBackward0",)  # of a first derivative


def _convolution(x: Tensor, w: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    def run(parts: int) -> Tensor:
        return forward(parts, x, w, bias, *options)

    return looked_up(x, run, lambda: _key("forward", x, w, options))


def _convolution_backward(
    dy: Tensor, x: Tensor, w: Tensor, bias: Sequence[int] | None, *options: Any
) -> Gradients:
    alone, progress = owned(dy), Progress()

    def run(parts: int) -> Gradients:
        table = current()
        over = alone and table is not None and table.may_overwrite(_NODES)
        return backward(parts, dy, x, w, bias, *options, over=over, progress=progress)

    return looked_up(x, run, lambda: _key("backward", x, w, options))


KERNELS: dict[str, Callable[..., Any]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}


def _key(direction: str, x: Tensor, w: Tensor, options: Sequence[Any]) -> tuple[Signature, int]:
    numbers = tuple([tuple(one) if isinstance(one, list) else one for one in options])
    place, most = x.get_device(), min(MOST, x.size(0)) if x.dim() else 1
    return (direction, place, x.dtype, x.size(), x.stride(), w.size(), w.stride(), numbers), most


def forward(parts: int, x: Tensor, w: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    """`aten.convolution` with its arguments, in so many parts at most."""
    if parts == 1 or x.size(0) < 2:
        whole: Tensor = _FORWARD.redispatch(_OWN, x, w, bias, *options)
        return whole
    y: Tensor | None = None
    for rows in _rows(x.size(0), parts):
        part = _FORWARD.redispatch(_OWN, x[rows], w, bias, *options)
        y = _whole(part, x.size(0)) if y is None else y
        y[rows].copy_(part)
        del part  # it is not there beside the next one
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
    progress: Progress | None = None,
) -> Gradients:
    """`aten.convolution_backward` with its arguments, in so many parts at most. `over`: nobody else
    holds `dy`, and in parts the input's gradient takes its place where both are laid out alike.
    `progress`: of an earlier call with fewer parts, which lacked memory midway: rows that it wrote
    over are there no more."""
    if parts == 1 or x.size(0) < 2:
        gradients: Gradients = _BACKWARD.redispatch(_OWN, dy, x, w, bias, *options)
        return gradients
    done = Progress() if progress is None else progress
    for rows in _rows(x.size(0), parts, done.begin):
        one, *others = _BACKWARD.redispatch(_OWN, dy[rows], x[rows], w, bias, *options)
        # What allocates comes before what changes anything: it may lack memory.
        if one is not None and done.dx is None:
            place = dy if over and _takes_place(one, dy) else None
            done.dx = _whole(one, x.size(0)) if place is None else place
        if rows.start == 0:
            done.sums = [_sum(more) for more in others]
        else:
            for total, more in zip(done.sums, others, strict=True):
                if total is not None:
                    total.add_(more)
        if one is not None:
            assert done.dx is not None
            done.dx[rows].copy_(one)
        done.begin = rows.stop
        del one
    dw, db = (
        None if total is None else total.to(kind)
        for total, kind in zip(done.sums, (w.dtype, dy.dtype), strict=True)
    )
    return done.dx, dw, db


@dataclass
class Progress:
    """Of a gradient in parts: the first row that is not done, the input's gradient, and the sums of
    the filter's and the bias's."""

    begin: int = 0
    dx: Tensor | None = None
    sums: list[Tensor | None] = field(default_factory=lambda: [None, None])


def _rows(batch: int, parts: int, first: int = 0) -> Iterator[slice]:
    step = -(-batch // parts)
    return (slice(begin, min(begin + step, batch)) for begin in range(first, batch, step))


def _takes_place(part: Tensor, whole: Tensor) -> bool:
    """Whether results of which this is a part are laid out as `whole`."""
    alike = part.dtype == whole.dtype and part.size()[1:] == whole.size()[1:]
    return bool(alike and part.stride() == whole.stride())


def _whole(part: Tensor, batch: int) -> Tensor:
    """For the rows of all parts, laid out as the first one."""
    size = (batch, *part.size()[1:])
    dense = part.stride(0) * part.size(0) == part.numel()  # one sample after the other
    return part.new_empty_strided(size, part.stride()) if dense else part.new_empty(size)


def _sum(first: Tensor | None) -> Tensor | None:
    """That further parts are added to."""
    return first.float() if first is not None and first.dtype in _NARROW else first
