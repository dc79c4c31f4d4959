"""Chosen elements of a convolution's result, summed exactly: what results of any size are checked
against, without a second convolution.

The operands hold small integers, so a sum in float64 is the true one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdnn._arrays.mapped import Array
from oocdnn.bench.amounts import groups_of
from oocdnn.cli.problems import Problem, window_of

Place = tuple[int, ...]
Index = NDArray[np.intp]
Key = tuple[Any, ...]


def places(shape: Sequence[int], pieces: Sequence[int], count: int, seed: int) -> list[Place]:
    """`count` places of a result, half of them anywhere. The others lie at an end of each axis or
    beside a seam, where it is cut into so many pieces of equal length."""
    random = np.random.default_rng(seed)
    anywhere = [random.integers(0, extent, count // 2) for extent in shape]
    beside = [
        random.choice(_seams(extent, parts), count - count // 2)
        for extent, parts in zip(shape, pieces, strict=True)
    ]
    columns = (np.concatenate(pair) for pair in zip(anywhere, beside, strict=True))
    return [tuple(int(i) for i in place) for place in zip(*columns, strict=True)]


def _seams(extent: int, parts: int) -> list[int]:
    """Both ends, and both sides of each seam."""
    length = -(-extent // max(parts, 1))
    starts = range(0, extent, length)
    return sorted({0, extent - 1, *starts, *(start - 1 for start in starts[1:])})


def element(problem: Problem, first: Array, second: Array, place: Place) -> float:
    """One element of the result; the operands are those of the direction, as `Layer` orders them:
    x and w, dy and w, x and dy."""
    if problem.keywords.get("mode") == "convolution":  # the filter is mirrored
        if problem.direction == "bwd_filter":
            at = zip(problem.w[2:], place[2:], strict=True)
            place = (*place[:2], *(taps - 1 - tap for taps, tap in at))
        else:
            mirrored: Key = (..., *[slice(None, None, -1)] * problem.rank)
            second = second[mirrored]
    return _ELEMENT[problem.direction](problem, first, second, place)


def _take(array: Array, per_axis: Sequence[Index]) -> Array:
    """Of every channel the elements whose places on all axes are listed."""
    elements: Key = (slice(None), *np.ix_(*per_axis))
    taken: Array = array[elements]
    return taken


def _dot(first: Array, second: Array) -> float:
    return float(np.vdot(first.astype(np.float64), second.astype(np.float64)))


Reads = Callable[[int, int, Index], tuple[Index, NDArray[np.bool_]]]


def _meetings(problem: Problem, at: Sequence[int], reads: Reads) -> tuple[list[Index], list[Index]]:
    """On each axis the taps that meet an element there, and what is read through them; `reads` has
    this for an axis, a position and all taps, and which of them lie inside."""
    meeting, met = list[Index](), list[Index]()
    for axis, position in enumerate(at):
        taps = np.arange(problem.w[2 + axis])
        read, inside = reads(axis, position, taps)
        meeting.append(taps[inside])
        met.append(read[inside])
    return meeting, met


def _forward(problem: Problem, x: Array, w: Array, place: Place) -> float:
    n, k, *at = place
    stride, dilation, before, _ = window_of(problem)

    def reads(axis: int, out: int, taps: Index) -> tuple[Index, NDArray[np.bool_]]:
        read = out * stride[axis] - before[axis] + taps * dilation[axis]
        return read, (read >= 0) & (read < problem.x[2 + axis])

    taps, met = _meetings(problem, at, reads)
    group = k // (problem.w[0] // groups_of(problem))
    channels = slice(group * problem.w[1], (group + 1) * problem.w[1])
    return _dot(_take(x[n, channels], met), _take(w[k], taps))


def _backward_data(problem: Problem, dy: Array, w: Array, place: Place) -> float:
    n, c, *at = place
    stride, dilation, before, _ = window_of(problem)

    def reads(axis: int, position: int, taps: Index) -> tuple[Index, NDArray[np.bool_]]:
        steps = position + before[axis] - taps * dilation[axis]
        read = steps // stride[axis]
        on_step = (steps >= 0) & (steps % stride[axis] == 0)
        return read, on_step & (read < problem.y[2 + axis])

    taps, met = _meetings(problem, at, reads)
    filters = problem.w[0] // groups_of(problem)
    group, own = divmod(c, problem.w[1])
    channels = slice(group * filters, (group + 1) * filters)
    return _dot(_take(dy[n, channels], met), _take(w[channels, own], taps))


def _backward_filter(problem: Problem, x: Array, dy: Array, place: Place) -> float:
    k, c, *taps = place
    stride, dilation, before, _ = window_of(problem)
    writes, reads = list[slice](), list[slice]()
    for axis, tap in enumerate(taps):
        offset = tap * dilation[axis] - before[axis]
        first = max(0, -(offset // stride[axis]))
        last = min(problem.y[2 + axis] - 1, (problem.x[2 + axis] - 1 - offset) // stride[axis])
        if last < first:
            return 0.0
        writes.append(slice(first, last + 1))
        begin = first * stride[axis] + offset
        reads.append(slice(begin, last * stride[axis] + offset + 1, stride[axis]))
    group = k // (problem.w[0] // groups_of(problem))
    channel = group * problem.w[1] + c
    total = 0.0
    for n in range(problem.x[0]):
        read: Key = (n, channel, *reads)
        write: Key = (n, k, *writes)
        total += _dot(x[read], dy[write])
    return total


_ELEMENT: dict[str, Callable[[Problem, Array, Array, Place], float]] = {
    "fwd": _forward,
    "bwd_data": _backward_data,
    "bwd_filter": _backward_filter,
}
