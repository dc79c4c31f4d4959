"""Seconds of each piece of work of a plan: transfers, rolled rows, convolutions, finishing passes.

The rules are those that the library's cost model documents; the arithmetic is written anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from oocdnn.perfmodel.problem import Axis, Operand, Problem
from oocdnn.perfmodel.profile import Profile, Wire
from oocdnn.perfmodel.tiling import Tiling

# Where an operand is: behind the wire; in the device's memory, from where it is copied into tiles;
# there, and itself the tile; behind the wire and staged from pageable memory or a file.
Home = Literal["host", "device", "tile", "page", "file"]

_FAR_BYTES = 65536
# Of copies whose bounce memory kernels fill and empty, and of convolutions beside those.
_BOUNCE_LOSS, _BESIDE_BOUNCE_LOSS = 1.15, 1.15
_FEW = 16  # channels
_BROKEN = 5  # bytes that an element counts for inside the device where rows begin at any element


def math_of(engine: str, math: str) -> str:
    """The arithmetic that the engine computes in where a problem asks for `math`."""
    if math not in ("fp32x3", "fp32_fast"):
        return math
    if engine == "fp32x3":
        return engine
    return math if math == "fp32_fast" and engine.startswith("cudnn") else "fp32"


@dataclass(frozen=True)
class Engine:
    """What computes the tiles. A channel axis that is cut is computed in whole blocks of
    `channels_at_once`. Tiles of another memory order than the caller's pass through `bounce_bytes`
    of device memory in each direction, where that is not 0."""

    name: str = "direct"
    channels_last: bool = False
    channels_at_once: int = 16
    bounce_bytes: int = 0


class Rates:
    """The times that a profile gives for a problem's tiles on an engine."""

    def __init__(
        self,
        tiling: Tiling,
        profile: Profile,
        engine: Engine,
        homes: Mapping[Operand, Home],
    ) -> None:
        problem = tiling.problem
        self._tiling, self._problem = tiling, problem
        self._profile, self._engine, self._homes = profile, engine, homes
        last = _channels_last(problem)
        self.bounces = engine.channels_last != last and engine.bounce_bytes > 0
        wire = profile.wire(engine.name, last)
        math = math_of(engine.name, problem.math)
        kind = problem.dtype + ("" if math == "fp32" else f"/{math}")
        arithmetic, self._filter_arithmetic = (
            profile.arithmetic(
                engine.name, kind, way, _sums(tiling, made), _has_few_inputs(problem)
            )
            for way, made in ((problem.direction, problem.sum), ("bwd_filter", "dw"))
        )
        if self.bounces:
            slower = {
                name: getattr(wire, name) / _BOUNCE_LOSS for name in ("fetch", "drain", "both")
            }
            wire = replace(wire, **slower)
        operands = (*problem.inputs, *problem.written)
        self.wire, self._arithmetic = self._limited(wire), arithmetic
        self._outside = {operand: _outside_rows(tiling, operand) for operand in operands}
        self._far = {operand: _far_dimensions(problem, operand) for operand in operands}
        self._broken = {operand for operand in operands if _breaks_rows(tiling, operand)}

    def _limited(self, wire: Wire) -> Wire:
        """Where one kind of staging serves both directions, they do no more than that."""
        for place in ("page", "file"):
            ways = [
                any(self.home(operand) == place for operand in operands)
                for operands in (self._problem.inputs, self._problem.written)
            ]
            if all(ways):
                loss = _BOUNCE_LOSS if self.bounces else 1.0
                both = self._profile.staging(place)[2] / loss
                wire = replace(wire, both=min(wire.both, both))
        return wire

    def crosses(self, operand: Operand) -> bool:
        return self.home(operand) not in ("device", "tile")

    def crossing_rate(self, operand: Operand) -> float:
        """Of what crosses the wire: its own, or that of staging, if that is less."""
        drains = operand in self._problem.written
        wire = self.wire.drain if drains else self.wire.fetch
        place = self.home(operand)
        return min(wire, self._profile.staging(place)[drains]) if self.crosses(operand) else wire

    @property
    def together(self) -> float:
        """How fast each of a fetch and a drain goes beside the other."""
        fetch = min(map(self.crossing_rate, self._problem.inputs), default=self.wire.fetch)
        drain = min(map(self.crossing_rate, self._problem.written))
        return min(self.wire.both / (fetch + drain), 1.0)

    @property
    def copy_seconds(self) -> float:
        return self._profile.copy_seconds

    def home(self, operand: Operand) -> Home:
        return self._homes.get(operand, "host")

    def bytes_of(self, operand: Operand, rows: Sequence[int]) -> int:
        """Of a transfer of so many rows in each dimension."""
        return prod(rows) * self._problem.size(operand)

    def transfer_seconds(self, operand: Operand, rows: Sequence[int]) -> float:
        """Of so many rows in each dimension, toward the device or, of what is written, from there.

        A row of memory runs along whole dimensions and the first that is cut; any other step begins
        a new one. Where there is nothing to transfer, there is no row either. Rows that lie far
        apart cost no more than others where they are a whole number of `_FAR_BYTES` long.
        """
        home, wire = self.home(operand), self.wire
        if home == "tile":
            return 0.0
        if not all(rows):
            return self._profile.copy_seconds
        outside = self._outside[operand]
        pieces = prod(rows[d] for d in outside)
        if home == "device":
            moved = float(self.bytes_of(operand, rows))
            if operand in self._broken:
                moved = max(moved, prod(rows) * _BROKEN)
            on_top = pieces * wire.inside_row_bytes
            return self._profile.copy_seconds + (moved + on_top) / wire.inside
        far = prod(rows[d] for d in outside if d in self._far[operand])
        if self._in_whole_pieces(operand, rows):
            far = 0
        if operand in self._problem.written:
            on_top = (pieces - far) * wire.drain_row_bytes + far * wire.far_drain_row_bytes
        else:
            on_top = (pieces - far) * wire.fetch_row_bytes + far * wire.far_fetch_row_bytes
        rate = self.crossing_rate(operand)
        return self._profile.copy_seconds + (self.bytes_of(operand, rows) + on_top) / rate

    def _in_whole_pieces(self, operand: Operand, rows: Sequence[int]) -> bool:
        """Whether memory without a gap is a whole number of `_FAR_BYTES`. It ends in the slowest
        dimension that lies inside of it."""
        inside = [d for d in range(6) if d not in self._outside[operand]]
        strides, size = self._problem.strides_of(operand), self._problem.size(operand)
        last = max(inside, key=lambda d: strides[d], default=None)
        return last is not None and rows[last] * strides[last] * size % _FAR_BYTES == 0

    def move_seconds(self, operand: Operand, elements: int) -> float:
        """Of elements that are rolled over inside the device."""
        if self.home(operand) == "tile":
            return 0.0
        return elements * self._problem.sum_bytes / self._profile.move_bytes_per_second

    def run_seconds(self, index: Mapping[Axis, int]) -> float:
        """Of that tile's convolution; zero rows are computed too. None takes less than reading and
        writing its operands once."""
        problem, tiling = self._problem, self._tiling
        lengths = {axis: tiling.length(axis, number) for axis, number in index.items()}
        rows = lengths["n"] * lengths["groups"] * self._pixels(index)
        if problem.direction == "bwd_bias":
            outputs, channels = rows * lengths["k"], 1
            operations = outputs
        else:
            k, c = self._charged(lengths["k"], problem.k), self._charged(lengths["c"], problem.c)
            outputs, channels = rows * k, min(k, c)
            operations = 2 * outputs * c * prod(problem.taps)
        computing = self._loss * operations * self._arithmetic.seconds(channels, outputs)
        own = self._profile.run_seconds + max(computing, self._pass_seconds(index))
        return own + self._along_seconds(index)

    @property
    def _loss(self) -> float:
        return _BESIDE_BOUNCE_LOSS if self.bounces else 1.0

    def _along_seconds(self, index: Mapping[Axis, int]) -> float:
        """Of what comes along, of that tile: a convolution for dw, and for db a tile of dy to read
        once, which where tiles share rows is made for it."""
        problem, profile, seconds = self._problem, self._profile, 0.0
        outputs = self._tiling.elements("y", index)
        if "dw" in problem.along:
            operations = 2 * outputs * problem.c * prod(problem.taps)
            one = self._filter_arithmetic.seconds(min(problem.k, problem.c), outputs)
            computing = self._loss * operations * one
            seconds += profile.run_seconds + max(computing, self._pass_seconds(index))
        if "db" in problem.along:
            reading = outputs * problem.element_bytes / (2 * profile.move_bytes_per_second)
            again = self.restore_seconds(index) if problem.direction == "bwd_data" else 0.0
            seconds += profile.run_seconds + reading + again
        return seconds

    def _pixels(self, index: Mapping[Axis, int]) -> int:
        """Of y in that tile. Backward data computes every pixel of dx in it, each stride's worth of
        which counts as one of y."""
        problem = self._problem
        if problem.direction != "bwd_data":
            return self._tiling.outputs(index)
        extents = [span.extent for span in self._tiling.spans("x", index)[3:]]
        return prod(-(-n // stride) for n, stride in zip(extents, problem.stride, strict=True))

    def _pass_seconds(self, index: Mapping[Axis, int]) -> float:
        """The rate of moves counts bytes that are read and those that are written."""
        operands = {*self._problem.inputs, self._problem.sum} & {"x", "w", "y"}
        if self._problem.restores:
            operands |= {"y"}
        elements = sum(self._tiling.elements(operand, index) for operand in operands)
        return elements * self._problem.element_bytes / (2 * self._profile.move_bytes_per_second)

    def finish_seconds(self, index: Mapping[Axis, int]) -> float:
        """Of the pass over that tile's finished sums: it reads them and what is as large, and
        writes them back, or what is made of them."""
        problem, tiling = self._problem, self._tiling
        passes = int(problem.sums)
        if problem.finishes:
            passes += 1 + (problem.output == problem.sum) + len(problem.reads & {"old", "residual"})
        bytes_ = tiling.elements(problem.sum, index) * problem.sum_bytes * passes
        made = set(problem.written) & {"z", "saved"}
        bytes_ += sum(tiling.elements(o, index) * problem.size(o) for o in made)
        pools = problem.pool is not None and prod(problem.pool.window) > 1
        return bytes_ / (self.wire.pool if pools else self.wire.finish)

    def normalize_seconds(self, index: Mapping[Axis, int]) -> float:
        """Of the pass over that tile of what is convolved, which reads and writes it."""
        problem = self._problem
        if not problem.normalizes:
            return 0.0
        bytes_ = 2 * self._tiling.elements(problem.source, index) * problem.sum_bytes
        return bytes_ / self.wire.normalize

    def restore_seconds(self, index: Mapping[Axis, int]) -> float:
        """Of making that tile of dy."""
        problem, tiling = self._problem, self._tiling
        made: tuple[Operand, ...] = ("y", "z", "saved") if problem.saved else ("y", "z")
        bytes_ = sum(tiling.elements(o, index) * problem.size(o) for o in made)
        return bytes_ / self.wire.restore

    def _charged(self, channels: int, all_channels: int) -> int:
        block = self._engine.channels_at_once
        return min(-(-channels // block) * block, all_channels)


def _has_few_inputs(problem: Problem) -> bool:
    """And more channels out."""
    return problem.groups == 1 and problem.c < _FEW <= problem.k


def _sums(tiling: Tiling, operand: Operand) -> bool:
    """Whether tiles of the result are in the accumulator's type, another than the problem's: each
    is finished, or is but a part of a sum."""
    problem = tiling.problem
    moving = problem.axes(operand)
    partial = any(count > 1 and axis not in moving for axis, count in tiling.counts.items())
    return problem.element_bytes < problem.sum_bytes and (problem.finishes or partial)


def _channels_last(problem: Problem) -> bool:
    """Whether y's channels, or z's where y is on the way, lie side by side for the caller."""
    place: Operand = "z" if problem.pool or problem.restores else "y"
    strides, dims = problem.strides_of(place), problem.dims(place)
    innermost = 5 if dims[5] > 1 else 4
    return dims[2] > 1 and strides[2] < strides[innermost]


def _outside_rows(tiling: Tiling, operand: Operand) -> list[int]:
    """The dimensions in which each step begins another row of memory."""
    problem = tiling.problem
    dims, strides, axes = (
        problem.dims(operand),
        problem.strides_of(operand),
        problem.axes(operand),
    )
    inside, run = set(), 1
    for d in sorted((d for d in range(6) if dims[d] > 1), key=lambda d: strides[d]):
        if strides[d] != run:
            break
        inside.add(d)
        axis = axes[d]
        if axis is not None and tiling.counts[axis] > 1:
            break
        run *= dims[d]
    return [d for d in range(6) if d not in inside]


def _breaks_rows(tiling: Tiling, operand: Operand) -> bool:
    """Whether memory runs along columns, which are cut."""
    problem = tiling.problem
    axis = problem.axes(operand)[5]
    runs = problem.dims(operand)[5] > 1 and problem.strides_of(operand)[5] == 1
    return runs and axis is not None and tiling.counts[axis] > 1


def _far_dimensions(problem: Problem, operand: Operand) -> set[int]:
    strides = problem.strides_of(operand)
    return {d for d in range(6) if abs(strides[d]) * problem.size(operand) >= _FAR_BYTES}
