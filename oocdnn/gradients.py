"""Gradients of convolutions: with respect to the input, the filter and the bias.

1-, 2- or 3-D by the axes of dy. Arrays, keywords and errors are those of `oocdnn.functions`;
`stride`, `padding`, `dilation`, `groups` and `mode` are those of the forward convolution.
With `out` and `beta=1` a gradient is added to what out holds.
"""

from collections.abc import Sequence
from typing import Any, SupportsIndex

from oocdnn._calls import call_geometry, windows
from oocdnn._calls.call_geometry import Geometry
from oocdnn._calls.operation import Common, Done, MathName, ModeName, launch
from oocdnn._calls.prepared import remembered
from oocdnn._calls.windows import Padding, PerAxis
from oocdnn._core.call import Slot
from oocdnn._core.cdefs import Direction
from oocdnn._core.native import Progress
from oocdnn.arrays import View, view


@remembered
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
    workspace: SupportsIndex | None = None,
) -> Done:
    """The gradient dx of a convolution with respect to its input.

    dy: [N, K, ...]; w: [K, C/groups, ...]; x_shape: (N, C, ...), needed because several sizes of x
    lead to one size of dy. Returns dx, shaped x_shape, in dy's memory order.
    """
    gradient, weights = view("dy", dy), view("w", w)
    geometry = call_geometry.backward_data(
        gradient.shape, weights.shape, x_shape, stride, padding, dilation, groups
    )
    common = Common(out, alpha, beta, mode, math, stream, progress, workspace)
    inputs: dict[Slot, View] = {"y": gradient, "w": weights}
    return launch(Direction.BACKWARD_DATA, inputs, "x", geometry, common)


@remembered
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
    workspace: SupportsIndex | None = None,
) -> Done:
    """The gradient dw of a convolution with respect to its filter.

    x: [N, C, ...]; dy: [N, K, ...]; w_shape: (K, C/groups, ...), needed because several filter
    sizes lead to one size of dy. Returns dw, shaped w_shape, in row-major order.
    """
    data, gradient = view("x", x), view("dy", dy)
    geometry = call_geometry.backward_filter(
        data.shape, gradient.shape, w_shape, stride, padding, dilation, groups
    )
    common = Common(out, alpha, beta, mode, math, stream, progress, workspace)
    inputs: dict[Slot, View] = {"x": data, "y": gradient}
    return launch(Direction.BACKWARD_FILTER, inputs, "w", geometry, common)


@remembered
def conv_backward_bias(
    dy: Any,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
    workspace: SupportsIndex | None = None,
) -> Done:
    """The gradient db of a convolution with respect to its bias: dy summed per channel.

    dy: [N, K, ...]. Returns db: [K].
    """
    gradient = view("dy", dy)
    rank = call_geometry.gradient_rank(gradient.shape)
    window = windows.make(rank, (1,) * rank, 1, 0, 1)
    geometry = Geometry(window, 1, (gradient.shape[1],))
    common = Common(out, alpha, beta, "cross_correlation", math, stream, progress, workspace)
    return launch(Direction.BACKWARD_BIAS, {"y": gradient}, "bias", geometry, common)
