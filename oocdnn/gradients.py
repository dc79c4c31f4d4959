"""Gradients of convolutions: with respect to the input, the filter and the bias.

1-, 2- or 3-D by the axes of dy. Arrays, keywords and errors are those of `oocdnn.functions`;
`stride`, `padding`, `dilation`, `groups` and `mode` are those of the forward convolution.
With `out` and `beta=1` a gradient is added to what out holds.
"""

from collections.abc import Sequence
from typing import Any, SupportsIndex

from oocdnn import _window
from oocdnn._call import Slot
from oocdnn._cdefs import Direction
from oocdnn._native import Progress
from oocdnn._operation import (
    SPATIAL,
    TAPS,
    Common,
    MathName,
    ModeName,
    Moves,
    Result,
    launch,
    need_axes,
    need_channels,
    need_divided,
    need_shape,
)
from oocdnn._window import Padding, PerAxis
from oocdnn.arrays import View, view
from oocdnn.errors import InvalidProblem


def _gradient_rank(dy: View) -> int:
    rank = dy.ndim - 2
    if rank not in SPATIAL:
        raise InvalidProblem(
            f"dy has {dy.ndim} axes {dy.shape}; 3, 4 or 5 are possible: N, K, [D, [H,]] W"
        )
    return rank


def _shape(name: str, shape: Sequence[SupportsIndex], axes: int) -> tuple[int, ...]:
    sizes = tuple(_window.integer(f"{name}[{i}]", size, 0) for i, size in enumerate(shape))
    if len(sizes) != axes:
        raise InvalidProblem(f"{name} is {sizes}; dy has {axes} axes, and so must {name}")
    return sizes


def conv_backward_data(
    dy: Any,
    w: Any,
    x_shape: Sequence[SupportsIndex],
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: SupportsIndex = 1,
    mode: ModeName = "cross_correlation",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
) -> Any:
    """The gradient dx of a convolution with respect to its input.

    dy: [N, K, ...]; w: [K, C/groups, ...]; x_shape: (N, C, ...), needed because several sizes of x
    lead to one size of dy. Returns dx, shaped x_shape, in dy's memory order.
    """
    gradient, weights = view("dy", dy), view("w", w)
    rank = _gradient_rank(gradient)
    need_axes(weights, rank, "conv_backward_data", f"K, C/groups, {TAPS[rank]}")
    shape = _shape("x_shape", x_shape, rank + 2)
    moves = Moves(stride, padding, dilation, groups)
    count, taps = moves.checked_groups(), weights.shape[2:]
    need_divided("x_shape", shape[1], count)
    need_divided("w", weights.shape[0], count)
    need_channels(weights, 1, shape[1] // count, f"{shape[1]} channels of x_shape", count)
    window = moves.window(taps)
    extents = _window.forward_extents(window, shape[2:], taps)
    want = (shape[0], weights.shape[0], *extents)
    need_shape("dy", gradient.shape, want, "x_shape, w and the other parameters")
    common = Common(out, alpha, beta, mode, math, stream, progress)
    inputs: dict[Slot, View] = {"y": gradient, "w": weights}
    return launch(Direction.BACKWARD_DATA, inputs, window, count, Result("x", shape), common)


def conv_backward_filter(
    x: Any,
    dy: Any,
    w_shape: Sequence[SupportsIndex],
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: SupportsIndex = 1,
    mode: ModeName = "cross_correlation",
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
) -> Any:
    """The gradient dw of a convolution with respect to its filter.

    x: [N, C, ...]; dy: [N, K, ...]; w_shape: (K, C/groups, ...), needed because several filter
    sizes lead to one size of dy. Returns dw, shaped w_shape, in row-major order.
    """
    data, gradient = view("x", x), view("dy", dy)
    rank = _gradient_rank(gradient)
    need_axes(data, rank, "conv_backward_filter", f"N, C, {SPATIAL[rank]}")
    shape = _shape("w_shape", w_shape, rank + 2)
    moves = Moves(stride, padding, dilation, groups)
    count, taps = moves.checked_groups(), shape[2:]
    need_divided("x", data.shape[1], count)
    need_divided("w_shape", shape[0], count)
    want = (shape[0], data.shape[1] // count, *taps)
    need_shape("w_shape", shape, want, "x and groups")
    window = moves.window(taps)
    extents = _window.forward_extents(window, data.shape[2:], taps)
    want = (data.shape[0], shape[0], *extents)
    need_shape("dy", gradient.shape, want, "x, w_shape and the other parameters")
    common = Common(out, alpha, beta, mode, math, stream, progress)
    inputs: dict[Slot, View] = {"x": data, "y": gradient}
    result = Result("w", shape, keep_order=False)
    return launch(Direction.BACKWARD_FILTER, inputs, window, count, result, common)


def conv_backward_bias(
    dy: Any,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
) -> Any:
    """The gradient db of a convolution with respect to its bias: dy summed per channel.

    dy: [N, K, ...]. Returns db: [K].
    """
    gradient = view("dy", dy)
    rank = _gradient_rank(gradient)
    window = Moves().window((1,) * rank)
    common = Common(out, alpha, beta, "cross_correlation", math, stream, progress)
    result = Result("bias", (gradient.shape[1],), keep_order=False)
    return launch(Direction.BACKWARD_BIAS, {"y": gradient}, window, 1, result, common)
