"""A 3-D U-Net with group norm, by oocdnn from files to files, and by PyTorch on a part of it.

Each convolution's result is normalised and activated where the next one reads it, the two halves
of a skip connection are slices of one array, and what is upsampled is nowhere. Arrays come from
`make`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import oocdnn

GROUPS = 4
# Rows around a part that reach it: two convolutions on the first level, one of the upsampled, three
# of the second level, two of the third, and the steps between them.
HALO = 32

Make = Callable[[str, tuple[int, ...]], np.ndarray]


@dataclass
class Weights:
    """Filters by layer, and weight and bias of the norm behind each."""

    filters: dict[str, np.ndarray]
    norms: dict[str, tuple[np.ndarray, np.ndarray]]


def shapes(first: int, out: int) -> dict[str, tuple[int, ...]]:
    """Of the filters; transposed convolutions have [C, K]."""
    second, third = 2 * first, 4 * first
    return {
        "a1": (first, first, 3, 3, 3),
        "a2": (first, first, 3, 3, 3),
        "b0": (second, first, 3, 3, 3),
        "b1": (second, second, 3, 3, 3),
        "c0": (third, second, 3, 3, 3),
        "c1": (third, third, 3, 3, 3),
        "u2": (third, second, 2, 2, 2),
        "d2": (second, 2 * second, 3, 3, 3),
        "u1": (first, second, 3, 3, 3),
        "e1": (first, 2 * first, 3, 3, 3),
        "out": (out, first, 1, 1, 1),
    }


def random_weights(seed: int, first: int, out: int = 2) -> Weights:
    rng = np.random.default_rng(seed)
    filters, norms = {}, {}
    for name, shape in shapes(first, out).items():
        spread = float(np.prod(shape[1:])) ** -0.5
        filters[name] = (rng.standard_normal(shape) * spread).astype(np.float32)
        channels = shape[1] if name == "u2" else shape[0]
        weight, bias = rng.uniform(0.5, 1.5, channels), rng.uniform(-0.5, 0.5, channels)
        norms[name] = weight.astype(np.float32), bias.astype(np.float32)
    return Weights(filters, norms)


@dataclass
class Run:
    """What a pass over the whole leaves: the result, and the sums of each layer."""

    out: np.ndarray
    sums: dict[str, oocdnn.Sums] = field(default_factory=dict)


def prologue(weights: Weights, sums: dict[str, oocdnn.Sums], name: str) -> oocdnn.Prologue:
    return oocdnn.group_norm(sums[name], GROUPS, *weights.norms[name], "relu")


def run(
    x: np.ndarray,
    weights: Weights,
    make: Make,
    drop: Callable[[str], None] = lambda name: None,
    watch: Callable[[str], None] = lambda name: None,
) -> Run:
    """The net on a whole volume. `drop` is told which array is not needed any more, `watch` which
    layer is done."""
    filters, sums = weights.filters, {name: oocdnn.Sums() for name in weights.norms}
    first, size = x.shape[1], x.shape[2:]
    half, quarter = (tuple(n // f for n in size) for f in (2, 4))
    shape = {
        "a1": (first, *size), "cat1": (2 * first, *size), "e1": (first, *size),
        "b0": (2 * first, *half), "cat2": (4 * first, *half), "d2": (2 * first, *half),
        "c0": (4 * first, *quarter), "c1": (4 * first, *quarter),
        "out": (len(filters["out"]), *size),
    }  # fmt: skip
    made: dict[str, np.ndarray] = {}

    def array(name: str) -> np.ndarray:
        if name not in made:
            made[name] = make(name, (1, *shape[name]))
        return made[name]

    def before(*names: str) -> oocdnn.Prologue:
        return oocdnn.concatenate([prologue(weights, sums, name) for name in names])

    def conv(name: str, source: np.ndarray, out: np.ndarray, *normed: str, **keywords) -> None:
        keywords.setdefault("padding", 1)
        function = keywords.pop("function", oocdnn.conv3d)
        function(
            source, filters[name], out=out, sums=sums[name],
            prologue=before(*normed) if normed else None, **keywords,
        )  # fmt: skip
        watch(name)

    def gone(name: str) -> None:
        del made[name]
        drop(name)

    conv("a1", x, array("a1"))
    conv("a2", array("a1"), array("cat1")[:, :first], "a1")
    gone("a1")
    conv("b0", array("cat1")[:, :first], array("b0"), "a2", stride=2)
    conv("b1", array("b0"), array("cat2")[:, : 2 * first], "b0")
    gone("b0")
    conv("c0", array("cat2")[:, : 2 * first], array("c0"), "b1", stride=2)
    conv("c1", array("c0"), array("c1"), "c0")
    gone("c0")
    up = {"function": oocdnn.conv_transpose3d, "padding": 0, "stride": 2}
    conv("u2", array("c1"), array("cat2")[:, 2 * first :], "c1", **up)
    gone("c1")
    conv("d2", array("cat2"), array("d2"), "b1", "u2")
    gone("cat2")
    up = {"function": oocdnn.conv_upsample}
    conv("u1", array("d2"), array("cat1")[:, first:], "d2", **up)
    gone("d2")
    conv("e1", array("cat1"), array("e1"), "a2", "u1")
    gone("cat1")
    conv("out", array("e1"), array("out"), "e1", padding=0)
    gone("e1")
    return Run(made["out"], sums)


def reference(x: np.ndarray, weights: Weights, sums: dict[str, oocdnn.Sums] | None = None):
    """The net by PyTorch, layer by layer. Without `sums` the norms are PyTorch's own; with the sums
    of a whole x may be a part of it, whose result is right but for `HALO` rows at each side."""
    import torch
    from torch.nn import functional

    filters = {name: torch.from_numpy(w) for name, w in weights.filters.items()}

    def normed(name: str, y):
        weight, bias = map(torch.from_numpy, weights.norms[name])
        if sums is None:
            return torch.relu(functional.group_norm(y, GROUPS, weight, bias))
        table = torch.from_numpy(prologue(weights, sums, name).table)[0, :, :, None, None, None]
        return torch.relu(y * table[:, 0] + table[:, 1])

    def conv(name: str, y, **keywords):
        keywords.setdefault("padding", 1)
        return normed(name, functional.conv3d(y, filters[name], **keywords))

    with torch.no_grad():
        a2 = conv("a2", conv("a1", torch.from_numpy(x)))
        b1 = conv("b1", conv("b0", a2, stride=2))
        c1 = conv("c1", conv("c0", b1, stride=2))
        u2 = normed("u2", functional.conv_transpose3d(c1, filters["u2"], stride=2))
        d2 = conv("d2", torch.cat([b1, u2], 1))
        u1 = conv("u1", functional.interpolate(d2, scale_factor=2))
        e1 = conv("e1", torch.cat([a2, u1], 1))
        return functional.conv3d(e1, filters["out"]).numpy()
