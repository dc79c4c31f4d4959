"""Which rows of each tensor of a chain of layers a tile of its result needs, on one spatial axis.

A chain runs depth first: a tile of the last result is finished from x before the next one begins,
and what lies between two layers never leaves the device. Row q of a layer's result reads rows
q * stride + t * dilation - before of its input, for each t below `taps`, where these exist; all
halos come from that one line, last layer first. What does not exist is no part of the tensor: to a
convolution it is zero, of whatever layer before, and a pool passes it over. So a tile's rows
outside of an inner tensor must not be computed from x's padding.

A tensor may be added to a later one of the same extent: what is needed of that is needed of it too.
All strides between the two are 1, so that its buffer has these rows anyway.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from oocdnn.perfmodel.problem import SPATIAL, Axis, Problem
from oocdnn.perfmodel.tiling import Span


@dataclass(frozen=True)
class Layer:
    """A convolution or a pool on one axis. `ceil`: a last window that passes the end counts too, if
    it begins before that."""

    taps: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0
    ceil: bool = False

    @property
    def reach(self) -> int:
        """Rows from the first tap to the last."""
        return (self.taps - 1) * self.dilation + 1

    def extent(self, extent: int) -> int:
        """The rows of the result, where the input has `extent`; 0: the layer does not fit."""
        room = extent + self.before + self.after - self.reach
        rows, rest = divmod(room, self.stride)
        another = self.ceil and rest and (rows + 1) * self.stride < extent + self.before
        return max(rows + 1 + bool(another), 0)

    def held(self, rows: range) -> range:
        """The rows of the input, also those that do not exist, from the first to the last that
        these rows of the result reach."""
        begin = rows.start * self.stride - self.before
        return range(begin, begin + (len(rows) - 1) * self.stride + self.reach)

    def reads(self, rows: range, extent: int) -> range:
        """Of the `extent` rows of the input, from the first to the last that is read; empty where
        none is."""
        first = self._first(rows, extent)
        if first is None:
            return range(0)
        return range(first, self._last(rows, extent) + 1)

    def _first(self, rows: range, extent: int) -> int | None:
        """At the upper end a row may begin with taps that meet nothing, and the next row not."""
        found = []
        for q in rows:
            origin = q * self.stride - self.before
            tap = max(0, -(origin // self.dilation))
            row = origin + tap * self.dilation
            if tap < self.taps and row < extent:
                found.append(row)
            if origin >= 0:
                break
        return min(found, default=None)

    def _last(self, rows: range, extent: int) -> int:
        """The same at the lower end, where a row is known to be read."""
        found = []
        for q in reversed(rows):
            origin = q * self.stride - self.before
            tap = min(self.taps - 1, (extent - 1 - origin) // self.dilation)
            row = origin + tap * self.dilation
            if tap >= 0 and row >= 0:
                found.append(row)
            if origin + self.reach <= extent:
                break
        return max(found)


class ChainAxis:
    """Layers one after the other on one axis, over x of `extent` rows.

    skips: pairs of tensors of which the first is added to the second; x is number 0, the result of
    layer i number i + 1.
    extents: the rows of x and of each result. Raises ValueError for a layer that does not fit, and
    for a skip over strides, or between unlike extents.
    """

    def __init__(
        self, extent: int, layers: Sequence[Layer], skips: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.layers, self.skips = tuple(layers), tuple(skips)
        self.extents = [extent]
        for i, layer in enumerate(self.layers):
            self.extents.append(layer.extent(self.extents[-1]))
            if self.extents[-1] < 1:
                raise ValueError(
                    f"layer {i} has no result: its reach is {layer.reach}, and its input has "
                    f"{self.extents[-2]} rows + padding {layer.before} + {layer.after}"
                )
        for begin, end in self.skips:
            strides = {layer.stride for layer in self.layers[begin:end]}
            if begin >= end or strides != {1} or self.extents[begin] != self.extents[end]:
                raise ValueError(f"tensor {begin} cannot be added to tensor {end}")

    def spans(self, begin: int, end: int) -> tuple[Span, ...]:
        """The tile of x, and of each result, that rows [begin, end) of the last one need.

        `origin` and `extent` are of the buffer, which is of one size for all tiles of one length;
        [`begin`, `end`) are the rows in it that have to be there: of x fetched, of an inner result
        computed. The rest of a buffer is zero, or passed over.
        """
        if not 0 <= begin < end <= self.extents[-1]:
            raise ValueError(f"rows [{begin}, {end}) are not of {self.extents[-1]}")
        held = needed = range(begin, end)
        spans = {len(self.layers): Span(begin, end - begin, begin, end)}
        for i in reversed(range(len(self.layers))):
            layer = self.layers[i]
            held, needed = layer.held(held), layer.reads(needed, self.extents[i])
            for source, result in self.skips:
                if source == i:
                    needed = _hull(needed, range(spans[result].begin, spans[result].end))
            spans[i] = Span(held.start, len(held), needed.start, needed.stop)
        return tuple(spans[i] for i in range(len(spans)))

    def tiles(self, length: int) -> list[tuple[Span, ...]]:
        """The spans of the tiles of `length` rows of the last result; the last may be shorter."""
        rows = self.extents[-1]
        return [self.spans(begin, min(begin + length, rows)) for begin in range(0, rows, length)]

    def computed(self, length: int) -> list[int]:
        """Rows of x fetched, and of each result computed, by all tiles together, where each begins
        anew: what tiles share counts for each of them."""
        return [
            sum(span.moved for span in spans) for spans in zip(*self.tiles(length), strict=True)
        ]

    def rolled(self, length: int) -> list[int]:
        """The same where each tile takes from the one before it what both need."""
        totals = []
        for spans in zip(*self.tiles(length), strict=True):
            shared = sum(_shared(*pair) for pair in pairwise(spans))
            totals.append(sum(span.moved for span in spans) - shared)
        return totals


def _hull(one: range, other: range) -> range:
    both = [rows for rows in (one, other) if rows]
    if not both:
        return range(0)
    return range(min(rows.start for rows in both), max(rows.stop for rows in both))


def _shared(one: Span, following: Span) -> int:
    """Rows that two tiles in succession both need."""
    return max(0, min(one.end, following.end) - max(one.begin, following.begin))


def chain_axes(problems: Sequence[Problem]) -> dict[Axis, ChainAxis]:
    """The spatial axes of forward convolutions, each with its pool, of which each reads what the
    one before it has written. Raises ValueError where they do not go together."""
    for i, (one, following) in enumerate(pairwise(problems)):
        written = one.n, one.groups * one.k, *one.pooled
        read = following.n, following.groups * following.c, *following.extents
        if written != read:
            raise ValueError(f"problem {i} writes {written}, and problem {i + 1} reads {read}")
    return {
        axis: ChainAxis(problems[0].extents[s], [one for p in problems for one in _layers(p, s)])
        for s, axis in enumerate(SPATIAL)
    }


def _layers(problem: Problem, s: int) -> list[Layer]:
    """The convolution and, if there is one, the pool on spatial axis `s`."""
    if problem.direction != "fwd":
        raise ValueError(f"{problem.direction} is no layer of a chain; fwd is")
    before, after = problem.pad_before[s], problem.pad_after[s]
    layers = [Layer(problem.taps[s], problem.stride[s], problem.dilation[s], before, after)]
    if problem.pool is not None:
        pool = problem.pool
        sizes = pool.window[s], pool.stride[s], 1, pool.before[s], pool.after[s]
        layers.append(Layer(*sizes, pool.ceil))
    return layers
