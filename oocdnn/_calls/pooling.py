"""Windows over a convolution's result, as users write them, and the sizes that follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

from oocdnn._arguments import flag
from oocdnn._calls.windows import PerAxis, axis_name, paddings, per_axis
from oocdnn._core import call
from oocdnn._core.cdefs import PoolMode
from oocdnn._shown import shown
from oocdnn.errors import InvalidProblem


@dataclass(frozen=True)
class Pool:
    """Windows over y.

    mode: "max" (the first of the largest in row-major order; a NaN is larger than all) or "avg".
    window, stride, padding: an integer, or one per spatial axis; padding also ((before, after),
        ...), less than the window. A stride of None is the window.
    ceil: a last window that passes the end counts too, if it begins before that. An axis
        shorter than the window has one window, unless it ends a whole stride before the window.
    count_padding: an average counts padding as zeros, or only the elements that there are.
    """

    mode: Literal["max", "avg"]
    window: PerAxis
    stride: PerAxis | None = None
    padding: PerAxis | Sequence[tuple[SupportsIndex, SupportsIndex]] = 0
    ceil: bool = False
    count_padding: bool = True


def _mode(pool: Pool) -> PoolMode:
    mode = pool.mode if isinstance(pool.mode, str) else None
    if mode == "max":
        return PoolMode.MAX
    if mode != "avg":
        raise InvalidProblem(f"the pool's mode is {shown(pool.mode)}; the values are 'max', 'avg'")
    return (
        PoolMode.AVERAGE if flag("count_padding", pool.count_padding) else PoolMode.AVERAGE_INSIDE
    )


def make(pool: Any, rank: int) -> call.Pool:
    """The pool of a call. An integer, or one per axis, is a maximum of windows that touch."""
    if not isinstance(pool, Pool):
        pool = Pool("max", pool)
    window = per_axis("the pool's window", pool.window, rank, 1)
    stride = window
    if pool.stride is not None:
        stride = per_axis("the pool's stride", pool.stride, rank, 1)
    before, after = paddings("the pool's padding", pool.padding, rank)
    for s, (pad, size) in enumerate(zip(map(max, before, after), window, strict=True)):
        if pad >= size:
            raise InvalidProblem(
                f"the pool's padding on axis {axis_name(rank, s)} is {pad}; it must be less than "
                f"the window, {size}"
            )
    return call.Pool(_mode(pool), window, stride, before, after, flag("the pool's ceil", pool.ceil))


def extents(pool: call.Pool, y: tuple[int, ...]) -> tuple[int, ...]:
    """Spatial sizes of z from those of y."""
    result = []
    for s, extent in enumerate(y):
        before, after, step = pool.before[s], pool.after[s], pool.stride[s]
        room = extent + before + after - pool.window[s]
        rows = room // step + 1
        if pool.ceil and room % step != 0 and rows * step < extent + before:
            rows += 1
        if rows < 1:
            raise InvalidProblem(
                f"z would be empty on axis {axis_name(len(y), s)}: {extent} of y + padding "
                f"{before} + {after} is less than the pool's window, {pool.window[s]}; use a "
                "smaller window"
            )
        result.append(rows)
    return tuple(result)
