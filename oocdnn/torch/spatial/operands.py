"""Operands of functions that compute each row of their result from the same row of others."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from oocdnn.torch.spatial.exchange import own_rows, redistribute, replicated
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.tensor import (
    SpatialTensor,
    local,
    share,
    split_in,
    without_dispatch,
    wrap,
)


def aligned(value: Any, layout: Layout) -> Any:
    """The rows of an operand that belong to those of a split tensor with `layout`; a tensor with
    that layout itself, and other values as they are. Plain tensors are taken to be alike on all
    processes."""
    if isinstance(value, (tuple, list)):
        return type(value)(aligned(one, layout) for one in value)
    if isinstance(value, SpatialTensor):
        return _moved(value, layout)
    if not isinstance(value, torch.Tensor):
        return value
    rows = value.shape[layout.axis] if value.ndim >= -layout.axis else 1
    (value,) = replicated(layout.group, value)
    if rows == 1:
        return value
    if rows != layout.total:
        raise ValueError(
            f"an operand of the shape {tuple(value.shape)} has {rows} rows along axis "
            f"{layout.axis}, along which the split tensor has {layout.total}"
        )
    return own_rows(value, layout)


def _moved(value: SpatialTensor, layout: Layout) -> Tensor:
    own = value.spatial_layout
    if own == layout:
        return value  # itself, which may be changed in place
    if (own.group, own.axis) != (layout.group, layout.axis) or own.total != layout.total:
        first, second = (
            f"{one.total} rows along axis {one.axis} over the processes "
            f"{dist.get_process_group_ranks(one.group)} of group {one.group.group_name}"
            for one in (own, layout)
        )
        raise ValueError(f"operands are split differently: {first}, and {second}")
    return redistribute(local(value), own, layout.lengths)


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function of the local rows; tensors in its results are split as the first operand."""
    if kwargs.get("out") is not None:
        raise NotImplementedError("out= of split tensors; take the result instead")
    layout = next(split_in(*args, *kwargs.values())).spatial_layout
    own = [aligned(value, layout) for value in args]
    named_own = {name: aligned(value, layout) for name, value in kwargs.items()}
    with without_dispatch():
        found = function(*own, **named_own)
    operands = {id(value) for value in (*args, *kwargs.values())}
    return _wrapped(found, layout, operands)


def _wrapped(found: Any, layout: Layout, operands: set[int]) -> Any:
    if isinstance(found, SpatialTensor):
        return found  # an operand that was changed in place
    if isinstance(found, torch.Tensor):
        rows = layout.lengths[layout.process]
        if found.ndim < -layout.axis or found.shape[layout.axis] != rows:
            raise ValueError(
                f"a function of the {rows} local rows along axis {layout.axis} of a split tensor "
                f"returned a tensor of the shape {tuple(found.shape)}"
            )
        return share(found, layout) if id(found) in operands else wrap(found, layout)
    if isinstance(found, (tuple, list)):
        return type(found)(_wrapped(one, layout, operands) for one in found)
    return found


def pointwise(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function` of split tensors, computed from the local rows of each process.

    For functions that torch.nn.functional does not have, such as kernels of one's own. Each row of
    the result must depend on the same row of the operands only; its shape along the axis must stay.
    Plain tensors among the arguments are those that all processes have alike, and are cut to the
    local rows where they have as many rows as the split tensor.
    """
    return run(function, *args, **kwargs)
