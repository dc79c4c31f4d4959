"""Strides, paddings and dilations as users write them, and the sizes that follow from them."""

import operator
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np

from oocdnn._core.call import Window
from oocdnn._shown import shown
from oocdnn.errors import InvalidProblem

# One number for all spatial axes, or one per axis.
PerAxis = SupportsIndex | Sequence[SupportsIndex]
Padding = PerAxis | Sequence[tuple[SupportsIndex, SupportsIndex]] | Literal["same", "valid"]

# Far below the int64 limit, so that sums of a few sizes cannot overflow in the core.
_LARGEST = 1 << 60
_AXES = ("D", "H", "W")


def axis_name(rank: int, axis: int) -> str:
    """D, H or W of spatial axis `axis` among `rank`."""
    return _AXES[3 - rank + axis]


def integer(name: str, value: Any, least: int, most: int = _LARGEST) -> int:
    """`value` as an integer of at least `least` and at most `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidProblem(f"{name} is {shown(value)}; it must be an integer") from None
    if not least <= number <= most:
        below = f"at most {most}" if most < _LARGEST else "below 2**60"
        raise InvalidProblem(f"{name} is {shown(number)}; it must be at least {least} and {below}")
    return number


def per_axis(name: str, value: Any, rank: int, least: int) -> tuple[int, ...]:
    """One integer for each of `rank` axes, from one integer or as many (PerAxis)."""
    if isinstance(value, (np.ndarray, memoryview)):
        value = value.tolist()
    if hasattr(value, "__index__"):
        return (integer(name, value, least),) * rank
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != rank:
        raise InvalidProblem(
            f"{name} is {shown(value)}; one integer or {rank}, one for each spatial axis, are "
            "possible"
        )
    return tuple(
        integer(f"{name} on axis {axis_name(rank, s)}", v, least) for s, v in enumerate(value)
    )


def _reach(filter_extent: int, dilation: int) -> int:
    return (filter_extent - 1) * dilation + 1


def _same(window: tuple[int, ...], dilation: tuple[int, ...], taps: tuple[int, ...]) -> Window:
    if any(step != 1 for step in window):
        raise InvalidProblem(
            f'padding="same" needs stride 1, and stride is {window}; give the padding as numbers'
        )
    total = [_reach(t, d) - 1 for t, d in zip(taps, dilation, strict=True)]
    before = tuple(pad // 2 for pad in total)
    return Window(
        window, dilation, before, tuple(t - b for t, b in zip(total, before, strict=True))
    )


def make(
    rank: int, taps: tuple[int, ...], stride: PerAxis, padding: Padding, dilation: PerAxis
) -> Window:
    """The window of a call from its keywords; `taps` are the filter's spatial extents."""
    steps = per_axis("stride", stride, rank, 1)
    gaps = per_axis("dilation", dilation, rank, 1)
    if isinstance(padding, str):
        if padding == "same":
            return _same(steps, gaps, taps)
        if padding != "valid":
            raise InvalidProblem(
                f'padding is {shown(padding)}; "same", "valid" or numbers are possible'
            )
        padding = 0
    return Window(steps, gaps, *paddings("padding", padding, rank))


def paddings(name: str, padding: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Before and after each axis, from one integer, one per axis, or ((before, after), ...)."""
    if isinstance(padding, (np.ndarray, memoryview)):
        padding = padding.tolist()
    if isinstance(padding, Sequence) and any(isinstance(pad, Sequence) for pad in padding):
        return _pairs(name, padding, rank)
    pads = per_axis(name, padding, rank, 0)
    return pads, pads


def _pairs(name: str, padding: Sequence[Any], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """((before, after), ...), one pair for each axis."""
    if len(padding) != rank or any(
        not isinstance(pad, Sequence) or isinstance(pad, str) or len(pad) != 2 for pad in padding
    ):
        raise InvalidProblem(
            f"{name} is {shown(padding)}; {rank} pairs (before, after) are expected, one for each "
            "spatial axis"
        )
    sides = (
        tuple(
            integer(f"{name} {side} on axis {axis_name(rank, s)}", pad[i], 0)
            for s, pad in enumerate(padding)
        )
        for i, side in enumerate(("before", "after"))
    )
    return next(sides), next(sides)


def _need_elements(axis: str, extent: int, filter_extent: int) -> None:
    """Padding makes up for neither."""
    if extent < 1:
        raise InvalidProblem(f"x has no elements on axis {axis}; it needs at least 1 there")
    if filter_extent < 1:
        raise InvalidProblem(f"w has no taps on axis {axis}; it needs at least 1 there")


def forward_extents(
    window: Window, extents: tuple[int, ...], taps: tuple[int, ...]
) -> tuple[int, ...]:
    """Spatial sizes of y from those of x and of the filter."""
    result = []
    for s, (extent, filter_extent) in enumerate(zip(extents, taps, strict=True)):
        before, after = window.before[s], window.after[s]
        gap = window.dilation[s]
        _need_elements(axis_name(window.rank, s), extent, filter_extent)
        reach = _reach(filter_extent, gap)
        room = extent + before + after - reach
        if room < 0:
            raise InvalidProblem(
                f"the output would be empty on axis {axis_name(window.rank, s)}: input {extent} + "
                f"padding {before} + {after} is less than the filter's reach {reach} "
                f"({filter_extent} taps, dilation {gap}); use more padding or a smaller filter"
            )
        result.append(room // window.stride[s] + 1)
    return tuple(result)


def transposed_extents(
    window: Window, extents: tuple[int, ...], taps: tuple[int, ...], output_padding: PerAxis
) -> tuple[int, ...]:
    """Spatial sizes of a transposed convolution's output."""
    extra = per_axis("output_padding", output_padding, window.rank, 0)
    result = []
    for s, (extent, filter_extent) in enumerate(zip(extents, taps, strict=True)):
        name = axis_name(window.rank, s)
        step = window.stride[s]
        if extra[s] >= step:
            raise InvalidProblem(
                f"output_padding on axis {name} is {extra[s]}; it must be less than the stride, "
                f"{step}"
            )
        _need_elements(name, extent, filter_extent)
        pads = window.before[s] + window.after[s]
        reach = _reach(filter_extent, window.dilation[s])
        size = (extent - 1) * step + reach - pads + extra[s]
        if size < 1:
            raise InvalidProblem(
                f"the output would be empty on axis {name}: ({extent} - 1) * {step} + {reach} - "
                f"{pads} + {extra[s]} = {size}; use less padding"
            )
        result.append(size)
    return tuple(result)
