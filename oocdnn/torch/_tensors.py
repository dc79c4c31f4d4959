"""Tensors as the core takes them, and new ones in the memory order that results have.

What is decided here is the same for real tensors and for the fake ones of torch's tracing, so that
strides come out as they were foretold.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oocdnn._calls.stack import current_context
from oocdnn._core.cdefs import DType
from oocdnn.arrays import View

_INTEGERS: dict[int, Any] = {2: np.int16, 4: np.int32, 8: np.int64}  # by size in bytes


def walkable(tensor: Tensor) -> Tensor:
    """`tensor`, or a copy of one that was expanded (the gradient of a sum is): the core does not
    walk along strides of 0."""
    expanded = (s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True))
    return tensor.contiguous() if any(expanded) else tensor


def empty_in_order(
    like: Tensor,
    shape: Sequence[int],
    device: torch.device,
    make: Callable[..., Tensor] = torch.empty,
) -> Tensor:
    """A new tensor of the type of `like`: channels-last where that is, as the functions of oocdnn
    give their results, else row-major."""
    axes = _order(like, len(shape))
    wide = make([shape[axis] for axis in axes], dtype=like.dtype, device=device)
    return wide.permute([axes.index(axis) for axis in range(len(axes))])


def empty_result(
    like: Tensor, shape: Sequence[int], device: torch.device, keep_order: bool
) -> Tensor:
    """A new tensor for a result that does not go to the side of `like`."""
    make = _empty_on_host if device.type == "cpu" else torch.empty
    if keep_order:
        return empty_in_order(like, shape, device, make)
    return make(shape, dtype=like.dtype, device=device)


def _order(like: Tensor, rank: int) -> tuple[int, ...]:
    """The axes as they lie in memory, the innermost last."""
    strides = tuple(4 * stride for stride in like.stride())
    seen = View("x", None, DType.FLOAT32, tuple(like.shape), strides, 0)
    return (0, *range(2, rank), 1) if seen.channels_last else tuple(range(rank))


def _empty_on_host(shape: Sequence[int], dtype: torch.dtype, **_: torch.device) -> Tensor:
    """In the memory that a context has for results."""
    kind = np.dtype(_INTEGERS[dtype.itemsize])
    return torch.from_numpy(current_context().results.empty(tuple(shape), kind)).view(dtype)
