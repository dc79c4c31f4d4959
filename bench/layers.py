"""Convolution layers of well-known networks, with integer-valued data.

One call of `LAYERS` takes a few tenths of a second on two cores, one of `GPU_LAYERS` moves up to 16
GiB. The elements are small integers, so float32 sums are exact in every order and results of
different programs can be compared bit by bit.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from oocdnn.bench import amounts
from oocdnn.cli.problems import Problem, parse

Array = NDArray[np.float32]
Direction = Literal["fwd", "bwd_data", "bwd_filter"]
Operand = Literal["x", "w", "y"]

DIRECTIONS: tuple[Direction, ...] = ("fwd", "bwd_data", "bwd_filter")
# The inputs of each direction and its output.
ROLES: dict[Direction, tuple[Operand, Operand, Operand]] = {
    "fwd": ("x", "w", "y"),
    "bwd_data": ("y", "w", "x"),
    "bwd_filter": ("x", "y", "w"),
}
# The same in words of problem strings, where gradients have names of their own.
WORDS: dict[Direction, tuple[str, str, str]] = {
    "fwd": ("x", "w", "y"),
    "bwd_data": ("dy", "w", "dx"),
    "bwd_filter": ("x", "dy", "dw"),
}
LARGEST = 2  # elements are integers from -LARGEST to LARGEST


@dataclass(frozen=True)
class Layer:
    """A convolution layer, of float32 where nothing else is said. The tuples have one entry per
    spatial axis, [D,] H, W."""

    name: str
    n: int
    c: int
    k: int
    extents: tuple[int, ...]
    taps: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The spatial extents of y."""
        axes = zip(self.extents, self.taps, self.padding, self.stride, self.dilation, strict=True)
        return tuple((x + 2 * p - d * (t - 1) - 1) // s + 1 for x, t, p, s, d in axes)

    def shape(self, operand: Operand) -> tuple[int, ...]:
        """The shape of x (also dx), w (dw) or y (dy)."""
        shapes = {
            "x": (self.n, self.c, *self.extents),
            "w": (self.k, self.c // self.groups, *self.taps),
            "y": (self.n, self.k, *self.outputs),
        }
        return shapes[operand]

    def _parsed(self, direction: Direction) -> Problem:
        return parse(self.problem(direction))

    @property
    def data_bytes(self) -> int:
        """Of x, w and y together."""
        return amounts.operand_bytes(self._parsed("fwd"))

    @property
    def flops(self) -> int:
        """Floating-point operations of one call in any direction; padding counts as data."""
        return amounts.flops(self._parsed("fwd"))

    def longest_sum(self, direction: Direction) -> int:
        """How many products go into one element of the result, at most."""
        return amounts.longest_sum(self._parsed(direction))

    def problem(self, direction: Direction) -> str:
        """The problem string, as the library prints it: defaults are left out."""
        words = [f"conv{self.rank}d:{direction}"]
        words += [f"{operand}{_axes(self.shape(operand))}" for operand in ("x", "w")]
        numbers = (("pad", self.padding, 0), ("str", self.stride, 1), ("dil", self.dilation, 1))
        for word, values, default in numbers:
            if set(values) != {default}:
                words.append(word + _axes(values[:1] if len(set(values)) == 1 else values))
        if self.groups > 1:
            words.append(f"grp{self.groups}")
        return " ".join(words)


def _axes(shape: tuple[int, ...]) -> str:
    """8x64x224x224."""
    return "x".join(map(str, shape))


def layer(
    name: str,
    x: tuple[int, ...],
    k: int,
    taps: int,
    *,
    padding: int | tuple[int, ...] = 0,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
) -> Layer:
    """A layer that is alike on all its spatial axes, but for a padding of each; `x` is N, C, [[D,]
    H,] W."""
    n, c, *extents = x
    rank = len(extents)

    def spread(value: int) -> tuple[int, ...]:
        return (value,) * rank

    return Layer(
        name=name,
        n=n,
        c=c,
        k=k,
        extents=tuple(extents),
        taps=spread(taps),
        padding=padding if isinstance(padding, tuple) else spread(padding),
        stride=spread(stride),
        dilation=spread(dilation),
        groups=groups,
    )


LAYERS = (
    layer("VGG16 conv1_2", (8, 64, 224, 224), 64, 3, padding=1),
    layer("VGG16 conv2_2", (8, 128, 112, 112), 128, 3, padding=1),
    layer("VGG16 conv3_2", (8, 256, 56, 56), 256, 3, padding=1),
    layer("VGG16 conv4_2", (8, 512, 28, 28), 512, 3, padding=1),
    layer("VGG16 conv5_2", (32, 512, 14, 14), 512, 3, padding=1),
    layer("ResNet-50 stem 7x7/2", (48, 3, 224, 224), 64, 7, padding=3, stride=2),
    layer("ResNet-50 conv4 1x1", (256, 1024, 14, 14), 256, 1),
    layer("ResNet-50 conv4 3x3/2", (128, 256, 28, 28), 256, 3, padding=1, stride=2),
    layer("ResNeXt conv4, 32 groups", (192, 512, 14, 14), 512, 3, padding=1, groups=32),
    layer("DeepLab, dilation 6", (6, 256, 64, 64), 256, 3, padding=6, dilation=6),
    layer("volume 3x3x3", (4, 32, 48, 48, 48), 32, 3, padding=1),
    layer("large image", (1, 16, 1536, 1536), 16, 3, padding=1),
)

GPU_LAYERS = (
    layer("VGG16 conv1_1", (64, 3, 224, 224), 64, 3, padding=1),
    layer("VGG16 conv1_2", (64, 64, 224, 224), 64, 3, padding=1),
    layer("VGG16 conv2_1", (128, 64, 112, 112), 128, 3, padding=1),
    layer("VGG16 conv2_2", (128, 128, 112, 112), 128, 3, padding=1),
    layer("VGG16 conv3_2", (256, 256, 56, 56), 256, 3, padding=1),
    layer("VGG16 conv4_1", (256, 256, 28, 28), 512, 3, padding=1),
    layer("VGG16 conv4_2", (256, 512, 28, 28), 512, 3, padding=1),
    layer("VGG16 conv5_2", (256, 512, 14, 14), 512, 3, padding=1),
    layer("ResNet-50 1x1", (256, 64, 56, 56), 256, 1),
    layer("ResNet-50 1x1/2", (256, 256, 56, 56), 512, 1, stride=2),
    layer("ResNet-50 3x3/2", (256, 128, 56, 56), 128, 3, padding=1, stride=2),
    layer("volume 3x3x3", (2, 32, 128, 192, 192), 32, 3, padding=1),
    layer("depthwise 3x3", (64, 384, 112, 112), 384, 3, padding=1, groups=384),
    layer("2048 to 2048 at 1024", (1, 2048, 1024, 1024), 2048, 3, padding=1),
)


def integers(shape: tuple[int, ...], seed: int) -> Array:
    """A dense float32 array of random integers from -LARGEST to LARGEST."""
    random = np.random.default_rng(seed)
    small = random.integers(-LARGEST, LARGEST, shape, dtype=np.int8, endpoint=True)
    return small.astype(np.float32)


def operands(case: Layer, direction: Direction) -> tuple[Array, Array]:
    """The two inputs of a direction, in the order of ROLES."""
    first, second, _ = ROLES[direction]
    return integers(case.shape(first), 1), integers(case.shape(second), 2)
