"""Parts of what a chain of convolutions gives, computed by torch from as much of x as they need: a
check for results that are too large to compute any other way."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

Window = tuple[slice, ...]  # on the spatial axes


@dataclass(frozen=True)
class Layer:
    """A convolution that keeps the extents (an odd filter, half of it padding), and its bias. What
    it gives is clamped to [0, top]."""

    w: torch.Tensor
    b: torch.Tensor
    top: float

    @property
    def padding(self) -> list[int]:
        return [extent // 2 for extent in self.w.shape[2:]]


def windows(extents: Sequence[int], size: int, count: int, seed: int = 0) -> list[Window]:
    """All corners, and `count` places between them, the same for the same seed."""
    sizes = [min(size, extent) for extent in extents]
    ends = [{0, extent - size} for extent, size in zip(extents, sizes, strict=True)]
    begins = [tuple(begin) for begin in itertools.product(*map(sorted, ends))]
    rng = random.Random(seed)
    begins += [tuple(rng.randint(0, max(end)) for end in ends) for _ in range(count)]
    return [
        tuple(slice(at, at + size) for at, size in zip(begin, sizes, strict=True))
        for begin in begins
    ]


def expected(x: torch.Tensor, layers: Sequence[Layer], window: Window) -> torch.Tensor:
    """The window of the last layer's result, from x [N, C, ...], where the layers' tensors are."""
    reach = [sum(axis) for axis in zip(*(layer.padding for layer in layers), strict=True)]
    held = [
        range(max(one.start - far, 0), min(one.stop + far, extent))
        for one, far, extent in zip(window, reach, x.shape[2:], strict=True)
    ]
    part = x[(..., *(slice(one.start, one.stop) for one in held))]
    z = part.to(layers[0].w.device, torch.float32)
    for layer in layers:  # what padding makes of an inner rim reaches no further than the halo
        z = convolve(z, layer)
    inner = (slice(a.start - b.start, a.stop - b.start) for a, b in zip(window, held, strict=True))
    return z[(..., *inner)]


def convolve(x: torch.Tensor, layer: Layer) -> torch.Tensor:
    """One layer, in float32."""
    function: Any = (torch.conv1d, torch.conv2d, torch.conv3d)[x.dim() - 3]
    y = function(x, layer.w.float(), layer.b.float(), padding=layer.padding)
    return torch.clamp(y, 0, layer.top)
