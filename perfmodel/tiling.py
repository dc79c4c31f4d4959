"""Which rows of each tensor a tile needs, worked out from the convolution's definition.

Output row q and filter tap t meet input row q * stride + t * dilation - pad_before. All halos come
from that one line. Tiles of one tiling have one shape, but for the ends of a tapered axis: what
lies outside of a tensor is zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from oocdnn.perfmodel.problem import AXES, SPATIAL, Axis, Operand, Problem


@dataclass(frozen=True)
class Span:
    """Rows of a tile in one dimension: `extent` of them from `origin`, of which those in
    [begin, end) are elements of the tensor that the tile moves."""

    origin: int
    extent: int
    begin: int
    end: int

    @property
    def moved(self) -> int:
        return max(self.end - self.begin, 0)


def _clipped(origin: int, extent: int, size: int) -> Span:
    begin = min(max(origin, 0), size)
    return Span(origin, extent, begin, max(min(origin + extent, size), begin))


def _in_bytes(row: Span, bits: int) -> Span:
    """Where elements of so many bits lie; they begin at multiples of 8."""
    end = -(-row.end * bits // 8)
    return Span(row.origin // 8 * bits, -(-row.extent * bits // 8), row.begin // 8 * bits, end)


class Tiling:
    """A problem cut into tiles of these lengths on each axis.

    The spatial axes cut y's rows, or z's where y is pooled, of backward data those of dx. Missing
    lengths mean a whole axis; those of a cut axis of backward data are rounded up to whole strides,
    so that every tile begins at the same phase, where dy is restored also to those of the pool, and
    of a cut W to 8 where there are bits, so that a tile's begin with a whole byte.
    `padding_as_data`: tiles hold the padding as zero rows on every axis, as they always do on axes
    that are cut or padded unevenly, and have no other padding; without it tiles of backward data
    are padded instead of holding rows that others have. `taper`: a cut axis and the length of its
    first tile, which is shorter than the others; the last is as
    short where it suffices.
    """

    def __init__(
        self,
        problem: Problem,
        lengths: Mapping[Axis, int],
        padding_as_data: bool = False,
        taper: tuple[Axis, int] | None = None,
    ) -> None:
        self.problem = problem
        self._all_as_data = padding_as_data
        self.taper = taper
        self.extents = self._extents()
        self.lengths = {axis: self._length(axis, lengths.get(axis)) for axis in AXES}
        self._ranges = {axis: self._cut_axis(axis) for axis in AXES}
        self.counts = {axis: len(self._ranges[axis]) for axis in AXES}
        self._spans: dict[tuple[Axis, int], dict[str, Span]] = {}

    def spans(self, operand: Operand, index: Mapping[Axis, int]) -> tuple[Span, ...]:
        """The operand's piece of the tile with that number on each axis, by its dimensions."""
        place = self.problem.shaped_as(operand)
        # Whose rows a spatial axis means.
        name = place if place in ("x", "z", "saved") else "y"
        return tuple(
            Span(0, size, 0, size) if axis is None else self._cut(axis, index[axis])[name]
            for axis, size in zip(
                self.problem.axes(operand), self.problem.dims(operand), strict=True
            )
        )

    def length(self, axis: Axis, number: int) -> int:
        """Of the tile with that number on the axis."""
        return self._ranges[axis][number][1]

    def outputs(self, index: Mapping[Axis, int]) -> int:
        """Pixels of y that the tile computes, or computes from."""
        return prod(self._cut(axis, index[axis])["y"].extent for axis in SPATIAL)

    def elements(self, operand: Operand, index: Mapping[Axis, int]) -> int:
        """Of the operand's tile, zero rows included."""
        return prod(span.extent for span in self.spans(operand, index))

    @property
    def steps(self) -> int:
        return prod(self.counts.values())

    def _extents(self) -> dict[Axis, int]:
        problem = self.problem
        driving = problem.extents if problem.direction == "bwd_data" else problem.outputs
        if problem.direction == "fwd":
            driving = problem.pooled
        channels = 1 if problem.direction == "bwd_bias" else problem.c
        sizes = (problem.n, problem.groups, problem.k, channels, *driving)
        return dict(zip(AXES, sizes, strict=True))

    def _length(self, axis: Axis, wanted: int | None) -> int:
        whole = self.extents[axis]
        length = whole if wanted is None else min(max(wanted, 1), whole)
        if axis in ("k", "c") and self.problem.along:
            return whole  # sums that come along reside
        if axis not in SPATIAL or length == whole:
            return length
        s, problem = SPATIAL.index(axis), self.problem
        unit = problem.stride[s] if problem.direction == "bwd_data" else 1
        unit *= 8 if problem.saved and axis == "w" else 1
        unit *= problem.windows.stride[s] if problem.restores else 1
        return min(-(-length // unit) * unit, whole)

    def _cut_axis(self, axis: Axis) -> list[tuple[int, int]]:
        """Where each tile of the axis begins, and its length."""
        usual, extent = self.lengths[axis], self.extents[axis]
        tapered = self.taper is not None and self.taper[0] == axis
        short = self._length(axis, self.taper[1]) if self.taper and tapered else usual
        tiles = [(0, short)]
        while (begin := sum(tiles[-1])) < extent:
            tiles.append((begin, short if extent - begin <= short else usual))
        return tiles

    def _cut(self, axis: Axis, number: int) -> dict[str, Span]:
        key = axis, number
        if key not in self._spans:
            self._spans[key] = self._cut_anew(axis, number)
        return self._spans[key]

    def _cut_anew(self, axis: Axis, number: int) -> dict[str, Span]:
        begin, length = self._ranges[axis][number]
        if axis in SPATIAL:
            return self._spatial(SPATIAL.index(axis), begin, length)
        span = _clipped(begin, length, self.extents[axis])
        return {"x": span, "y": span, "z": span, "saved": span}

    def _spatial(self, s: int, begin: int, length: int) -> dict[str, Span]:
        problem = self.problem
        if problem.direction == "bwd_bias":
            spans = {"y": _clipped(begin, length, problem.outputs[s])}
            return self._sources(s, length, spans)
        cut = length < self.extents[SPATIAL[s]]
        uneven = problem.pad_before[s] != problem.pad_after[s]
        if not (cut or uneven or self._all_as_data):
            whole = ("x", problem.extents), ("y", problem.outputs), ("z", problem.pooled)
            spans = {name: Span(0, sizes[s], 0, sizes[s]) for name, sizes in whole}
            if problem.saved:
                size = problem.dims("saved")[3 + s]
                spans["saved"] = Span(0, size, 0, size)
            return spans
        if problem.direction == "bwd_data":
            return self._sources(s, length, self._rows_of_dx(s, begin, length))
        if problem.direction == "fwd":
            return self._rows_of_z(s, begin, length)
        return self._sources(s, length, self._rows_of_y(s, begin, length))

    def _sources(self, s: int, length: int, spans: dict[str, Span]) -> dict[str, Span]:
        """With what the rows of dy are restored from: as many rows of dz as have windows that reach
        so many of dy wherever these begin, and the bits of whole groups of 8 elements; or all,
        where the axis is not cut."""
        problem, pool, y = self.problem, self.problem.windows, spans["y"]
        if not problem.restores:
            return spans
        rows = (y.extent - 1 + pool.window[s] - 1) // pool.stride[s] + 1
        start = y.origin if problem.direction == "bwd_data" else y.begin  # of what is wanted
        first = (start + pool.before[s] - pool.window[s]) // pool.stride[s] + 1
        whole = length == self.extents[SPATIAL[s]]
        size = problem.pooled[s]
        spans["z"] = Span(0, size, 0, size) if whole else _clipped(first, rows, size)
        if problem.saved:
            what, bits = problem.saved
            begin, count, size = first, rows, problem.dims("saved")[3 + s]
            if what == "alive":
                begin, count = start, y.extent
            if s == 2:
                begin, count = begin // 8 * bits, (count + 14) // 8 * bits
            spans["saved"] = Span(0, size, 0, size) if whole else _clipped(begin, count, size)
        return spans

    def _rows_of_z(self, s: int, begin: int, length: int) -> dict[str, Span]:
        """A tile of rows of z, and the rows of y in their windows. Where bits of y are saved, the
        tile has all rows up to the next one, and along W begins at a multiple of 8."""
        problem, pool = self.problem, self.problem.windows
        alive = problem.saved is not None and problem.saved[0] == "alive"
        unit = 8 if alive and s == 2 else 1
        origin = (begin * pool.stride[s] - pool.before[s]) // unit * unit
        end = (begin + length - 1) * pool.stride[s] - pool.before[s] + pool.window[s]
        following = origin + length * pool.stride[s]
        if alive:
            end = max(end, following)
        first = origin * problem.stride[s] - problem.pad_before[s]
        reach = (end - origin - 1) * problem.stride[s] + problem.reach(s)
        z = Span(begin, length, begin, min(begin + length, problem.pooled[s]))
        spans = {
            "x": _clipped(first, reach, problem.extents[s]),
            "y": _clipped(origin, end - origin, problem.outputs[s]),
            "z": z,
        }
        if problem.saved:
            bits = z
            if alive:
                rows = problem.reached(s)
                last = rows if begin + length >= problem.pooled[s] else following
                bits = Span(origin, end - origin, max(origin, 0), max(min(last, rows), 0))
            spans["saved"] = bits if s < 2 else _in_bytes(bits, problem.saved[1])
        return spans

    def _rows_of_y(self, s: int, begin: int, length: int) -> dict[str, Span]:
        """A tile of rows of dy. Backward filter's last tile begins earlier, so that all its rows
        exist, and takes of dy only the rows that no other tile has."""
        problem = self.problem
        size = problem.outputs[s]
        origin = min(begin, size - length) if problem.direction == "bwd_filter" else begin
        first = origin * problem.stride[s] - problem.pad_before[s]
        reach = (length - 1) * problem.stride[s] + problem.reach(s)
        return {
            "x": _clipped(first, reach, problem.extents[s]),
            "y": Span(origin, length, begin, min(begin + length, size)),
        }

    def _rows_of_dx(self, s: int, begin: int, length: int) -> dict[str, Span]:
        """A tile of rows of dx: from dy's last row whose reach ends at or before the tile's first
        row, to the last one whose first tap meets a row of the tile."""
        problem = self.problem
        stride, pad = problem.stride[s], problem.pad_before[s]
        reach = problem.reach(s)
        first = (begin + pad - (reach - 1)) // stride
        last = (begin + length - 1 + pad) // stride
        origin, end = first * stride - pad, max(begin + length, last * stride - pad + reach)
        if not self._all_as_data:  # padding is below the reach, and leaves as many rows
            padding = min(begin - origin, reach - 1, (last - first) * stride // 2)
            end = max(begin + length, last * stride - pad + reach - padding)
            origin += padding
        return {
            "x": Span(origin, end - origin, begin, min(begin + length, problem.extents[s])),
            "y": _clipped(first, last - first + 1, problem.outputs[s]),
        }
