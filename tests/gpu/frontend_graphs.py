"""Random convolutions for dropin_frontend.py: sizes, numbers, and how results compare."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

BITS = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
ADDING = 2.0**-23  # tensor cores truncate sums


@dataclass(frozen=True)
class Graph:
    direction: str  # fwd, bwd_data, bwd_filter
    x: tuple[int, ...]
    w: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: str
    channels_last: bool
    epilogue: tuple[str, ...]

    @property
    def y(self) -> tuple[int, ...]:
        spatial = (
            (extent + 2 * pad - (taps - 1) * dilation - 1) // stride + 1
            for extent, taps, pad, stride, dilation in zip(
                self.x[2:], self.w[2:], self.padding, self.stride, self.dilation, strict=True
            )
        )
        return (self.x[0], self.w[0], *spatial)

    @property
    def output(self) -> str:
        return {"fwd": "y", "bwd_data": "x", "bwd_filter": "w"}[self.direction]

    def terms(self) -> int:
        """The most products that one output sums."""
        if self.direction == "bwd_filter":
            return int(np.prod(self.y[2:])) * self.x[0]
        channels = self.w[1] if self.direction == "fwd" else self.w[0]
        return int(np.prod(self.w[2:])) * channels

    def products(self) -> float:
        return float(np.prod(self.y)) * float(np.prod(self.w[1:]))

    def __str__(self) -> str:
        def text(sizes: tuple[int, ...]) -> str:
            return "x".join(map(str, sizes))

        order = "nhwc" if self.channels_last else "nchw"
        end = "".join(f" +{step}" for step in self.epilogue)
        return (
            f"conv{len(self.x) - 2}d:{self.direction} x{text(self.x)} w{text(self.w)} "
            f"pad{text(self.padding)} str{text(self.stride)} dil{text(self.dilation)} "
            f"{self.dtype} {order}{end}"
        )


# Graphs that were refused with the drop-in and a limit, while the real library ran them.
KNOWN = (
    Graph("fwd", (2, 16, 128, 16), (88, 16, 3, 7), (0, 1), (1, 1), (1, 1), "f16", True, ()),
    Graph("fwd", (8, 40, 104, 8), (8, 40, 3, 1), (1, 0), (1, 1), (1, 1), "f32", True, ()),
    Graph(
        "fwd", (1, 128, 16, 64), (88, 128, 3, 3), (0, 0), (2, 2), (1, 1), "f32", True,
        ("bias", "relu"),
    ),
    Graph("bwd_data", (8, 176, 128, 56), (64, 176, 7, 7), (3, 3), (2, 3), (1, 1), "f32", True, ()),
    Graph(
        "bwd_filter", (8, 128, 64, 88), (200, 128, 1, 1), (0, 0), (1, 3), (1, 2), "f32", True, ()
    ),
    Graph(
        "bwd_filter", (1, 200, 40, 128, 40), (104, 200, 3, 3, 5), (1, 1, 2), (3, 2, 3), (1, 1, 1),
        "bf16", True, (),
    ),
)  # fmt: skip
MOST_ELEMENTS = 1 << 22  # of a tensor
MOST_PRODUCTS = 2e10  # of a graph
EPILOGUES = ((), (), (), ("bias",), ("relu",), ("bias", "relu"), ("scale", "bias"),
             ("add",), ("add", "relu"), ("bias", "add", "relu"))  # fmt: skip


def drawn(draw: random.Random) -> Graph | None:
    """A random graph; nothing where it has no output, or is too large for many of them."""
    rank = draw.choice((2, 2, 3))
    direction = draw.choice(("fwd", "bwd_data", "bwd_filter"))
    groups = draw.choice((1, 1, 1, 1, 2, 4))
    step = draw.choice((1, 8, 8, 8))
    channels = step * draw.randint(1, 24) * groups
    filters = step * draw.randint(1, 24) * groups
    taps = tuple(draw.choice((1, 3, 3, 5, 7)[: 5 - (rank - 2)]) for _ in range(rank))
    extents = tuple(8 * draw.randint(1, 16 if rank == 2 else 6) for _ in range(rank))
    if draw.random() < 0.3:  # groups of one channel each
        channels = filters = groups = 8 * draw.randint(1, 12)
    made = Graph(
        direction,
        (draw.choice((1, 2, 8)), channels, *extents),
        (filters, channels // groups, *taps),
        tuple(draw.choice((0, extent // 2, 1)) for extent in taps),
        tuple(draw.choice((1, 1, 1, 2, 3)) for _ in range(rank)),
        tuple(draw.choice((1, 1, 1, 2)) for _ in range(rank)),
        draw.choice(("f32", "f16", "bf16")),
        draw.random() < 0.7,
        draw.choice(EPILOGUES) if direction == "fwd" else (),
    )
    if min(made.y) < 1:
        return None
    largest = max(int(np.prod(sizes)) for sizes in (made.x, made.w, made.y))
    return made if largest <= MOST_ELEMENTS else None


def graphs(count: int, seed: int, products: float) -> list[Graph]:
    draw = random.Random(seed)
    found = [one for one in KNOWN if one.products() <= products]
    while len(found) < count:
        one = drawn(draw)
        if one is not None and one.products() <= products:
            found.append(one)
    return found[:count]


def strides(sizes: tuple[int, ...], channels_last: bool) -> list[int]:
    order = [0, *range(2, len(sizes)), 1] if channels_last else list(range(len(sizes)))
    found, step = [0] * len(sizes), 1
    for axis in reversed(order):
        found[axis] = step
        step *= sizes[axis]
    return found


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Whole numbers that all types hold, as the bits of the type."""
    single = values.astype(np.float32)
    if dtype == "bf16":
        return (single.view(np.uint32) >> 16).astype(np.uint16)
    return single.astype(BITS[dtype])


def as_numbers(bits: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.float32)


def difference(graph: Graph, first: np.ndarray, second: np.ndarray) -> float:
    """The largest difference of two results, in parts of what both may be off by together."""
    if np.array_equal(first, second):
        return 0.0
    one = as_numbers(first, graph.dtype).astype(np.float64)
    other = as_numbers(second, graph.dtype).astype(np.float64)
    terms, scale = graph.terms(), 2.0 if "scale" in graph.epilogue else 1.0
    magnitude = scale * 4.0 * terms + 4.0
    steps = 1 + len(graph.epilogue)
    sums = terms * ADDING / (1 - terms * ADDING) * magnitude
    bound = 2 * (sums + steps * UNIT[graph.dtype] * np.maximum(np.abs(one), np.abs(other)))
    worst = np.abs(one - other) / bound
    return float("inf") if np.isnan(worst).any() else float(worst.max())
