"""Pools of split tensors."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oocdnn.torch.spatial.exchange import collect, constant, without_rows
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.reductions import mean
from oocdnn.torch.spatial.tensor import (
    SpatialTensor,
    functions_named,
    implements_each,
    local,
    per_axis,
    wrap,
)
from oocdnn.torch.spatial.windows import Window


def _window(
    taps: int, stride: int, padding: int, dilation: int, length: int, ceil_mode: bool
) -> Window:
    """The window along the split axis; with `ceil_mode`, the padding behind holds the last one."""
    window = Window(taps, stride, dilation, padding, padding)
    if not ceil_mode:
        return window
    outputs = -(-(length + 2 * padding - window.reach) // stride) + 1
    if (outputs - 1) * stride >= length + padding:  # it would begin in the padding
        outputs -= 1
    after = max((outputs - 1) * stride + window.reach - length - padding, padding)
    return Window(taps, stride, dilation, padding, after)


def _collected(x: SpatialTensor, window: Window, value: float) -> tuple[Tensor, Layout]:
    """The rows that the own outputs read, and the layout of the output."""
    layout = x.spatial_layout
    total = window.outputs(layout.total)
    if total <= 0:
        raise ValueError(
            f"a pool whose windows of {window.reach} rows are larger than the {layout.total} of "
            "the split axis with their padding"
        )
    outputs = layout.with_lengths(window.lengths(layout.lengths, total))
    wanted = window.inputs_of_each(outputs.owned)
    return collect(local(x), layout, wanted, value), outputs


def _rank(name: str) -> int:
    return int(name[-2])


def _at(x: SpatialTensor, rank: int, name: str) -> int:
    at = rank + x.spatial_layout.axis
    if at < 0:
        raise ValueError(
            f"{name} has {rank} spatial axes, but its input is split along another one"
        )
    return at


def _pooled(
    x: SpatialTensor, name: str, taps: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, value: float, pool: Callable[..., Tensor],
) -> tuple[Tensor, Layout, Window]:  # fmt: skip
    """`pool` gets rows with their padding along the split axis, and the arguments of each axis."""
    rank = _rank(name)
    at = _at(x, rank, name)
    taps, padding, dilation = (list(per_axis(v, rank)) for v in (taps, padding, dilation))
    stride = per_axis(stride, rank) if stride else taps
    if any(2 * pad > taken for pad, taken in zip(padding, taps, strict=True)):
        raise ValueError(f"{name} with the padding {padding}: more than half of the window {taps}")
    length = x.spatial_layout.total
    window = _window(taps[at], stride[at], padding[at], dilation[at], length, ceil_mode)
    rows, outputs = _collected(x, window, value)
    padding[at] = 0

    def of(rows: Tensor) -> Tensor:
        return pool(rows, taps, stride, padding, dilation)

    if outputs.lengths[outputs.process]:
        return of(rows), outputs, window
    return without_rows(rows, outputs.axis, of, window.reach), outputs, window


@implements_each(*functions_named("max_pool1d max_pool2d max_pool3d", F, torch))
def _max_pool(
    function: Any, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    name = function.__name__
    if return_indices:
        raise NotImplementedError(f"{name} of a split tensor with indices")

    def pool(rows: Tensor, *windows: Any) -> Tensor:
        found: Tensor = getattr(torch, name)(rows, *windows, ceil_mode=ceil_mode)
        return found

    windows = kernel_size, stride, padding, dilation
    floating = input.dtype.is_floating_point
    least = -torch.inf if floating else torch.iinfo(input.dtype).min
    y, outputs, _ = _pooled(input, name, *windows, ceil_mode, least, pool)
    return wrap(y, outputs)


@implements_each(*functions_named("avg_pool1d avg_pool2d avg_pool3d", F))
def _avg_pool(
    function: Any, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    options = {} if divisor_override is None else {"divisor_override": divisor_override}

    def pool(rows: Tensor, taps: Any, stride: Any, padding: Any, _: Any) -> Tensor:
        found: Tensor = function(
            rows, taps, stride, padding, ceil_mode, count_include_pad, **options
        )
        return found

    name = function.__name__
    windows = kernel_size, stride, padding, 1
    y, outputs, window = _pooled(input, name, *windows, ceil_mode, 0.0, pool)
    if divisor_override is None:
        margin = per_axis(padding, _rank(name))[_at(input, _rank(name), name)]
        factors = _factors(window, margin if count_include_pad else 0, input.spatial_layout.total)
        if any(factor != 1 for factor in factors):
            shape = [-1 if dim == outputs.dim(y.ndim) else 1 for dim in range(y.ndim)]
            own = factors[slice(*outputs.own)]
            y = y * constant(tuple(own), y.dtype, y.device).view(shape)
    return wrap(y, outputs)


def _factors(window: Window, margin: int, length: int) -> list[float]:
    """For each output row: taps over the rows that its mean is of, `margin` rows of padding among
    them."""
    firsts = (row * window.stride - window.before for row in range(window.outputs(length)))
    counts = (min(first + window.taps, length + margin) - max(first, -margin) for first in firsts)
    return [window.taps / count for count in counts]


@implements_each(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
def _adaptive(function: Any, input: Any, output_size: Any) -> Tensor:
    rank = _rank(function.__name__)
    if any(size != 1 for size in per_axis(output_size, rank)):
        raise NotImplementedError(
            f"{function.__name__} of a split tensor to {output_size}: only to 1 along each axis; "
            "call it on full_tensor()"
        )
    found: Tensor = mean(input, tuple(range(-rank, 0)), True)
    return found
