"""Arguments of calls that are right."""

from __future__ import annotations

import functools
import inspect
import random
from typing import Any

from fuzz import odd

PROBLEMS = (
    "conv2d:fwd x1x2x4x4 w2x2x3x3", "conv1d:bwd_data x1x2x9 w2x2x3 pad1 f64",
    "conv3d:bwd_filter x1x1x3x4x5 w2x1x1x2x3 +db", "conv2d:bwd_bias y2x3x4x4",
    "conv2d:fwd x2x2x6x6 w2x2x3x3 +bias +relu +maxpool2",
)  # fmt: skip
PLANS = ("direct n1 h2 slots 2", "reference", "n1", "k1 order nk slots 3", "direct h1 taper n1")
ACTIVATIONS = (
    None,
    "relu",
    "sigmoid",
    "tanh",
    ("elu", 1.0),
    ("clipped_relu", 6.0),
    ("swish", 1.0),
    ("softplus", 1.0),
)


class Sizes:
    """A convolution that gives something."""

    def __init__(self, r: random.Random) -> None:
        self.rank = r.choice((1, 2, 2, 3))
        self.groups = r.choice((1, 1, 1, 2))
        self.n, self.k = r.randint(1, 2), self.groups * r.randint(1, 2)
        self.c = self.groups * r.randint(1, 2)
        self.taps = tuple(r.randint(1, 3) for _ in range(self.rank))
        self.stride, self.padding = r.choice((1, 1, 2)), r.choice((0, 1))
        self.extents = tuple(r.randint(tap, 5) for tap in self.taps)
        self.dtype = r.choice(odd.TYPES)

    @property
    def x(self) -> tuple[int, ...]:
        return (self.n, self.c, *self.extents)

    @property
    def w(self) -> tuple[int, ...]:
        return (self.k, self.c // self.groups, *self.taps)

    @property
    def y(self) -> tuple[int, ...]:
        room = zip(self.extents, self.taps, strict=True)
        out = ((e + 2 * self.padding - t) // self.stride + 1 for e, t in room)
        return (self.n, self.k, *out)

    def moves(self) -> dict[str, Any]:
        return {"stride": self.stride, "padding": self.padding, "groups": self.groups}


@functools.cache
def parameters_of(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
