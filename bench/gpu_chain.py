"""VGG16's thirteen convolutions, with bias, relu and pools, depth first and layer by layer.

    python -m oocdnn.bench.gpu_chain --out result.json

Inference at batch 256 from pinned memory: one call of the whole chain, a fused call for each layer,
and beside them what the device takes at least: the sum of the layers' best times with every operand
on it, by torch (NCHW and channels-last, the engine that its own measurements choose) and by us, and
the bytes of what comes after each convolution at the device's bandwidth, all from the same run. A
floor by the wires counts every byte once. The relu is cut at 6, which takes no longer, and weights
are -1, 0 and 1: so elements stay small integers through all layers, and all ways must give the same
bits; some images' are held to torch in core.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch

import oocdnn
from oocdnn.bench.gpu_floor import (
    MATHS,
    Pinned,
    as_numpy,
    compare,
    event_seconds,
    fill,
)
from oocdnn.bench.gpu_kinds import kinds_command
from oocdnn.bench.gpu_wires import Gauge
from oocdnn.bench.network import SIZE, VGG16
from oocdnn.bench.timed import Timed, timed, total

TOP = 6.0
IMAGES_CHECKED = 8
DEFAULT = ("tf32", "bf16")
COPIED = 1 << 30  # bytes of the copy that tells the device's bandwidth


@dataclass
class Layer:
    """One convolution: its sizes, its parameters on the device, and as the caller has them."""

    channels: int
    k: int
    size: int
    pooled: bool
    w: torch.Tensor
    b: torch.Tensor
    link: oocdnn.Link

    def elements_after(self, images: int) -> tuple[int, int]:
        """Of y, which is read, and of z, which is written."""
        y = images * self.k * self.size**2
        return y, y // 4 if self.pooled else y


@dataclass
class Compared:
    """All ways in one kind of arithmetic."""

    math: str
    images: int
    chain: list[Timed] = field(default_factory=list)
    layers: list[Timed] = field(default_factory=list)
    in_core: list[dict[str, float]] = field(default_factory=list)  # seconds, by layer and by whom
    bandwidth: float = 0.0  # bytes per second, read and written
    epilogue_bytes: int = 0
    wrong: dict[str, int] = field(default_factory=dict)  # elements that differ, by what from

    @property
    def arithmetic(self) -> float:
        """The least that the device takes: best layers, and what comes after them."""
        best = sum(min(layer.values()) for layer in self.in_core)
        return best + self.epilogue_bytes / self.bandwidth

    def row(self) -> dict[str, Any]:
        return asdict(self) | {"arithmetic_seconds": self.arithmetic}

    def lines(self) -> list[str]:
        chain, apart = total(self.chain), total(self.layers)
        each = 1e3 / self.images
        return [
            f"{self.math}: chain {chain * each:.4f} ms an image, {chain / self.arithmetic:.3f} x "
            f"{self.arithmetic * each:.4f} of the device; layer by layer {apart * each:.4f}, "
            f"{apart / chain:.2f} times as long; differ: {self.wrong}",
            *(f"  {one.line()}" for one in (*self.chain, *self.layers)),
        ]


def seconds_of(call: Callable[[], object], repeats: int) -> float:
    """The best; infinity where the device has no memory for it."""
    try:
        return event_seconds(call, repeats)
    except (torch.cuda.OutOfMemoryError, oocdnn.OutOfMemory):
        return math.inf


def bandwidth(repeats: int) -> float:
    source = torch.zeros(COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPIED / event_seconds(lambda: target.copy_(source), repeats)


class Bench:
    """The tensors of one kind of arithmetic, and calls on them."""

    def __init__(
        self, context: oocdnn.Context, gauge: Gauge, math_name: str, images: int, repeats: int
    ) -> None:
        self.context, self.gauge, self.repeats, self.images = context, gauge, repeats, images
        self.dtype = MATHS[math_name][0]
        self.math: Literal["fp32", "tf32"] = "tf32" if math_name == "tf32" else "fp32"
        self.layers = list(self._layers())
        rooms = Pinned(), Pinned(), Pinned()
        self.x = rooms[0].tensor("x", (images, 3, SIZE, SIZE), self.dtype)
        fill(self.x, 0)
        last = self.layers[-1]
        self.z = rooms[0].tensor("y", self._shape(last), self.dtype)
        self.between = rooms[1:]

    def _shape(self, layer: Layer) -> tuple[int, int, int, int]:
        size = layer.size // 2 if layer.pooled else layer.size
        return self.images, layer.k, size, size

    def _layers(self) -> Any:
        size = SIZE
        for (channels, _), (k, pooled) in pairwise(((3, False), *VGG16)):
            w = torch.randint(-1, 2, (k, channels, 3, 3), device="cuda").to(self.dtype)
            b = torch.randint(-2, 3, (k,), device="cuda").to(self.dtype)
            link = oocdnn.Link(
                as_numpy(w.cpu()), as_numpy(b.cpu()), padding=1,
                activation=("clipped_relu", TOP), pool=2 if pooled else None,
            )  # fmt: skip
            yield Layer(channels, k, size, pooled, w, b, link)
            size = size // 2 if pooled else size

    def chain(self) -> list[Timed]:
        links = [layer.link for layer in self.layers]
        x, z = as_numpy(self.x), as_numpy(self.z)
        sources = [x, *(array for link in links for array in (link.w, link.b))]

        def call() -> Any:
            return self.context.conv_chain(x, links, out=z, math=self.math)

        return [timed(self.context, self.gauge, "chain", call, sources, [z], self.repeats)[0]]

    def layer_by_layer(self) -> tuple[list[Timed], torch.Tensor]:
        """Each reads what the one before it wrote; the last result too."""
        calls, source = [], self.x
        for i, layer in enumerate(self.layers):
            target = self.between[i % 2].tensor("x", self._shape(layer), self.dtype)
            calls.append(self._layer(f"layer {i + 1}", layer.link, source, target))
            source = target
        return calls, source

    def _layer(
        self, name: str, link: oocdnn.Link, source: torch.Tensor, target: torch.Tensor
    ) -> Timed:
        x, out = as_numpy(source), as_numpy(target)

        def call() -> Any:
            made: Callable[..., Any] = self.context.conv_bias_act_pool
            return made(
                x, link.w, link.b, padding=1, activation=link.activation, pool=link.pool, out=out,
                math=self.math,
            )  # fmt: skip

        return timed(
            self.context, self.gauge, name, call, [x, link.w, link.b], [out], self.repeats
        )[0]

    def in_core(self, layer: Layer) -> dict[str, float]:
        """The best seconds of the convolution alone with every operand on the device."""
        shape = self.images, layer.channels, layer.size, layer.size
        x = torch.randint(0, 7, shape, device="cuda", dtype=torch.int8).to(self.dtype)
        last = torch.channels_last
        x_last, w_last = x.to(memory_format=last), layer.w.to(memory_format=last)
        own, conv = partial(self.context.conv2d, math=self.math), torch.conv2d
        ways = {
            "torch": partial(conv, x, layer.w, padding=1),
            "torch channels last": partial(conv, x_last, w_last, padding=1),
            "own": partial(own, x, layer.w, padding=1),
            "own channels last": partial(own, x_last, w_last, padding=1),
        }
        return {name: seconds_of(call, self.repeats) for name, call in ways.items()}

    def by_torch(self) -> torch.Tensor:
        """Some images. Integers are exact in TF32, and its engines only add products."""
        z = self.x[:IMAGES_CHECKED].cuda()
        for layer in self.layers:
            y = torch.conv2d(z.float(), layer.w.float(), layer.b.float(), padding=1)
            z = torch.clamp(y, 0, TOP)
            z = torch.max_pool2d(z, 2) if layer.pooled else z
        return z.to(self.dtype)


def run(context: oocdnn.Context, gauge: Gauge, name: str, images: int, repeats: int) -> Compared:
    torch.backends.cudnn.allow_tf32 = name != "fp32"
    torch.backends.cudnn.benchmark = True
    bench = Bench(context, gauge, name, images, repeats)
    one = Compared(name, images)
    one.chain = bench.chain()
    one.wrong["torch"] = compare(bench.z[:IMAGES_CHECKED], bench.by_torch())[0]
    one.layers, last = bench.layer_by_layer()
    one.wrong["layer by layer"] = compare(bench.z, last.cuda())[0]
    context.release()
    torch.cuda.empty_cache()
    one.bandwidth = bandwidth(repeats)
    one.epilogue_bytes = epilogue_bytes(bench.layers, images, bench.dtype)
    for layer in bench.layers:
        one.in_core.append(bench.in_core(layer))
        torch.cuda.empty_cache()
    return one


def epilogue_bytes(layers: Sequence[Layer], images: int, dtype: torch.dtype) -> int:
    """Sums are read in float32, results written in the type of the elements."""
    pairs = [layer.elements_after(images) for layer in layers]
    return sum(4 * y + dtype.itemsize * z for y, z in pairs)


main = kinds_command("oocdnn.bench.gpu_chain", __doc__ or "", run, "16GiB", list(MATHS), DEFAULT)

if __name__ == "__main__":
    main()
