"""Networks as chains of convolutions.

A link reads what the one before it gives, and may add what an earlier one gave. So all of VGG16's
convolutions are a chain, and of ResNet-50's (with the stride in the 3x3, v1.5) the stem and the 48
of its blocks: twelve blocks add what they begin with. The first block of each of the four stages
adds a convolution of that, which lies beside the chain: it is left out, and nothing is added there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

import oocdnn
from oocdnn.bench.network import SIZE, VGG16

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # of ResNet-50: channels inside, and blocks
Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Spec:
    """A convolution padded by half of its taps, with a maximum over windows after it, and the
    number of the link whose result it adds."""

    k: int
    taps: int
    stride: int = 1
    pool: oocdnn.Pool | None = None
    residual: int | None = None

    @property
    def padding(self) -> int:
        return self.taps // 2

    def pooled(self, y: torch.Tensor) -> torch.Tensor:
        """What torch makes of y."""
        pool = self.pool
        if pool is None:
            return y
        window, stride, padding = pool.window, pool.stride, pool.padding
        return torch.nn.functional.max_pool2d(y, window, stride, padding)


def shapes(specs: Sequence[Spec], images: int) -> Iterator[tuple[Spec, Shape, Shape, Shape]]:
    """Each with the shapes of what it reads, of its sums, and of what it gives."""
    x: Shape = (images, 3, SIZE, SIZE)
    for spec in specs:
        size = (x[2] - 1) // spec.stride + 1
        y: Shape = (images, spec.k, size, size)
        pooled = spec.pooled(torch.empty((1, 1, size, size), device="meta")).shape[2]
        z: Shape = (images, spec.k, pooled, pooled)
        yield spec, x, y, z
        x = z


def vgg16() -> Iterator[Spec]:
    for k, pooled in VGG16:
        yield Spec(k, 3, pool=oocdnn.Pool("max", 2, 2) if pooled else None)


def resnet50() -> Iterator[Spec]:
    yield Spec(64, 7, stride=2, pool=oocdnn.Pool("max", 3, 2, 1))
    number = 0  # of the link that a block reads
    for stage, (k, blocks) in enumerate(STAGES):
        for block in range(blocks):
            yield Spec(k, 1)
            yield Spec(k, 3, stride=2 if stage and not block else 1)
            yield Spec(4 * k, 1, residual=number if block else None)
            number += 3


NETWORKS = {"vgg16": tuple(vgg16()), "resnet50": tuple(resnet50())}
