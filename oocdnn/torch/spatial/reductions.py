"""Sums, means and extremes of split tensors. Over the split axis they are plain tensors that each
process has."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from oocdnn.torch.spatial.exchange import once_differentiable, summed
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.tensor import (
    SpatialTensor,
    axis_of,
    implements,
    implements_each,
    local,
    wrap,
)

HALVES = (torch.float16, torch.bfloat16)


def _dims(dim: Any, ndim: int) -> tuple[int, ...]:
    given = (dim,) if isinstance(dim, int) else tuple(dim or ())
    return tuple(axis_of(d, ndim) for d in given) or tuple(range(ndim))


def _kept(value: Tensor, layout: Layout, dims: Sequence[int], ndim: int, keepdim: bool) -> Any:
    """The result of a reduction over other axes than the split one."""
    behind = 0 if keepdim else sum(dim > layout.dim(ndim) for dim in dims)
    return wrap(value, Layout(layout.group, layout.axis + behind, layout.lengths))


def _sum(x: SpatialTensor, dim: Any, keepdim: bool, dtype: Any, mean: bool) -> Any:
    layout, rows = x.spatial_layout, local(x)
    dims = _dims(dim, rows.ndim)
    if layout.dim(rows.ndim) not in dims:
        of = torch.mean if mean else torch.sum
        return _kept(of(rows, dims, keepdim, dtype=dtype), layout, dims, rows.ndim, keepdim)
    found = dtype or rows.dtype
    wide = torch.float32 if found in HALVES else dtype
    total = summed(rows.sum(dims, keepdim, dtype=wide), layout.group)
    if mean:
        whole = layout.whole(rows.shape)
        total = total / torch.Size(whole[d] for d in dims).numel()
    return total.to(found) if wide is torch.float32 and found in HALVES else total


@implements(torch.sum, torch.Tensor.sum)
def _sum_of(
    input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None
) -> Any:
    return _sum(input, axis if dim is None else dim, keepdim, dtype, mean=False)


@implements(torch.mean, torch.Tensor.mean)
def mean(
    input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None
) -> Any:
    """That of the whole tensor."""
    return _sum(input, axis if dim is None else dim, keepdim, dtype, mean=True)


class _Extreme(torch.autograd.Function):
    """The largest or smallest elements along dimensions that contain the split axis. Equal ones
    share the gradient, as in torch.amax."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dims: Sequence[int], keepdim: bool, group: Any, op: Any
    ) -> Any:
        largest = op == dist.ReduceOp.MAX
        of = torch.amax if largest else torch.amin
        if x.numel():
            found = of(x, dims, True)
        else:  # what changes no extreme
            info = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
            shape = [1 if dim in dims else size for dim, size in enumerate(x.shape)]
            found = x.new_full(shape, info.min if largest else info.max)
        found = found.contiguous()
        undefined = found.isnan().to(torch.uint8)
        dist.all_reduce(undefined, dist.ReduceOp.MAX, group=group)
        dist.all_reduce(found, op, group=group)
        if x.is_floating_point():
            found.masked_fill_(undefined.bool(), torch.nan)
        ctx.save_for_backward(x == found)
        ctx.dims, ctx.group = dims, group
        shape = [size for dim, size in enumerate(found.shape) if keepdim or dim not in dims]
        return found.view(shape).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        (chosen,) = ctx.saved_tensors
        count = chosen.sum(ctx.dims, keepdim=True)
        dist.all_reduce(count, group=ctx.group)
        return g.view(count.shape) / count * chosen, None, None, None, None


@implements_each(torch.amax, torch.amin, torch.Tensor.amax, torch.Tensor.amin)
def _extreme(function: Any, input: Any, dim: Any = (), keepdim: bool = False) -> Any:
    layout, rows = input.spatial_layout, local(input)
    dims = _dims(dim, rows.ndim)
    if layout.dim(rows.ndim) not in dims:
        return _kept(function(rows, dims, keepdim), layout, dims, rows.ndim, keepdim)
    op = dist.ReduceOp.MAX if function.__name__ == "amax" else dist.ReduceOp.MIN
    return _Extreme.apply(rows, dims, keepdim, layout.group, op)


@implements_each(torch.max, torch.min, torch.Tensor.max, torch.Tensor.min)
def _max(function: Any, input: Any, *more: Any, **options: Any) -> Any:
    if more or options:
        raise NotImplementedError(
            f"{function.__name__} of split tensors along an axis or of two: call amax, amin, "
            "maximum or minimum"
        )
    return _extreme(torch.amax if function.__name__ == "max" else torch.amin, input)


@implements_each(torch.all, torch.any, torch.Tensor.all, torch.Tensor.any)
def _all(function: Any, input: Any, *more: Any, **options: Any) -> Tensor:
    if more or options:
        raise NotImplementedError(f"{function.__name__} of split tensors along an axis")
    found = function(local(input)).to(torch.int32)
    op = dist.ReduceOp.MIN if function.__name__ == "all" else dist.ReduceOp.MAX
    dist.all_reduce(found, op, group=input.spatial_layout.group)
    return found.bool()
