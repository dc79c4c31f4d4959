"""ooc_cuDNN's planner: its model of a forward convolution, and its search.

It cuts a convolution into four numbers of pieces: of the batch, of the output's channels, of the
input's channels, and of the output's rows. All times come from lines, seconds = weight * amount +
bias, fitted through two measurements each; a third of the free memory holds one tile of x, w and y.
The search goes over the four numbers once, one after the other, the others left as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdnn.bench.layers import Layer
from oocdnn.perfmodel.profile import Profile

Count: TypeAlias = int | NDArray[np.int64]  # of pieces; arrays are broadcast against each other
Seconds: TypeAlias = NDArray[np.float64]
Coordinate = Literal["n", "h", "c", "k"]

COORDINATES: tuple[Coordinate, ...] = ("n", "h", "c", "k")  # in the order of its search
_ELEMENT_BYTES = 4
_SLOTS = 3
_LARGEST_TILE = 2**31  # elements
_CHANNEL_BLOCK = 32


@dataclass(frozen=True)
class Line:
    """Seconds of an amount of work."""

    weight: float
    bias: float = 0.0

    def __call__(self, amount: Any) -> Any:
        return self.weight * amount + self.bias


def line_through(small: tuple[float, float], large: tuple[float, float]) -> Line:
    """The line through two measurements: amount of work, seconds."""
    weight = (large[1] - small[1]) / (large[0] - small[0])
    return Line(weight, small[1] - weight * small[0])


@dataclass(frozen=True)
class Machine:
    """Seconds by bytes copied, in either direction, and by a convolution's work, which counts four
    bytes for each multiply-add. `free_bytes` of device memory."""

    copy: Line
    convolution: Line
    free_bytes: float


def machine_of(profile: Profile, free_bytes: float) -> Machine:
    """A machine of a profile's constants, as its two measurements of each would find it."""
    work_seconds = 2 / _ELEMENT_BYTES / profile.flops_fallback
    return Machine(
        Line(1 / profile.fetch_bytes_per_second, profile.copy_seconds),
        Line(work_seconds, profile.run_seconds),
        free_bytes,
    )


@dataclass(frozen=True)
class Steps:
    """Pieces of the batch, of output and input channels, and of output rows: n_step, y_c_step,
    x_c_step and h_step."""

    n: int = 1
    k: int = 1
    c: int = 1
    h: int = 1


class Model:
    """What ooc_cuDNN takes a 2-D layer to cost, all operands in host memory."""

    def __init__(self, layer: Layer, machine: Machine) -> None:
        self._layer, self._machine = layer, machine

    @cached_property
    def extents(self) -> dict[Coordinate, int]:
        """Into how many pieces each coordinate can be cut."""
        layer = self._layer
        return {"n": layer.n, "h": layer.outputs[0], "c": layer.c, "k": layer.k}

    def seconds(self, n: Count = 1, k: Count = 1, c: Count = 1, h: Count = 1) -> Seconds:
        """For so many pieces; infinity where a tile does not fit.

        Output tiles are taken to be drained beside whatever goes on, unless draining one takes
        longer than all that makes it.
        """
        tile, last = self._sizes(_tile, n, k, c, h), self._sizes(_last, n, k, c, h)
        x, w, y = self._elements(*tile)
        before = self._machine.copy((x + w) * _ELEMENT_BYTES)
        compute = self._machine.convolution(self._work(*tile))
        after = self._machine.copy(y * _ELEMENT_BYTES)
        last_compute = self._machine.convolution(self._work(*last))
        last_after = self._machine.copy(self._elements(*last)[2] * _ELEMENT_BYTES)
        outputs = 1.0 * n * k * h
        one = before + compute + (c - 1) * np.maximum(before, compute)
        computing = before + outputs * c * compute + last_after
        fetching = outputs * c * before + last_compute + last_after
        total = np.where(before < compute, computing, fetching)
        total = np.where(one < after, one + outputs * after, total)
        fits = (x + w + y) * _ELEMENT_BYTES < self._machine.free_bytes / _SLOTS
        small = np.maximum(np.maximum(x, w), y) < _LARGEST_TILE
        return np.where(fits & small, total, np.inf)

    def of(self, steps: Steps) -> float:
        """Seconds of one plan."""
        return float(self.seconds(steps.n, steps.k, steps.c, steps.h))

    def _sizes(self, size: Callable[[int, Count], Any], *counts: Count) -> list[Any]:
        """Of a tile, in images, output and input channels, and output rows."""
        whole = (self.extents["n"], self.extents["k"], self.extents["c"], self.extents["h"])
        return [size(extent, count) for extent, count in zip(whole, counts, strict=True)]

    def _elements(self, n: Any, k: Any, c: Any, h: Any) -> tuple[Any, Any, Any]:
        """Of the tiles of x, w and y; a tile holds its halo, but no more rows than x has."""
        layer = self._layer
        reach = (layer.taps[0] - 1) * layer.dilation[0] + 1
        rows = np.minimum((h - 1) * layer.stride[0] + reach, layer.extents[0])
        x = 1.0 * n * c * rows * layer.extents[1]
        return x, 1.0 * k * c * math.prod(layer.taps), 1.0 * n * k * h * layer.outputs[1]

    def _work(self, n: Any, k: Any, c: Any, h: Any) -> Any:
        """Of a tile's convolution, its output channels in whole blocks."""
        layer = self._layer
        blocks = -(-k // _CHANNEL_BLOCK) * _CHANNEL_BLOCK
        return 1.0 * n * blocks * h * layer.outputs[1] * c * math.prod(layer.taps) * _ELEMENT_BYTES


def _tile(extent: int, count: Count) -> Count:
    return -(-extent // count)


def _last(extent: int, count: Count) -> Any:
    """The last tile's share, where all others are full."""
    tile = _tile(extent, count)
    rest = extent - (count - 1) * tile
    return np.where(rest > 0, rest, tile)


def greedy(model: Model) -> Steps:
    """The plan that ooc_cuDNN makes. A coordinate of which no value fits is left at the most
    pieces, and never looked at again."""
    steps = Steps()
    for name in COORDINATES:
        counts = np.arange(1, model.extents[name] + 1)
        others = {other: getattr(steps, other) for other in COORDINATES}
        seconds = model.seconds(**{**others, name: counts})
        best = int(np.argmin(seconds)) if np.isfinite(seconds).any() else len(counts) - 1
        steps = replace(steps, **{name: int(counts[best])})
    return steps


def optimum(model: Model) -> Steps:
    """The best plan of its own space, by its own model. Raises ValueError where none fits.

    Of the numbers of pieces with equal tiles only the least is looked at: more of them cost more.
    """
    counts = [_distinct(model.extents[name]) for name in ("n", "k", "c", "h")]
    grid = np.meshgrid(*counts, indexing="ij", sparse=True)
    seconds = model.seconds(*grid)
    if not np.isfinite(seconds).any():
        raise ValueError("no tile fits a third of the free memory")
    best = np.unravel_index(int(np.argmin(seconds)), seconds.shape)
    return Steps(*(int(count[i]) for count, i in zip(counts, best, strict=True)))


def _distinct(extent: int) -> NDArray[np.int64]:
    """The least number of pieces for each length that a tile can have."""
    lengths = np.unique(-(-extent // np.arange(1, extent + 1)))
    return np.unique(-(-extent // lengths))
