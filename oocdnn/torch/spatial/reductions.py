"""Sums, means and extremes of split tensors. Over the split axis they are plain tensors that each
process has."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from oocdnn.torch.spatial.exchange import summed
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.tensor import SpatialTensor, implements, implements_each, local, wrap

_HALVES = (torch.float16, torch.bfloat16)


def _dims(dim: Any, ndim: int) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(ndim))
    given = (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(d % ndim for d in given)


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
    wide = torch.float32 if found in _HALVES else dtype
    total = summed(rows.sum(dims, keepdim, dtype=wide), layout.group)
    if mean:
        whole = layout.whole(rows.shape)
        total = total / torch.Size(whole[d] for d in dims).numel()
    return total.to(found) if wide is torch.float32 and found in _HALVES else total


@implements(torch.sum, torch.Tensor.sum)
def _sum_of(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _sum(input, dim, keepdim, dtype, mean=False)


@implements(torch.mean, torch.Tensor.mean)
def _mean_of(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _sum(input, dim, keepdim, dtype, mean=True)


def adaptive_mean(function: Any, x: SpatialTensor, size: Any, rank: int) -> Tensor:
    """An adaptive average pool to one element; to others only where that leaves the split axis."""
    sizes = (size,) * rank if isinstance(size, int) else tuple(size)
    if any(s != 1 for s in sizes):
        raise NotImplementedError(
            f"{function.__name__} of a split tensor to {sizes}: only to 1 along each axis; call it "
            "on full_tensor()"
        )
    found: Tensor = _sum(x, tuple(range(-rank, 0)), True, None, mean=True)
    return found


class _Extreme(torch.autograd.Function):
    """The largest or smallest of all processes' values. The gradient goes to the processes that
    have it, in equal parts."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: Any, op: Any) -> Tensor:
        found = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(found, op, group=group)
        ctx.group = group
        ctx.save_for_backward(value == found)
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (has,) = ctx.saved_tensors
        count = has.to(torch.int32)
        dist.all_reduce(count, group=ctx.group)
        return g * has / count, None, None


@implements_each(torch.amax, torch.amin, torch.Tensor.amax, torch.Tensor.amin)
def _extreme(function: Any, input: Any, dim: Any = (), keepdim: bool = False) -> Any:
    layout, rows = input.spatial_layout, local(input)
    dims = _dims(dim, rows.ndim)
    if layout.dim(rows.ndim) not in dims:
        return _kept(function(rows, dims, keepdim), layout, dims, rows.ndim, keepdim)
    largest = function.__name__ == "amax"
    if not rows.shape[layout.axis]:  # what changes no extreme
        info = torch.finfo(rows.dtype) if rows.is_floating_point() else torch.iinfo(rows.dtype)
        lowest, highest = (
            (-torch.inf, torch.inf) if rows.is_floating_point() else (info.min, info.max)
        )
        fill = lowest if largest else highest
        sizes = list(rows.shape)
        sizes[layout.axis] = 1
        rows = rows.new_full(sizes, fill)
    op = dist.ReduceOp.MAX if largest else dist.ReduceOp.MIN
    return _Extreme.apply(function(rows, dims, keepdim), layout.group, op)


@implements_each(torch.max, torch.min, torch.Tensor.max, torch.Tensor.min)
def _max(function: Any, input: Any, *more: Any, **options: Any) -> Any:
    if more or options:
        raise NotImplementedError(
            f"{function.__name__} of split tensors along an axis or of two: call amax, amin, "
            "maximum or minimum"
        )
    return _extreme(torch.amax if function.__name__ == "max" else torch.amin, input)


@implements_each(torch.all, torch.any, torch.Tensor.all, torch.Tensor.any)
def _all(function: Any, input: Any) -> Tensor:
    found = function(local(input)).to(torch.int32)
    op = dist.ReduceOp.MIN if function.__name__ == "all" else dist.ReduceOp.MAX
    dist.all_reduce(found, op, group=input.spatial_layout.group)
    return found.bool()
