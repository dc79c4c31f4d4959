"""A call of oocdnn for a `Layer` in a direction."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import oocdnn
from oocdnn.bench.layers import Direction, Layer


def call_of(
    context: oocdnn.Context,
    case: Layer,
    direction: Direction,
    inputs: Sequence[Any],
    out: Any,
    **more: Any,
) -> Callable[[], object]:
    """One call, to be timed; the inputs are in the order of `ROLES`."""
    keywords: dict[str, Any] = {
        **more,
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
        "groups": case.groups,
        "out": out,
    }
    first, second = inputs
    if direction == "fwd":
        forward = {1: context.conv1d, 2: context.conv2d, 3: context.conv3d}[case.rank]
        return partial(forward, first, second, **keywords)
    if direction == "bwd_data":
        return partial(context.conv_backward_data, first, second, case.shape("x"), **keywords)
    return partial(context.conv_backward_filter, first, second, case.shape("w"), **keywords)
