"""A convolution as the model sees it: sizes, strides, element type, and what its finish reads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Operand = Literal[
    "x", "w", "y", "bias", "scale", "residual", "old", "z", "saved", "input", "dw", "db",
    "prologue", "sums",
]  # fmt: skip
Axis = Literal["n", "groups", "k", "c", "d", "h", "w"]
Direction = Literal["fwd", "bwd_data", "bwd_filter", "bwd_bias"]
Spatial = tuple[int, int, int]  # D, H, W

OPERANDS: tuple[Operand, ...] = (
    "x", "w", "y", "bias", "scale", "residual", "old", "z", "saved", "input", "dw", "db",
    "prologue", "sums",
)  # fmt: skip
AXES: tuple[Axis, ...] = ("n", "groups", "k", "c", "d", "h", "w")
SPATIAL: tuple[Axis, ...] = ("d", "h", "w")
DIRECTIONS: tuple[Direction, ...] = ("fwd", "bwd_data", "bwd_filter", "bwd_bias")

_INPUTS: dict[Direction, tuple[Operand, ...]] = {
    "fwd": ("x", "w"),
    "bwd_data": ("w", "y"),
    "bwd_filter": ("x", "y"),
    "bwd_bias": ("y",),
}
_OUTPUT: dict[Direction, Operand] = {
    "fwd": "y",
    "bwd_data": "x",
    "bwd_filter": "w",
    "bwd_bias": "bias",
}
_ELEMENT_BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}


@dataclass(frozen=True)
class Pool:
    """Windows over y, on each spatial axis."""

    window: Spatial
    stride: Spatial
    before: Spatial
    after: Spatial
    ceil: bool = False

    def rows(self, axis: int, extent: int) -> int:
        """Of z, where y has `extent`."""
        room = extent + self.before[axis] + self.after[axis] - self.window[axis]
        rows, rest = divmod(room, self.stride[axis])
        another = self.ceil and rest and (rows + 1) * self.stride[axis] < extent + self.before[axis]
        return rows + 1 + bool(another)


NO_POOL = Pool((1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0))


@dataclass(frozen=True)
class Problem:
    """A convolution. `c` and `k` are per group; the triples are D, H, W, with 1 where there is no
    such axis. x is dx, w dw and y dy where the direction says so.

    `finishes`: a pass over each finished output tile is needed (alpha, beta or an epilogue);
    `reads`: what that pass reads, of bias, scale, residual and old (the output before the call).
    `pool`: what leaves is z, y pooled, and y stays on the device. `saved`: so many bits of each
    element of z ("winners") or of y ("alive") leave too, in rows along W of whole bytes. Gradients
    with either read dz and the bits, of which dy is restored on the device.
    `along`: the gradients that come along with dx, of dw and db, or db with dw.
    `normalizes`: what is convolved goes through a pass when it has been fetched; `affine`: with two
    numbers for each sample and channel, which are fetched once. `sums`: five such numbers of what
    is written leave at the end.
    `strides`: in elements, of an operand's six dimensions (see `dims`); row-major where missing.
    """

    direction: Direction
    n: int
    groups: int
    k: int
    c: int
    extents: Spatial
    taps: Spatial
    outputs: Spatial
    pad_before: Spatial = (0, 0, 0)
    pad_after: Spatial = (0, 0, 0)
    stride: Spatial = (1, 1, 1)
    dilation: Spatial = (1, 1, 1)
    dtype: str = "f32"
    math: str = "fp32"
    finishes: bool = False
    reads: frozenset[Operand] = frozenset()
    pool: Pool | None = None
    saved: tuple[Literal["winners", "alive"], int] | None = None
    along: frozenset[Operand] = frozenset()
    normalizes: bool = False
    affine: bool = False
    sums: bool = False
    strides: Mapping[Operand, tuple[int, ...]] = field(default_factory=dict)

    @property
    def sum(self) -> Operand:
        """What the convolution itself computes."""
        return _OUTPUT[self.direction]

    @property
    def output(self) -> Operand:
        return "z" if self.pool and self.direction == "fwd" else self.sum

    @property
    def restores(self) -> bool:
        """Whether dy is made on the device."""
        return self.direction != "fwd" and bool(self.pool or self.saved or self.along)

    @property
    def written(self) -> tuple[Operand, ...]:
        """What is drained, in order."""
        saves = self.saved and self.direction == "fwd"
        along = tuple(operand for operand in OPERANDS if operand in self.along)
        sums: tuple[Operand, ...] = ("sums",) if self.sums else ()
        return (self.output, "saved") if saves else (self.output, *along, *sums)

    @property
    def source(self) -> Operand:
        """What is convolved."""
        return "x" if self.direction == "fwd" else "y"

    @property
    def windows(self) -> Pool:
        """Without a pool z is y."""
        return self.pool or NO_POOL

    @property
    def pooled(self) -> Spatial:
        """The extents of z."""
        d, h, w = (self.windows.rows(axis, self.outputs[axis]) for axis in range(3))
        return d, h, w

    def reached(self, axis: int) -> int:
        """The rows of y up to the last that a window reaches."""
        pool = self.windows
        last = (self.pooled[axis] - 1) * pool.stride[axis] - pool.before[axis]
        return min(last + pool.window[axis], self.outputs[axis])

    def size(self, operand: Operand) -> int:
        """Bytes of an element of the caller's."""
        own = {"saved": 1, "prologue": self.sum_bytes, "sums": 8}
        return own.get(operand, self.element_bytes)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """What is fetched, in the order in which a step fetches it."""
        read: set[Operand] = {*_INPUTS[self.direction], *self.reads}
        if "dw" in self.along:
            read.add("input")
        if self.affine:
            read.add("prologue")
        if self.restores:
            read.discard("y")
            read.add("z")
        if self.restores and self.saved:
            read.add("saved")
        return tuple(operand for operand in OPERANDS if operand in read)

    @property
    def element_bytes(self) -> int:
        return _ELEMENT_BYTES[self.dtype]

    @property
    def sum_bytes(self) -> int:
        """Of an element of an accumulator."""
        return max(self.element_bytes, 4)

    def shaped_as(self, operand: Operand) -> Operand:
        """The operand, or what else has its shape: the sum, x, w."""
        if operand in ("residual", "old"):
            return self.sum
        return "x" if operand == "input" else "w" if operand == "dw" else operand

    def dims(self, operand: Operand) -> tuple[int, ...]:
        """x: N G C D H W, w: G K C T R S, y: N G K O P Q, bias and scale: 1 G channels 1 1 1."""
        place = self.shaped_as(operand)
        if place == "x":
            return (self.n, self.groups, self.c, *self.extents)
        if place == "w":
            return (self.groups, self.k, self.c, *self.taps)
        if place == "y":
            return (self.n, self.groups, self.k, *self.outputs)
        if place == "z":
            return (self.n, self.groups, self.k, *self.pooled)
        if place == "saved" and self.saved:
            what, bits = self.saved
            winners = what == "winners"
            d, h, w = self.pooled if winners else (self.reached(axis) for axis in range(3))
            return (self.n, self.groups, self.k, d, h, -(-w * bits // 8))
        if place in ("prologue", "sums"):
            of_x = (self.direction == "fwd") == (place == "prologue")
            numbers = 2 if place == "prologue" else 5
            return (self.n, 1, self.groups * (self.c if of_x else self.k), 1, 1, numbers)
        of_x = self.direction == "bwd_data" and place != "db"
        return (1, self.groups, self.c if of_x else self.k, 1, 1, 1)

    def axes(self, operand: Operand) -> tuple[Axis | None, ...]:
        """The axis that cuts each of the operand's dimensions; None: nothing does."""
        place = self.shaped_as(operand)
        if place == "x":
            return ("n", "groups", "c", "d", "h", "w")
        if place == "w":
            return ("groups", "k", "c", None, None, None)
        if place in ("y", "z", "saved"):
            return ("n", "groups", "k", "d", "h", "w")
        if place in ("prologue", "sums"):
            return (None,) * 6
        of_x = self.direction == "bwd_data" and place != "db"
        return (None, "groups", "c" if of_x else "k", None, None, None)

    def strides_of(self, operand: Operand) -> tuple[int, ...]:
        """In elements; what the output held before lies where the output does."""
        place = self.output if operand == "old" else operand
        dims = self.dims(operand)
        return self.strides.get(place) or tuple(math.prod(dims[d + 1 :]) for d in range(6))

    def reach(self, axis: int) -> int:
        """Rows from a filter's first tap to its last on spatial axis `axis`."""
        return (self.taps[axis] - 1) * self.dilation[axis] + 1
